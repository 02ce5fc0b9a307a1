"""Choosing, running, comparing and certifying methods."""
