"""The methods of layer assignment: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.definition.settings import Instance
from solvers.outcome import Limits

_code = lazy("formulations.layer_assignment")

#: Beyond these a model takes too long to build, and the published program too much memory.
_MODEL_BOOLEANS, _MODEL_ARCS, PROGRAM_STATES, _EXACT_STEPS, JOINT_LAYERS = 10_000, 20_000, 5e7, 2e7, 4_000

#: Pairs of stage and layer of a model that is searched by the slowest stage: a cap leaves few of them open.
_PATH_PAIRS = 40_000


def choose(instance: Instance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The compiled sweep, with the all-reduce inside where there is one; an even split if that is too large."""
    if not exact and _joint(instance) is not None:
        return "uniform", f"too large for the exact sweep ({_joint(instance)})"
    if instance.ring_s_per_parameter:
        return "exact-joint", "the compiled sweep over thresholds, as an all-reduce is declared"
    return "exact", f"{instance.num_layers} layers: the compiled sweep over thresholds"


def _stage_layers(instance: Instance) -> int:
    return instance.num_stages * instance.num_layers


def _arcs(instance: Instance) -> int:
    return _stage_layers(instance) * instance.num_layers // 2


def _at_most(size: Callable[[Instance], float], limit: float, what: str) -> Callable[[Instance], str | None]:
    def supports(instance: Instance) -> str | None:
        return f"{size(instance):g} {what}; expected at most {limit:g}" if size(instance) > limit else None

    return supports


def _cpsat(instance: Instance) -> str | None:
    if instance.ring_s_per_parameter or instance.requirements:
        return _at_most(_stage_layers, _MODEL_BOOLEANS, "Booleans")(instance)
    return _at_most(_stage_layers, _PATH_PAIRS, "stage-layer pairs")(instance)


def _milp(instance: Instance) -> str | None:
    if instance.ring_s_per_parameter or instance.requirements:
        return _at_most(_arcs, _MODEL_ARCS, "arcs")(instance)
    return _at_most(_stage_layers, _PATH_PAIRS, "stage-layer pairs")(instance)


def _plain(instance: Instance) -> str | None:
    if instance.ring_s_per_parameter:
        return "an all-reduce is declared; use exact-joint, or leave it out with --ignore-all-reduce"
    return _at_most(_stage_layers, _EXACT_STEPS, "stage-layer pairs")(instance)


def _joint(instance: Instance) -> str | None:
    if instance.ring_s_per_parameter:
        return _at_most(lambda each: each.num_layers, JOINT_LAYERS, "layers with an all-reduce")(instance)
    return _plain(instance)


def program_states(num_layers: int, num_stages: int) -> float:
    """States of the published program: stages, layers, and sums of neighbouring layers."""
    return num_stages * num_layers * (num_layers * num_layers / 2)


def _program_states(instance: Instance) -> float:
    return program_states(instance.num_layers, instance.num_stages)


_fits_program = _at_most(_program_states, PROGRAM_STATES, "states of the published program")

METHODS: tuple[Method[Instance, LayerPlan], ...] = (
    heuristic(
        "amp",
        "AMP, section 6.4 (optimal where no all-reduce is declared)",
        _code.paper.solve_amp,
        supports=_fits_program,
        limits=f"at most {PROGRAM_STATES:,.0f} states of the published program: half of stages times layers cubed",
        effort=lambda instance: _program_states(instance) * instance.num_layers,
        only_at_end=True,
    ),
    heuristic(
        "amp-released",
        "AMP's released program, which forgets a cost of the best plan so far (reconstructed)",
        _code.paper.solve_released,
        supports=_fits_program,
        limits=f"at most {PROGRAM_STATES:,.0f} states of the published program: half of stages times layers cubed",
        effort=lambda instance: _program_states(instance) * instance.num_layers,
        only_at_end=True,
    ),
    exact(
        "exact",
        "sweep over thresholds with sliding windows, without an all-reduce",
        _code.exact.solve,
        supports=_plain,
        limits=f"at most {_EXACT_STEPS:,.0f} pairs of stage and layer, without an all-reduce",
        effort=lambda instance: 100.0 * _stage_layers(instance),
    ),
    exact(
        "exact-joint",
        "the same sweep inside one over the all-reduce",
        _code.exact.solve,
        supports=_joint,
        limits=f"at most {_EXACT_STEPS:,.0f} pairs of stage and layer; with an all-reduce {JOINT_LAYERS:,} layers",
        effort=lambda instance: 2000.0 * _stage_layers(instance),
    ),
    declarative(
        _code.models.cpsat,
        "order-encoded cuts, CP-SAT",
        VOCABULARY,
        supports=_cpsat,
        limits=f"at most {_PATH_PAIRS:,} pairs of stage and layer; with an all-reduce or requirements "
        f"{_MODEL_BOOLEANS:,}",
        effort=lambda instance: 1e5 * _stage_layers(instance),
    ),
    declarative(
        _code.models.milp,
        "path of stages, Pyomo and HiGHS",
        VOCABULARY,
        supports=_milp,
        limits=f"at most {_PATH_PAIRS:,} pairs of stage and layer; with an all-reduce or requirements {_MODEL_ARCS:,} "
        "arcs: half of stages times layers squared",
        effort=lambda instance: 1e5 * _arcs(instance),
    ),
    heuristic("uniform", "the same number of layers everywhere", _code.paper.solve_uniform),
    heuristic(
        "megatron",
        "equal blocks split evenly, head and tail at the ends (AMP, Tables 6 and 8)",
        _code.paper.solve_megatron,
    ),
    heuristic(
        "parameters",
        "stages balanced by parameters",
        _code.paper.solve_parameters,
        supports=lambda instance: None if instance.parameters else "the layers' parameters are unknown",
        limits="instances whose layers declare their parameters",
    ),
)
