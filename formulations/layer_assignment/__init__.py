"""Layer assignment: a chain of layers cut into pipeline stages; waiting, sending, filling and the all-reduce add up."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
