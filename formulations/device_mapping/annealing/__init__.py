"""Annealing by swaps."""
