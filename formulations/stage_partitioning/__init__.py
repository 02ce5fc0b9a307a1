"""Stage partitioning with TMPC choice: a layer graph split into pipeline stages with degrees and configurations."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
