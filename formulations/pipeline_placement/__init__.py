"""Pipeline placement: operators cut into stages and stages put on devices, one phase after the other or at once."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
