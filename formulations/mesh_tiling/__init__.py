"""Mesh tiling: an exact cover of a mesh of devices by one tile for each pipeline stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from formulations.family import Claim, Family, Method, OwnJson, Setting, lazy
from formulations.mesh_tiling.plans import plan_from_json, plan_to_json
from formulations.mesh_tiling.problem import TilingPlan, evaluate, violations
from instances.mesh_tiling import MeshInstance, check, to_json
from instances.parameters import parse_count, parse_flag
from solvers.outcome import Limits

_JSON = OwnJson("mesh_tiling", MeshInstance, "instances.readers.mesh_tiling_json:read")

_OVERRIDES = (
    Setting("tp-degree", parse_count, "tensor-parallel degree of every stage", metavar="T"),
    Setting("dp-degree", parse_count, "data-parallel degree of every stage", metavar="D"),
    Setting("ordered", parse_flag, "the order of the stages counts", is_flag=True),
)

#: Beyond these a model takes too long to build: places of tiles, and pairs of places (or of their kinds) where the
#: order counts.
_CPSAT_PLACES, _CPSAT_PAIRS, _MILP_PLACES, _MILP_PAIRS = 20_000, 20_000, 5_000, 3_000


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> MeshInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad."""
    instance = _JSON.read(content, where)
    changed = {name.replace("-", "_"): value for name, value in overrides.items()}
    return replace(instance, **changed, options={**instance.options, **overrides})


def describe(instance: MeshInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "mesh": f"{instance.rows} x {instance.columns}",
        "tile": f"{instance.tp_degree} x {instance.dp_degree}",
        "stages": instance.num_stages,
        "ordered": instance.ordered,
    }


def choose(instance: MeshInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """CP-SAT, unless its model is too large to build."""
    if exact or _cpsat_fits(instance) is None:
        return "cpsat", f"{_places(instance)} places of tiles"
    return "sa", f"{_places(instance)} places of tiles: the exact model is too large"


def _places(instance: MeshInstance) -> int:
    return (1 if instance.tp_degree == instance.dp_degree else 2) * instance.rows * instance.columns


def _kinds(instance: MeshInstance) -> int:
    return (1 if instance.tp_degree == instance.dp_degree else 2) * instance.columns


def _fits(
    most_places: int, most_pairs: int, paired: Callable[[MeshInstance], int]
) -> Callable[[MeshInstance], str | None]:
    def supports(instance: MeshInstance) -> str | None:
        places, pairs = _places(instance), paired(instance) ** 2
        if places > most_places:
            return f"{places} places of tiles; expected at most {most_places}"
        if instance.ordered and pairs > most_pairs:
            return f"{pairs} pairs to order; expected at most {most_pairs}"
        return None

    return supports


_cpsat_fits = _fits(_CPSAT_PLACES, _CPSAT_PAIRS, _kinds)

METHODS: tuple[Method[MeshInstance, TilingPlan], ...] = (
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="exact cover, the order as an Euler walk through kinds of tiles, CP-SAT",
        solve=lazy("formulations.mesh_tiling.cpsat:solve"),
        supports=_cpsat_fits,
        effort=lambda instance: 1e5 * (_places(instance) + (_kinds(instance) ** 2 if instance.ordered else 0)),
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="exact cover, the order by positions, Pyomo and HiGHS",
        solve=lazy("formulations.mesh_tiling.milp:solve"),
        supports=_fits(_MILP_PLACES, _MILP_PAIRS, _places),
        effort=lambda instance: 1e6 * _places(instance) ** (2 if instance.ordered else 1),
    ),
    Method(
        name="sa",
        claim=Claim.HEURISTIC,
        source="AMP, section 6.3, Algorithm 2 (its placements alone)",
        solve=lazy("formulations.mesh_tiling.paper:solve"),
        options=(Setting("iterations", parse_count, "random tilings", metavar="N", default="1000"),),
        effort=lambda instance: 1e6 * _places(instance),
    ),
)

FAMILY: Family[MeshInstance, TilingPlan] = Family(
    name="mesh_tiling",
    recognise=_JSON.recognise,
    read=read,
    overrides=_OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "s",
    methods=METHODS,
    choose=choose,
    describe=describe,
    picture=lazy("formulations.mesh_tiling.picture:svg"),
)
