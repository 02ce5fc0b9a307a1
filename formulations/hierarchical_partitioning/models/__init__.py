"""Models whose columns are superstages, priced beforehand."""
