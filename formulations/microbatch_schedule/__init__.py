"""Micro-batch schedules of stage graphs, and how many samples a stage keeps in flight."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
