"""Which choices are distinct: all of them."""

from formulations.operator_strategies.definition.quantities import DECISIONS

NEARBY = DECISIONS.nearby()
