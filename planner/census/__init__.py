"""Subproblems of a parent algorithm's run: extracted, and all of them solved."""

from planner.census.each import census_of
from planner.census.run import census

__all__ = ["census", "census_of"]
