"""Instances: what a planning problem is given. No solver and no cost formula."""
