"""The methods of stage graph: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable
from functools import partial

from formulations.contract.family import Claim, Method, declarative, exact, heuristic, lazy, resolve
from formulations.contract.quantities import names
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.quantities import VOCABULARY
from formulations.stage_graph.models import warm_ups, warm_ups_too_many
from instances.parameters import Setting, one_of, parse_count, parse_flag
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Watch

_code = lazy("formulations.stage_graph")

#: Reachability of more operators takes too much memory.
_OPERATORS = 4_000

#: A larger CP-SAT model takes more than ten seconds to build.
_CPSAT_TERMS = 2e6

_WHOLE = "without tensor-parallel degrees"
_SHARES = "schedule uniform if they have tensor-parallel degrees"
_SHARED = f"at most {_OPERATORS:,} operators on identical devices (no device graph)"
_IDENTICAL = f"{_SHARED}, {_WHOLE}"
_PROVABLE = "with objective tps and schedule uniform"
_UNIFORM = f"{_IDENTICAL}, {_PROVABLE}"
_SHORTEST = "with objective iteration and schedule uniform"
_MODEL = f"instances whose model has at most {_CPSAT_TERMS:,.0f} terms, {_PROVABLE}"

#: Of more operators than this there are too many partitions with a size, or with devices, for each stage.
_FEW = 10

#: Up to so many operators all partitions are searched without counting upsets.
_SMALL = 14

#: On so many devices the shortest iteration of so few operators takes seconds: 3 at most of random ones.
_FEW_DEVICES = 8

#: Up to so many operators it pays to try to list all upsets.
_NARROW = 60


def choose(instance: StageGraph, limits: Limits, exact: bool) -> tuple[str, str]:
    """All partitions where the model is small, upsets where branches are chains, else these and CP-SAT."""
    operators = f"{instance.num_operators} operators"
    is_small = instance.num_operators <= _SMALL and instance.num_devices <= _FEW_DEVICES
    if _branched(instance) is None and (exact or limits.time_s is not None or is_small):
        return "branch-and-bound", f"{operators}: the shortest iteration, bounded by heads and all-reduces"
    if exact and _mixed(instance) is None:
        return "configurations", f"{operators}: all partitions, with the sizes of every stage"
    provable = _one_size(instance) is None
    if _whole(instance) is not None:
        if _levelled(instance) is None and fits_levels(instance, Watch(limits)):
            return "levels", f"{operators}, which devices may share: all partitions, level by level"
        return "cpsat" if provable else "cpsat-orders", f"{operators}, which devices may share"
    if provable and instance.device_graph is not None:
        return "cpsat", "devices are declared one by one"
    if provable and instance.num_operators > _SMALL and _identical(instance) is None and suits(instance) is None:
        return "exact" if exact else "downsets", "branches are chains: a recursion for plans, then bounds over upsets"
    if exact and provable and instance.num_operators <= _NARROW and fits_levels(instance, Watch(limits)):
        return "levels", f"{operators}: all partitions, level by level"
    if exact:
        return "exact", f"{operators}: compiled searches, then CP-SAT on what they leave open"
    if provable and instance.num_operators <= _SMALL and fits_levels(instance, Watch(limits)):
        return "levels", f"{operators}: all partitions, level by level"
    return "graphpipe-plus", f"{operators}: all partitions where they are few, else a series-parallel recursion"


def _reachable(instance: StageGraph) -> str | None:
    if instance.num_operators > _OPERATORS:
        return f"{instance.num_operators} operators; expected at most {_OPERATORS}"
    return None


def _whole(instance: StageGraph) -> str | None:
    """Whether every operator runs on one device of a replica."""
    if len(instance.tp_degrees) == 1:
        return None
    takers = "graphpipe, pipedream, piper-dp, levels, cpsat, cpsat-orders, milp-columns"
    return f"operators declare tensor-parallel degrees, for {takers} alone (--schedule uniform)"


def _planned(instance: StageGraph) -> str | None:
    return _reachable(instance) or _whole(instance)


def _recursive(instance: StageGraph) -> str | None:
    """One size for all stages, if devices share operators."""
    return _reachable(instance) or (None if instance.schedule == "uniform" else _whole(instance))


def _shared(instance: StageGraph) -> str | None:
    """Identical devices, that may share operators."""
    return _reachable(instance) or ("devices are declared one by one (device_graph)" if instance.device_graph else None)


def _identical(instance: StageGraph) -> str | None:
    return _shared(instance) or _whole(instance)


def _one_size(instance: StageGraph) -> str | None:
    if instance.objective != "tps":
        return "objective iteration; it proves the least time per sample only (--objective tps)"
    return _one_schedule(instance)


def _one_schedule(instance: StageGraph) -> str | None:
    if instance.schedule != "uniform":
        return f"schedule {instance.schedule}; it proves plans with one micro-batch size only (--schedule uniform)"
    return None


def _shortest(instance: StageGraph) -> str | None:
    """Whether the shortest iteration can be proved, if no devices share operators."""
    if instance.objective != "iteration":
        return "objective tps; it minimises a simulated iteration (--objective iteration)"
    return _one_schedule(instance) or _shared(instance)


def _mixed(instance: StageGraph) -> str | None:
    """A size for each stage, of so few operators that all partitions with all sizes are searched."""
    if instance.schedule == "uniform":
        return "schedule uniform; it searches a size for each stage (--schedule per-stage)"
    if instance.objective != "tps":
        return "objective iteration; it proves the least time per sample only (--objective tps)"
    if instance.num_operators > _FEW:
        return f"{instance.num_operators} operators; expected at most {_FEW}"
    return _identical(instance)


def _few_on_graph(instance: StageGraph) -> str | None:
    """A device graph and a model so small that all partitions on all of its devices are searched."""
    if instance.device_graph is None:
        return "identical devices; it searches those of a device_graph"
    if instance.num_operators > _FEW or instance.num_devices > _FEW_DEVICES:
        size = f"{instance.num_operators} operators on {instance.num_devices} devices"
        return f"{size}; expected at most {_FEW} on {_FEW_DEVICES}"
    return _one_size(instance)


def _fits_cpsat(instance: StageGraph) -> str | None:
    """One micro-batch size, and a model that can be built in seconds."""
    return _one_size(instance) or _fits_terms(instance)


def _fits_terms(instance: StageGraph) -> str | None:
    terms = _cpsat_terms(instance)
    return f"a model of {terms:g} terms; expected at most {_CPSAT_TERMS:g}" if terms > _CPSAT_TERMS else None


def _fits_exact(instance: StageGraph) -> str | None:
    return _one_size(instance) or (_identical(instance) if instance.device_graph is None else _fits_cpsat(instance))


def _states_passes(instance: StageGraph) -> str | None:
    """The shortest iteration, in a model of partitions that can be built in seconds."""
    return _shortest(instance) or _fits_terms(instance)


def _branched(instance: StageGraph) -> str | None:
    return _shortest(instance) or _whole(instance)


def _cpsat_terms(instance: StageGraph) -> int:
    """Terms of the rows on partition, depths and times; those on memory are left out where they cannot bind."""
    operators, edges = instance.num_operators, len(instance.edges)
    slots = min(operators, instance.num_devices)
    degrees = sum(min(instance.num_devices // t, instance.minibatch) for t in instance.tp_degrees)
    depths = min(slots, instance.minibatch)
    return slots * (6 * operators + 4 * edges + 2 * depths * operators + degrees * (operators + edges))


def _uniform(instance: StageGraph) -> str | None:
    return _one_size(instance) or _identical(instance)


def _levelled(instance: StageGraph) -> str | None:
    return _one_size(instance) or _shared(instance)


def _effort(power: float) -> Callable[[StageGraph], float]:
    return lambda instance: instance.num_operators**power * instance.num_devices**3


_ANY_DEGREE = Setting("any-degree", parse_flag, "allow data-parallel degrees that are not powers of two", is_flag=True)
_RANK = Setting(
    "rank",
    one_of("in-flight", "memory"),
    "which plan of a part is kept: of fewest samples in flight (section 5), or of least peak memory",
    metavar="in-flight|memory",
    default="in-flight",
)

suits = _code.downsets.suits

fits_levels = _code.upsets.levels.fits

#: What `choose` calls.
CHOOSES_BY = (suits, fits_levels)

#: A heuristic, whatever the devices, the schedule and the objective.
_heuristic = partial(
    Method[StageGraph, StagePlan],
    claim=Claim.HEURISTIC,
    supports=_planned,
    limits=f"at most {_OPERATORS:,} operators, {_WHOLE}",
)

#: One that takes devices which share operators, if all stages have one size.
_recursion = partial(_heuristic, supports=_recursive, limits=f"at most {_OPERATORS:,} operators, {_SHARES}")

METHODS: tuple[Method[StageGraph, StagePlan], ...] = (
    _recursion(
        name="graphpipe",
        source="GraphPipe, Algorithm 1 in its default configuration",
        solve=_code.paper.graphpipe.solve_graphpipe,
        prepare=partial(resolve, _code.paper.per_stage.PerStage),
        effort=_effort(2),
        options=(
            _ANY_DEGREE,
            _RANK,
            Setting(
                "terminals",
                one_of("branch", "series"),
                "where an operator at a fork or join may belong: to one branch, or to the series alone",
                metavar="branch|series",
                default="branch",
            ),
        ),
    ),
    _heuristic(
        name="graphpipe-plus",
        source="all partitions of small models, else the recursion with stages that reach into branches",
        solve=_code.paper.fewest_devices.solve,
        effort=_effort(2),
    ),
    _recursion(
        name="pipedream",
        source="PipeDream as GraphPipe, section 7.1, describes it: a chain of all operators",
        solve=_code.paper.graphpipe.solve_pipedream,
        effort=_effort(2),
        options=(_ANY_DEGREE, _RANK),
    ),
    _recursion(
        name="piper-dp",
        source="Piper with data parallelism only: chains of downsets, chains of operators merged if there are too many",
        solve=_code.paper.baselines.solve,
        effort=_effort(4),
        options=(
            _ANY_DEGREE,
            Setting(
                "merge",
                parse_count,
                "operators of a chain that are merged into one",
                metavar="N",
                default="as few as fit",
            ),
        ),
        only_at_end=True,
    ),
    _heuristic(name="data-parallel", source="a single stage", solve=_code.paper.graphpipe.solve_data_parallel),
    exact(
        "levels",
        "all partitions, level by level of upsets",
        _code.upsets.levels.solve,
        honours=frozenset({"microbatch"}),
        supports=_levelled,
        limits=f"{_SHARED}, {_PROVABLE}",
        effort=lambda instance: 3.0 ** min(instance.num_operators, 600) * instance.num_devices,
        only_at_end=True,
    ),
    exact(
        "configurations",
        "all partitions of small models, with a micro-batch size and a k of every stage",
        _code.upsets.configurations.solve,
        supports=_mixed,
        limits=f"at most {_FEW} operators on identical devices, {_WHOLE}, objective tps, schedule per-stage or kfkb",
        effort=lambda instance: 3.0 ** min(instance.num_operators, 600) * len(instance.microbatch_sizes) ** 3,
    ),
    exact(
        "device-sets",
        "all partitions of small models, and all devices of a device graph that their stages can have",
        _code.upsets.device_sets.solve,
        supports=_few_on_graph,
        limits=f"at most {_FEW} operators on a device graph of at most {_FEW_DEVICES} devices, {_PROVABLE}",
        effort=lambda instance: 3.0 ** min(instance.num_operators, 600) * 2.0 ** min(instance.num_devices, 600),
    ),
    heuristic(
        "downsets",
        "graphpipe-plus with a bound, mostly a proof, by upsets of equal branches; levels if no chains",
        _code.downsets.solve_downsets,
        honours=frozenset({"microbatch"}),
        supports=_uniform,
        limits=_UNIFORM,
        effort=_effort(4),
        threads=True,
    ),
    exact(
        "exact",
        "levels or downsets, then cpsat on what they leave open",
        _code.exact.solve,
        honours=frozenset({"microbatch"}),
        supports=_fits_exact,
        limits=f"{_UNIFORM}; with a device graph {_MODEL}",
        effort=_effort(4),
        threads=True,
    ),
    exact(
        "branch-and-bound",
        "all partitions whose heads and all-reduces allow a shorter iteration, and the warm-ups of each",
        _code.iteration.search.solve,
        honours=names(VOCABULARY),
        supports=_branched,
        limits=f"{_IDENTICAL}, {_SHORTEST}",
        effort=_effort(4),
        threads=True,
    ),
    declarative(
        _code.models.cpsat,
        "CP-SAT: partition, devices, depth and memory, a model for each micro-batch size; device graphs as well",
        VOCABULARY,
        supports=_fits_cpsat,
        limits=_MODEL,
        effort=_effort(4),
    ),
    declarative(
        _code.models.cpsat_orders,
        "the same rows on partition and devices, and when each pass of 1F1B ends, in one CP-SAT model",
        VOCABULARY,
        supports=_states_passes,
        too_large=warm_ups_too_many,
        limits=f"{_SHARED}, {_SHORTEST}, a model of at most {_CPSAT_TERMS:,.0f} terms",
        effort=lambda instance: instance.num_operators**2 * warm_ups(instance),
    ),
    declarative(
        _code.models.milp_columns,
        "HiGHS: a column for each stage, depth and size",
        VOCABULARY,
        supports=_levelled,
        limits=f"{_SHARED}, {_PROVABLE}",
        effort=lambda instance: 3.0 ** min(instance.num_operators, 600) * instance.num_devices**2,
    ),
)
