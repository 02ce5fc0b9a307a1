"""The methods of mesh tiling: what they claim, where they come from, when they apply, and the choice."""

from collections.abc import Callable

from formulations.contract.family import Method, declarative, heuristic, lazy
from formulations.mesh_tiling.definition.plan import TilingPlan
from formulations.mesh_tiling.definition.quantities import VOCABULARY
from instances.parameters import Setting, parse_count
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Limits

_code = lazy("formulations.mesh_tiling")

#: Beyond these a model takes too long to build: places of tiles, and pairs of their kinds where the order counts.
_CPSAT_PLACES, _CPSAT_PAIRS, _MILP_PLACES, _MILP_PAIRS = 20_000, 20_000, 5_000, 3_000


def choose(instance: MeshInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """CP-SAT, unless its model is too large to build."""
    if exact or _cpsat_fits(instance) is None:
        return "cpsat", f"{_places(instance)} places of tiles: CP-SAT's model is small enough"
    return "sa", f"{_places(instance)} places of tiles: the exact model is too large"


def _places(instance: MeshInstance) -> int:
    return (1 if instance.tp_degree == instance.dp_degree else 2) * instance.rows * instance.columns


def _kinds(instance: MeshInstance) -> int:
    return (1 if instance.tp_degree == instance.dp_degree else 2) * instance.columns


def _fits(most_places: int, most_pairs: int) -> Callable[[MeshInstance], str | None]:
    def supports(instance: MeshInstance) -> str | None:
        places, pairs = _places(instance), _kinds(instance) ** 2
        if places > most_places:
            return f"{places} places of tiles; expected at most {most_places}"
        if instance.ordered and pairs > most_pairs:
            return f"{pairs} pairs to order; expected at most {most_pairs}"
        return None

    return supports


def _limits(most_places: int, most_pairs: int) -> str:
    return f"at most {most_places:,} places of tiles, and where the order counts {most_pairs:,} pairs of their kinds"


_cpsat_fits = _fits(_CPSAT_PLACES, _CPSAT_PAIRS)

METHODS: tuple[Method[MeshInstance, TilingPlan], ...] = (
    declarative(
        _code.models.cpsat,
        "exact cover, the order as an Euler walk through kinds of tiles, CP-SAT",
        VOCABULARY,
        supports=_cpsat_fits,
        limits=_limits(_CPSAT_PLACES, _CPSAT_PAIRS),
        effort=lambda instance: 1e5 * (_places(instance) + (_kinds(instance) ** 2 if instance.ordered else 0)),
    ),
    declarative(
        _code.models.milp,
        "exact cover, the order as an Euler walk with a flow to each kind, Pyomo and HiGHS",
        VOCABULARY,
        supports=_fits(_MILP_PLACES, _MILP_PAIRS),
        limits=_limits(_MILP_PLACES, _MILP_PAIRS),
        effort=lambda instance: 1e6 * (_places(instance) + (_kinds(instance) ** 3 if instance.ordered else 0)),
    ),
    heuristic(
        "sa",
        "AMP, section 6.3, Algorithm 2 (its placements alone)",
        _code.paper.solve,
        options=(Setting("iterations", parse_count, "number of random tilings", metavar="N", default="1000"),),
        effort=lambda instance: 1e6 * _places(instance),
    ),
)
