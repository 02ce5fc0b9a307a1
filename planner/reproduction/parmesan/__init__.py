"""Claims of Parmesan's paper."""
