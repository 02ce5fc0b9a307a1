"""Compiled loops over downsets."""
