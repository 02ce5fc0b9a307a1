"""Subproblems of a parent algorithm's run: extracted, and all of them solved."""

from planner.experiments.census.census_of_rows import census_of
from planner.experiments.census.run import census

__all__ = ["census", "census_of"]
