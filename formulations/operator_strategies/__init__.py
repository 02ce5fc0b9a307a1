"""Operator strategies: one strategy for each operator, least cost of nodes and edges, memory limited at every time."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
