"""What may be in conflict in a mesh and its tiles, and what may repair it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.what_if import (
    Change,
    Member,
    More,
    one_requirement_less,
    requirement_members,
    rules_among,
    stage_rows,
    with_fewer_stages,
    without_requirements,
)
from formulations.mesh_tiling.definition.plan import TilingPlan
from formulations.mesh_tiling.definition.problem import tensor_s
from formulations.mesh_tiling.definition.quantities import OF_TILE
from instances.problems.mesh_tiling import MAX_DEVICES, MeshInstance


def members(instance: MeshInstance) -> tuple[Member, ...]:
    """The size of the tiles, and the requirements."""
    tile = f"{instance.tp_degree} x {instance.dp_degree} devices"
    text = f"tiles of {tile} cover {instance.columns} nodes of {instance.rows} devices exactly"
    return (Member("rule", "tiles", text), *requirement_members(instance))


def relax(instance: MeshInstance, dropped: frozenset[Member]) -> list[MeshInstance]:
    """Without the rule tiles may have any size, all the same."""
    kept = without_requirements(instance, dropped)
    if "tiles" not in rules_among(dropped):
        return [kept]
    if not kept.requirements:
        return [replace(kept, tp_degree=1, dp_degree=1)]
    devices = instance.rows * instance.columns
    sizes = [(tp, dp) for tp in range(1, devices + 1) for dp in range(1, devices // tp + 1) if devices % (tp * dp) == 0]
    found = [_resize(kept, tp_degree=tp, dp_degree=dp) for tp, dp in sizes]
    return [each for each in found if each is not None]


def _resize(instance: MeshInstance, **fields: Any) -> MeshInstance | None:
    """The instance with other sizes; ``None`` if a requirement on a stage that there is no more is not met."""
    changed = replace(instance, **fields)
    kept = with_fewer_stages(changed, changed.num_stages, frozenset(OF_TILE))
    return None if kept is None else replace(changed, requirements=kept)


def repairs(instance: MeshInstance, _: Sequence[int | str]) -> list[list[Change[MeshInstance]]]:
    """Another degree, more devices of a node, more nodes, a requirement less."""
    most = instance.rows * instance.columns
    found = [
        _degree(instance, "tp", "tp_degree", "a tensor-parallel degree of {}", most),
        _degree(instance, "dp", "dp_degree", "a data-parallel degree of {}", most),
        _larger(
            instance, "rows", "{} devices in each node", instance.rows, lambda mesh, rows: replace(mesh, rows=rows)
        ),
        _larger(instance, "nodes", "{} nodes, the further ones as the last", instance.columns, _with_nodes),
    ]
    return [[each] for each in (*found, *one_requirement_less(instance))]


def _degree(instance: MeshInstance, name: str, field: str, text: str, most: int) -> Change[MeshInstance]:
    """Another degree, the nearest first; times of stages then need a profile."""
    declared = getattr(instance, field)
    every = sorted(range(1, most + 1), key=lambda degree: abs(degree - declared))
    made = {degree: _resize(instance, **{field: degree}) for degree in every if degree != declared}
    return _in_turn(name, text, made, same_times=False)


def _larger(
    instance: MeshInstance, name: str, text: str, declared: int, grown: Callable[[MeshInstance, int], MeshInstance]
) -> Change[MeshInstance]:
    """More of what a mesh has, up to one more tile's worth: among so many numbers one is a multiple of a tile."""
    most = declared + instance.tp_degree * instance.dp_degree
    other = instance.rows * instance.columns // declared
    made = {count: grown(instance, count) for count in range(declared + 1, most + 1) if count * other <= MAX_DEVICES}
    untried = f"more than {text.format(most)}" if instance.requirements or len(made) < most - declared else ""
    return replace(_in_turn(name, text, made, same_times=True), untried=untried)


def _in_turn(
    name: str, text: str, made: Mapping[int, MeshInstance | None], *, same_times: bool
) -> Change[MeshInstance]:
    known = {amount: each for amount, each in made.items() if each is not None}
    says: Callable[[float], str] = lambda amount: text.format(int(amount))  # noqa: E731
    return Change(name, says, lambda amount: known[int(amount)], tuple(known), same_times=same_times, in_turn=True)


def _with_nodes(instance: MeshInstance, nodes: int) -> MeshInstance:
    more = nodes - instance.columns
    intra, inter = instance.intra_bytes_per_s, instance.inter_bytes_per_s
    return replace(
        instance, intra_bytes_per_s=(*intra, *(intra[-1],) * more), inter_bytes_per_s=(*inter, *(inter[-1],) * more)
    )


def resources(instance: MeshInstance) -> list[More[MeshInstance]]:
    """One more GB/s inside all nodes, and between them."""
    found = []
    for field, where in (("intra_bytes_per_s", "inside every node"), ("inter_bytes_per_s", "of every node to others")):
        change = Change(
            field.replace("_bytes_per_s", ""), lambda amount: f"{amount / 1e9:g} GB/s", _faster(instance, field)
        )
        found.append(More(change, f"one more GB/s {where}", 1e9))
    return found


def _faster(instance: MeshInstance, field: str) -> Callable[[float], MeshInstance]:
    """So much more on every link."""
    fields: Callable[[float], dict[str, Any]] = lambda amount: {  # noqa: E731
        field: tuple(link + amount for link in getattr(instance, field))
    }
    return lambda amount: replace(instance, **fields(amount))


def rows(instance: MeshInstance, plan: TilingPlan) -> list[dict[str, Any]]:
    """Time of every stage for a micro-batch."""
    tiles = sorted(plan.tiles, key=lambda tile: tile.stage)
    times = [tensor_s(instance, tile) for tile in tiles]
    return stage_rows(({"rows": tile.rows, "columns": tile.columns} for tile in tiles), "time_s", times)
