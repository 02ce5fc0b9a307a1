"""Exact searches over upsets of the operators."""
