"""Subproblems of a method's run: extracted, and all of them solved."""

from planner.experiments.census.run import census

__all__ = ["census"]
