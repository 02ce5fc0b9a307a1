"""Hierarchical stage partitioning: machines of devices, each level of them with a network of its own."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
