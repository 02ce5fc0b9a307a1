"""The methods of training strategies: what they claim, where they come from, when they apply, and the choice."""

from __future__ import annotations

from formulations.contract.family import Claim, Method, lazy
from formulations.training_strategy.definition.plan import StrategyPlan
from instances.problems.training_strategy import Schedule, StrategyInstance
from solvers.outcome import Limits

_code = lazy("formulations.training_strategy")

#: Tables grow with the cube of the layers; an iteration of more passes takes minutes and gigabytes to simulate.
_MOST_LAYERS, _MOST_PASSES = 300, 3_000_000


def choose(instance: StrategyInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The exact search."""
    return "exact", f"a search over degrees and cuts of {len(instance.chain)} layers"


def _passes(instance: StrategyInstance) -> float:
    """Of the longest iteration, with a stage for each layer."""
    flat = instance.flat
    stages = min(len(flat.layers), flat.num_devices * instance.virtual_stages)
    return float((3 if Schedule.ZB_H1 in instance.schedules else 2) * stages * flat.num_microbatches)


def supports(instance: StrategyInstance) -> str | None:
    """Why a chain is too long to be simulated."""
    layers, passes = len(instance.flat.layers), _passes(instance)
    if layers > _MOST_LAYERS:
        return f"{layers} layers; expected at most {_MOST_LAYERS}"
    if passes > _MOST_PASSES:
        return f"{passes:g} passes of an iteration; expected at most {_MOST_PASSES:g}"
    return None


def _formula_supports(instance: StrategyInstance) -> str | None:
    if Schedule.ONE_F_ONE_B not in instance.schedules:
        return "the formula is that of 1f1b, which is not among the schedules"
    return supports(instance)


_LIMITS = f"at most {_MOST_LAYERS} layers and {_MOST_PASSES:,} passes of an iteration"

METHODS: tuple[Method[StrategyInstance, StrategyPlan], ...] = (
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="bounds of fixed orders, longest paths as cuts, layouts by dynamic programs; made for this project",
        solve=_code.exact.solve,
        supports=supports,
        limits=_LIMITS,
        effort=lambda instance: 100.0 * _passes(instance),
    ),
    Method(
        name="even",
        claim=Claim.HEURISTIC,
        source="Megatron-LM: as many blocks in each chunk, as many recomputed; the best degrees by simulation",
        solve=_code.heuristics.even,
        supports=supports,
        limits=_LIMITS,
        effort=lambda instance: 10.0 * _passes(instance),
    ),
    Method(
        name="formula",
        claim=Claim.HEURISTIC,
        source="the fill of uniform stages in closed form (Narayanan et al. 2021, section 2.2), then simulated",
        solve=_code.heuristics.formula,
        supports=_formula_supports,
        limits=f"{_LIMITS}, 1f1b among the schedules",
        effort=lambda instance: 10.0 * _passes(instance),
    ),
)
