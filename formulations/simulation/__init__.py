"""Event simulations of pipelines."""
