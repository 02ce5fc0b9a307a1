"""Mesh tiling: an exact cover of a mesh of devices by one tile for each pipeline stage."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
