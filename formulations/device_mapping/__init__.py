"""Device mapping: the stages of a pipeline and their replicas placed on devices with heterogeneous links."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
