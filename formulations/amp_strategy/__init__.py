"""AMP strategies: degrees, micro-batch, placement and layer assignment of a model on heterogeneous nodes."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
