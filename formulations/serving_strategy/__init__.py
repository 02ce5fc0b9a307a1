"""Serving strategies: replicas, degrees, layers by stage and sequences at once of an inference server."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
