"""Subproblems of a parent algorithm's run: extracted, and all of them solved."""

from planner.census.run import census

__all__ = ["census"]
