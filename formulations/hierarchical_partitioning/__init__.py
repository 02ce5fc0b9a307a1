"""Hierarchical stage partitioning: machines of devices, a network inside a machine and another between machines."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
