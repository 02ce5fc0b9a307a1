"""Flushed stage partitioning: Piper's problem for pipelines that are flushed after every batch."""

from formulations.contract.package import family_of

FAMILY = family_of(__name__)
