"""Claims of AMP's paper."""
