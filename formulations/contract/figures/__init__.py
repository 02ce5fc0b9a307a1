"""Figures and pictures of plans, as plain data."""
