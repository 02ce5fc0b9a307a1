"""Operator partitioning: an operator graph cut into pipeline stages, as Parmesan does it and exactly."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
