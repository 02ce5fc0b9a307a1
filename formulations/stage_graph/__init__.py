"""Stage graphs: a branching model cut into pipeline stages that form a directed acyclic graph."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
