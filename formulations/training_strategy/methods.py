"""The methods of training strategies: what they claim, where they come from, when they apply, and the choice."""

from typing import Any

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.contract.quantities import names
from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import most_chunks
from formulations.training_strategy.definition.quantities import OF_DEGREES, VOCABULARY
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.requirements import requirements_of
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
    stages = min(len(flat.layers), flat.num_devices * most_chunks(instance))
    kinds = 3 if any(SCHEDULES[each].is_split for each in instance.schedules) else 2
    return float(kinds * stages * flat.num_microbatches)


def supports(instance: StrategyInstance) -> str | None:
    """Why a chain is too long to be simulated."""
    layers, passes = len(instance.flat.layers), _passes(instance)
    if layers > _MOST_LAYERS:
        return f"{layers} layers; expected at most {_MOST_LAYERS}"
    if passes > _MOST_PASSES:
        return f"{passes:g} passes of an iteration; expected at most {_MOST_PASSES:g}"
    return None


def _exact_supports(instance: StrategyInstance) -> str | None:
    """Why requirements on trainers are none that the search takes: one trainer, which can run the plan."""
    found = [each for each in requirements_of(instance) if each.quantity == "realizable"]
    if len(found) > 1 or any(each.holds(0) or not each.holds(1) for each in found):
        return "it takes at most one requirement realizable(TRAINER), as --realizable makes it"
    return supports(instance)


def _formula_supports(instance: StrategyInstance) -> str | None:
    if Schedule.ONE_F_ONE_B not in instance.schedules:
        return "the formula is that of 1f1b, which is not among the schedules"
    return supports(instance)


#: The relaxation of 4,000 passes of 35 layers takes HiGHS 6 s, at each of many degrees; with 8,000 it is not solved.
_MODEL_PASSES, _MODEL_PLACES = 5_000, 10_000
_MODEL_LIMITS = f"at most {_MODEL_PASSES:,} passes of an iteration, and {_MODEL_PLACES:,} layers in chunks"


def _model_supports(instance: StrategyInstance) -> str | None:
    """Why the model of some degrees would be too large for a solver."""
    layers, passes = len(instance.flat.layers), _passes(instance)
    places = layers * min(layers, instance.flat.num_devices * most_chunks(instance))
    words = f"{passes:g} passes of an iteration, {places} layers in chunks; expected {_MODEL_LIMITS}"
    return words if passes > _MODEL_PASSES or places > _MODEL_PLACES else None


_LIMITS = f"at most {_MOST_LAYERS} layers and {_MOST_PASSES:,} passes of an iteration"

_EVENLY: dict[str, Any] = {
    "supports": supports,
    "limits": _LIMITS,
    "effort": lambda instance: 10.0 * _passes(instance),
    "honours": names(OF_DEGREES),
}
_OF_1F1B = _EVENLY | {"supports": _formula_supports, "limits": f"{_LIMITS}, 1f1b among the schedules"}
_MODELLED: dict[str, Any] = {
    "honours": OF_DEGREES,
    "supports": _model_supports,
    "limits": _MODEL_LIMITS,
    "effort": lambda instance: 100.0 * _passes(instance),
}

METHODS: tuple[Method[StrategyInstance, StrategyPlan], ...] = (
    exact(
        "exact",
        "bounds of fixed orders, longest paths as cuts, layouts by dynamic programs; made for this project",
        _code.exact.solve,
        supports=_exact_supports,
        limits=f"{_LIMITS}, at most one requirement realizable(TRAINER)",
        effort=lambda instance: 100.0 * _passes(instance),
        honours=names(VOCABULARY),
    ),
    declarative(
        _code.models.cpsat,
        "cuts, recomputation and ends of passes at given degrees, CP-SAT; degrees by a bound",
        **_MODELLED,
    ),
    declarative(_code.models.milp, "the same rows, Pyomo and HiGHS", **_MODELLED),
    heuristic(
        "even",
        "Megatron-LM: as many blocks in each chunk, as many recomputed; the best degrees by simulation",
        _code.heuristics.even,
        **_EVENLY,
    ),
    heuristic(
        "torchtitan",
        "torchtitan: blocks spread evenly, embedding and head as one each; the best degrees by simulation",
        _code.heuristics.torchtitan,
        **_EVENLY,
    ),
    heuristic(
        "formula",
        "the fill of uniform stages in closed form (Narayanan et al. 2021, section 2.2), then simulated",
        _code.heuristics.formula,
        **_OF_1F1B,
    ),
    heuristic(
        "alpa",
        "Alpa (Zheng et al. 2022), section 5.2, with equal submeshes: the least sum for each slowest stage",
        _code.planners.alpa,
        **_OF_1F1B,
    ),
    heuristic(
        "galvatron",
        "Galvatron (Miao et al. 2022): equal stages, recomputation by a dynamic program in steps of memory",
        _code.planners.galvatron,
        **_OF_1F1B,
    ),
    heuristic(
        "uniap",
        "UniAP (Lin et al. 2025), one pair of degrees: the least sum, sends as steps; Source: reconstructed",
        _code.planners.uniap,
        **_OF_1F1B,
    ),
)
