"""The methods of device mapping: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.definition.settings import Instance
from instances.parameters import Setting, choice, parse_amount, parse_count, parse_search_timeout, within
from solvers.outcome import Limits

_code = lazy("formulations.device_mapping")

#: Up to so many devices a proof is fast enough to be searched for by default.
_PROVED_DEVICES = 32

#: A larger MILP takes too long to build.
_MILP_ARCS = 100_000


def choose(instance: Instance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """Bounds, annealing and models together; annealing alone on large networks unless a proof is required."""
    if exact or instance.num_devices <= _PROVED_DEVICES:
        return "exact", f"{instance.num_devices} devices: bounds, annealing and models together"
    return "anneal", f"{instance.num_devices} devices: annealing alone"


def _index_rings(instance: Instance) -> str | None:
    if instance.objective == "full" and instance.ring == "free" and instance.replicas > 3:
        return "it searches rings by replica number only, and free rings are declared"
    return None


def _milp_arcs(instance: Instance) -> int:
    links = len(instance.edges) * instance.replicas + instance.num_devices
    return links * instance.num_devices**2


def _fits_milp(instance: Instance) -> str | None:
    arcs = _milp_arcs(instance)
    return f"{arcs} arcs; expected at most {_MILP_ARCS}" if arcs > _MILP_ARCS else None


_TARGETS = Setting(
    "targets", parse_count, "number of targets that are searched at a time", metavar="N", default="the threads"
)
#: The text names neither order (`paper.ORDERS`, `paper.DEVICE_ORDERS`).
_ORDERS = (
    choice(
        "order",
        ("auto", "replica-major", "stage-major", "longest-ring-first"),
        "which stage replica a search assigns next; auto: stage-major where rings count, else replica-major",
        default="auto",
    ),
    choice(
        "device-order",
        ("adjacent", "number"),
        "which device a search tries first: the fastest link to the node before, or the least number",
        default="adjacent",
    ),
)

METHODS: tuple[Method[Instance, Mapping], ...] = (
    heuristic(
        "consecutive",
        "Parmesan, section 7: consecutive mapping, the replicas of a stage together",
        _code.annealing.baselines.solve_consecutive,
    ),
    heuristic(
        "consecutive-pipeline-first",
        "Parmesan, section 7: p2p-first, the stages of a replica together",
        _code.annealing.baselines.solve_pipeline_first,
    ),
    *(
        heuristic(f"{policy}-first", f"DAPPLE, {policy} first: {says}", solve)
        for policy, says, solve in (
            ("fresh", "a stage begins on unused machines", _code.annealing.policies.solve_fresh_first),
            ("append", "a stage fills the machines in use", _code.annealing.policies.solve_append_first),
            ("scatter", "a stage takes of all machines in use in turn", _code.annealing.policies.solve_scatter_first),
        )
    ),
    heuristic(
        "random",
        "Parmesan, section 5.2: the best of some random mappings",
        _code.annealing.baselines.solve_random,
        options=(Setting("mappings", parse_count, "number of random mappings", metavar="N", default="100"),),
    ),
    heuristic(
        "parmesan",
        "Parmesan, Algorithms 1 and 2, with batches of targets and timeouts",
        _code.paper.solve,
        options=(
            Setting(
                "search-timeout",
                parse_search_timeout,
                "time limit of one search, or none",
                metavar="SECONDS|none",
                default="5",
            ),
            Setting(
                "search-devices",
                within(parse_amount, 1.0),
                "a search is cut off after so many devices tried, too",
                metavar="N",
                default="no limit",
            ),
            _TARGETS,
            *_ORDERS,
        ),
        threads=True,
    ),
    exact(
        "parmesan-no-timeout",
        "Parmesan, Algorithms 1 and 2 as Appendix A.3 proves them optimal: every search comes to its end",
        _code.paper.solve_without_timeout,
        supports=_index_rings,
        limits="all but free rings of more than three replicas under the full objective",
        options=(_TARGETS, *_ORDERS),
        threads=True,
    ),
    heuristic(
        "anneal",
        "swaps of devices towards falling targets (compiled)",
        _code.annealing.near.solve,
        options=(
            Setting(
                "levels",
                parse_count,
                "number of rounds, each with four times the effort of the last",
                metavar="N",
                default="4",
            ),
        ),
        threads=True,
    ),
    heuristic(
        "bounds",
        "bottleneck assignment, arc consistency, cores and components, groups (its plan is consecutive)",
        _code.models.all_bounds.solve,
        threads=True,
    ),
    exact(
        "exact",
        "bounds, annealing and CP-SAT models of targets, until the best plan meets the best bound",
        _code.exact.solve,
        effort=lambda instance: 1e6 * instance.num_devices,
        threads=True,
    ),
    declarative(
        _code.models.cpsat,
        "devices of stage replicas and classes of bandwidth, CP-SAT",
        VOCABULARY,
        effort=lambda instance: 1e6 * instance.num_devices,
    ),
    declarative(
        _code.models.milp,
        "places of stage replicas and classes of bandwidth, by targets beyond a few devices, Pyomo and HiGHS",
        VOCABULARY,
        supports=_fits_milp,
        limits=f"at most {_MILP_ARCS:,} arcs: links of replicas and devices, times devices squared",
        effort=lambda instance: 1e4 * _milp_arcs(instance),
    ),
)
