"""Brute force for mesh tiling; shares no code with the room."""

import random
from collections.abc import Iterator
from itertools import pairwise, permutations

from instances.problems.mesh_tiling import MeshInstance

Cover = list[tuple[int, int, int, int]]


def covers(instance: MeshInstance) -> Iterator[Cover]:
    """All exact covers, as (row, column, rows, columns)."""
    width = len(instance.intra_bytes_per_s)
    shapes = {(instance.tp_degree, instance.dp_degree), (instance.dp_degree, instance.tp_degree)}

    def lay(free: frozenset[tuple[int, int]], laid: Cover) -> Iterator[Cover]:
        if not free:
            yield laid
            return
        row, column = min(free)
        for rows, columns in shapes:
            cells = {(row + r, column + c) for r in range(rows) for c in range(columns)}
            if cells <= free:
                yield from lay(free - cells, [*laid, (row, column, rows, columns)])

    yield from lay(frozenset((row, column) for row in range(instance.rows) for column in range(width)), [])


def step_seconds(instance: MeshInstance, cover: Cover) -> float:
    """The objective, once more, with the stages in the order of the cover."""
    t, d = instance.tp_degree, instance.dp_degree

    def link(a: int, b: int) -> float:
        inter = instance.inter_bytes_per_s
        return instance.intra_bytes_per_s[a] if a == b else min(inter[a], inter[b])

    def node(tile: tuple[int, int, int, int], m: int, r: int) -> int:
        return tile[1] + (r if tile[2] == t else m)

    def ring(nodes: list[int], volume: float) -> float:
        n = len(nodes)
        return max(2 * (n - 1) * volume / n / link(nodes[i], nodes[(i + 1) % n]) for i in range(n)) if n > 1 else 0

    times, syncs = [], []
    for tile in cover:
        times.append(
            instance.compute_s + max(ring([node(tile, m, r) for m in range(t)], instance.tp_bytes) for r in range(d))
        )
        syncs.append(max(ring([node(tile, m, r) for r in range(d)], instance.dp_bytes) for m in range(t)))
    sending = 0
    for here, there in pairwise(cover) if instance.ordered else ():
        for r in range(d):
            links = [link(node(here, m, r), node(there, m, r)) for m in range(t)]
            sending += instance.stage_bytes / min(links) / d
    return (instance.num_microbatches - 1) * max(times) + sum(times) + max(syncs) + sending


def optimum(instance: MeshInstance) -> float | None:
    """The least objective; ``None`` if there is no cover."""
    best = None
    for cover in covers(instance):
        for order in permutations(cover) if instance.ordered else [cover]:
            value = step_seconds(instance, list(order))
            best = value if best is None else min(best, value)
    return best


def random_magnitudes(rng: random.Random) -> MeshInstance:
    """Small meshes of tiles with two devices or more, with bandwidths and volumes of very different sizes."""
    while True:
        rows, columns, t, d = (rng.randint(1, 5) for _ in range(4))
        area = t * d
        if rows * columns <= 12 and area > 1 and rows * columns // area <= 5 and (rows * columns % area == 0):
            break
    scale = 10.0 ** rng.choice([-3, 0, 6])
    spread = rng.choice([0, 1, 3])

    def size() -> float:
        return rng.choice([0, 1, 2, 3, 7, 15]) * scale * 10.0 ** rng.randint(-spread, spread)

    def bandwidths() -> tuple[float, ...]:
        return tuple(size() or scale for _ in range(columns))

    return MeshInstance(
        "magnitudes",
        rows,
        bandwidths(),
        bandwidths(),
        t,
        d,
        num_microbatches=rng.choice([1, 2, 8, 64]),
        compute_s=rng.choice([0.0, 0.0, 1.0, 30.0]),
        tp_bytes=size(),
        dp_bytes=size(),
        stage_bytes=size(),
        ordered=rng.random() < 0.7,
    )


def plans(instance: MeshInstance) -> Iterator[dict[str, list[dict[str, int]]]]:
    """All exact covers with all orders of their stages, in JSON form."""
    names = ("row", "column", "rows", "columns")
    for cover in covers(instance):
        for order in permutations(cover):
            yield {"tiles": [{"stage": j, **dict(zip(names, tile, strict=True))} for j, tile in enumerate(order)]}
