"""The quantities of a plan that requirements may speak of: those of stage partitioning."""

from formulations.stage_partitioning.definition.quantities import vocabulary

VOCABULARY = vocabulary(lambda instance: instance.flat)
