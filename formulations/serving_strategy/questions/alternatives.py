"""Which plans are distinct: all of them."""

from formulations.serving_strategy.definition.quantities import DECISIONS

NEARBY = DECISIONS.nearby()
