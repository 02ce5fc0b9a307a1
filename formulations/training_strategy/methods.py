"""The methods of training strategies: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Claim, Method, lazy
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

METHODS: tuple[Method[StrategyInstance, StrategyPlan], ...] = (
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="bounds of fixed orders, longest paths as cuts, layouts by dynamic programs; made for this project",
        solve=_code.exact.solve,
        supports=_exact_supports,
        limits=f"{_LIMITS}, at most one requirement realizable(TRAINER)",
        effort=lambda instance: 100.0 * _passes(instance),
        honours=names(VOCABULARY),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="cuts, recomputation and ends of passes at given degrees, CP-SAT; degrees by a bound",
        solve=_code.models.cpsat.solve,
        backend="cpsat",
        build=_code.models.cpsat.model_of,
        supports=_model_supports,
        limits=_MODEL_LIMITS,
        effort=lambda instance: 100.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="the same rows, Pyomo and HiGHS",
        solve=_code.models.milp.solve,
        backend="highs",
        build=_code.models.milp.model_of,
        supports=_model_supports,
        limits=_MODEL_LIMITS,
        effort=lambda instance: 100.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="even",
        claim=Claim.HEURISTIC,
        source="Megatron-LM: as many blocks in each chunk, as many recomputed; the best degrees by simulation",
        solve=_code.heuristics.even,
        supports=supports,
        limits=_LIMITS,
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="torchtitan",
        claim=Claim.HEURISTIC,
        source="torchtitan: blocks spread evenly, embedding and head as one each; the best degrees by simulation",
        solve=_code.heuristics.torchtitan,
        supports=supports,
        limits=_LIMITS,
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="formula",
        claim=Claim.HEURISTIC,
        source="the fill of uniform stages in closed form (Narayanan et al. 2021, section 2.2), then simulated",
        solve=_code.heuristics.formula,
        supports=_formula_supports,
        limits=f"{_LIMITS}, 1f1b among the schedules",
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="alpa",
        claim=Claim.HEURISTIC,
        source="Alpa (Zheng et al. 2022), section 5.2, with equal submeshes: the least sum for each slowest stage",
        solve=_code.planners.alpa,
        supports=_formula_supports,
        limits=f"{_LIMITS}, 1f1b among the schedules",
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="galvatron",
        claim=Claim.HEURISTIC,
        source="Galvatron (Miao et al. 2022): equal stages, recomputation by a dynamic program in steps of memory",
        solve=_code.planners.galvatron,
        supports=_formula_supports,
        limits=f"{_LIMITS}, 1f1b among the schedules",
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
    Method(
        name="uniap",
        claim=Claim.HEURISTIC,
        source="UniAP (Lin et al. 2025), one pair of degrees: the least sum, sends as steps; Source: reconstructed",
        solve=_code.planners.uniap,
        supports=_formula_supports,
        limits=f"{_LIMITS}, 1f1b among the schedules",
        effort=lambda instance: 10.0 * _passes(instance),
        honours=names(OF_DEGREES),
    ),
)
