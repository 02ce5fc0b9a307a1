"""TMPC knapsack: one TMPC per node of a stage, least total time, total memory within a capacity."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
