"""Models whose columns are stages, priced beforehand."""
