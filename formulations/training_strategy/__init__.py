"""Training strategies: degrees, schedule and chunks of layers of a trainer, by its simulated iteration."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
