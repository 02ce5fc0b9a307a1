"""The methods of amp strategy: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable
from typing import Any

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.amp_strategy.definition.problem import strategies
from formulations.amp_strategy.definition.quantities import DEGREES, VOCABULARY
from formulations.amp_strategy.paper.classes import classes, num_arcs, possible
from formulations.contract.family import Claim, Method, declarative, lazy
from formulations.contract.quantities import names
from formulations.layer_assignment.methods import JOINT_LAYERS, PROGRAM_STATES, program_states
from instances.parameters import Setting, parse_count
from instances.problems.amp_strategy import AmpInstance
from solvers.outcome import Limits

_code = lazy("formulations.amp_strategy")

#: All tilings are listed: 2,245 by tiles of two devices on 8 nodes of 4, but 18,061 on 10, and 145,601 on 12.
_TILED_DEVICES = 32


def choose(instance: AmpInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The exhaustive search, milliseconds for each strategy; Megatron's if it is too large."""
    too_large = None if exact else _exhaustible(instance)
    if too_large is not None and _listable(instance) is None:
        return "megatron", f"too large for the exhaustive search ({too_large})"
    return "exhaustive", "all degrees, each with its best layer assignment"


def _listable(instance: AmpInstance) -> str | None:
    if instance.placement != "megatron" and instance.num_devices > _TILED_DEVICES:
        return f"{instance.num_devices} devices; expected at most {_TILED_DEVICES} where tilings are listed"
    return None


def _exhaustible(instance: AmpInstance) -> str | None:
    if len(instance.layers) > JOINT_LAYERS:
        return f"{len(instance.layers)} layers; expected at most {JOINT_LAYERS}"
    return _listable(instance)


def _programmable(instance: AmpInstance) -> str | None:
    layers = len(instance.layers)
    stages = max((each.pp_degree for each in strategies(instance) if each.pp_degree <= layers), default=0)
    states = program_states(layers, stages)
    if states > PROGRAM_STATES:
        return f"{states:g} states of the published program at {stages} stages; expected at most {PROGRAM_STATES:g}"
    return _listable(instance)


#: Larger models take more than ten seconds to build, even where a known plan leaves out most of their arcs.
_CPSAT_TERMS, _MILP_ARCS, _MODEL_LAYERS = 1_000_000, 5_000_000, 1_000


def _at_most(instance: AmpInstance, size: Callable[[AmpInstance, Degrees], int], most: int, what: str) -> str | None:
    """A model's size is the sum over all degrees and classes of placements; these are counted last."""
    if refused := _listable(instance):
        return refused
    if len(instance.layers) > _MODEL_LAYERS:
        return f"{len(instance.layers)} layers; expected at most {_MODEL_LAYERS}"
    found = list(possible(instance))
    total = sum(size(instance, each) for each in found)
    if total <= most and instance.placement != "megatron":
        total = sum(len(classes(instance, each)) * size(instance, each) for each in found)
    return f"a model of {total} {what}; expected at most {most}" if total > most else None


def _cpsat_terms(instance: AmpInstance, degrees: Degrees) -> int:
    """Those of the rows on time, all-reduce and cuts, and the devices that are placed."""
    return 3 * degrees.pp_degree * len(instance.layers) + instance.num_devices


def _milp_arcs(instance: AmpInstance, degrees: Degrees) -> int:
    """Arcs, and the devices that are placed."""
    return num_arcs(instance, degrees) + instance.num_devices


#: ``supports`` of a method, and its limits in words.
_Takes = tuple[Callable[[AmpInstance], str | None], str]

_TILED = f"at most {_TILED_DEVICES} devices unless the placement is megatron's"
_LISTABLE: _Takes = (_listable, _TILED)
_EXHAUSTIBLE: _Takes = (_exhaustible, f"at most {JOINT_LAYERS:,} layers, and {_TILED}")
_PROGRAMMABLE: _Takes = (
    _programmable,
    f"at most {PROGRAM_STATES:,.0f} states of the published program (half of stages times layers cubed), and {_TILED}",
)

_TOP = Setting("top", parse_count, "length of the ranked list of strategies", metavar="N", default="10")

_ITERATIONS = Setting("iterations", parse_count, "number of random tilings or strategies", metavar="N", default="300")


def _method(
    name: str, claim: Claim, source: str, solve: Callable[..., Any], takes: _Takes, *options: Setting
) -> Method[AmpInstance, StrategyPlan]:
    return Method(
        name=name,
        claim=claim,
        source=source,
        solve=solve,
        supports=takes[0],
        limits=takes[1],
        effort=lambda instance: 1e6 * instance.num_devices * len(instance.layers),
        options=(_TOP, *options),
        honours=names(DEGREES),
    )


METHODS: tuple[Method[AmpInstance, StrategyPlan], ...] = (
    _method(
        "exhaustive",
        Claim.EXACT,
        "all strategies, each with exact-joint, pruned by bounds",
        _code.exact.solve,
        _EXHAUSTIBLE,
    ),
    declarative(
        _code.models.cpsat,
        "all strategies in one model: chosen degrees, order-encoded cuts, CP-SAT",
        VOCABULARY,
        supports=lambda instance: _at_most(instance, _cpsat_terms, _CPSAT_TERMS, "terms"),
        limits=f"{_MODEL_LAYERS:,} layers, {_CPSAT_TERMS:,} terms (stages times layers of strategies), and {_TILED}",
        effort=lambda instance: 1e6 * sum(_cpsat_terms(instance, each) for each in possible(instance)),
    ),
    declarative(
        _code.models.milp,
        "all strategies in one model: a path of stages for each, Pyomo and HiGHS",
        VOCABULARY,
        supports=lambda instance: _at_most(instance, _milp_arcs, _MILP_ARCS, "arcs"),
        limits=f"{_MODEL_LAYERS:,} layers, {_MILP_ARCS:,} arcs (ends of all stages of all strategies), and {_TILED}",
        effort=lambda instance: 1e5 * sum(_milp_arcs(instance, each) for each in possible(instance)),
    ),
    _method("amp", Claim.HEURISTIC, "AMP, section 6.2, Algorithm 1", _code.paper.amp.solve_amp, _PROGRAMMABLE),
    _method(
        "amp-released",
        Claim.HEURISTIC,
        "the same with the released layer assignment",
        _code.paper.amp.solve_released,
        _PROGRAMMABLE,
    ),
    _method(
        "amp-sa",
        Claim.HEURISTIC,
        "AMP, section 6.3, Algorithm 2",
        _code.paper.amp.solve_annealing,
        _PROGRAMMABLE,
        _ITERATIONS,
    ),
    _method(
        "megatron",
        Claim.HEURISTIC,
        "Megatron's placement and split for all degrees",
        _code.paper.amp.solve_megatron,
        _LISTABLE,
    ),
)
