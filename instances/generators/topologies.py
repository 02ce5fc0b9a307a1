"""Bandwidths between devices: clusters of machines, grids, and random networks, in bytes per second.

Every matrix is symmetric with zeros on its diagonal; the same arguments give the same matrix.

Source: Parmesan, section 7 and Figure 2. Its appendix with the numbers is not public: sizes and speeds are
reconstructed, with published figures of the machines where there are any.
"""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

Matrix = tuple[tuple[float, ...], ...]

GB = 1e9
#: Two devices of a machine with PCIe, and two machines, in the two-level cluster.
PCIE, ETHERNET_SLOW = 12 * GB, 1.5 * GB
#: NVLink pairs of a DGX-1 with V100s by the number of their links; all other pairs go over PCIe.
DOUBLE_LINKS = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
SINGLE_LINKS = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
NVLINK, DGX_PCIE, ETHERNET = 24 * GB, 10 * GB, 2.5 * GB
#: One link of a grid; over h links h times less.
GRID_LINK = 10 * GB
#: Devices of a block in the first random network.
BLOCK = 8


def from_function(devices: int, bandwidth: Callable[[int, int], float]) -> Matrix:
    """The symmetric matrix of ``bandwidth(a, b)``, which is called for a < b in lexicographic order."""
    rows = [[0.0] * devices for _ in range(devices)]
    for a in range(devices):
        for b in range(a + 1, devices):
            rows[a][b] = rows[b][a] = bandwidth(a, b)
    return tuple(tuple(row) for row in rows)


def two_level(devices: int, per_node: int = 4, intra: float = PCIE, inter: float = ETHERNET_SLOW) -> Matrix:
    """Machines of ``per_node`` devices: one bandwidth inside a machine, a lower one between machines."""
    if devices % per_node:
        raise ValueError(f"{devices} devices do not fill machines of {per_node}")
    return from_function(devices, lambda a, b: intra if a // per_node == b // per_node else inter)


def dgx1(devices: int) -> Matrix:
    """DGX-1 machines with eight V100s in a hybrid cube mesh; the last machine may be used in part."""
    links = dict.fromkeys(DOUBLE_LINKS, 2 * NVLINK) | dict.fromkeys(SINGLE_LINKS, NVLINK)

    def bandwidth(a: int, b: int) -> float:
        return links.get((a % 8, b % 8), DGX_PCIE) if a // 8 == b // 8 else ETHERNET

    return from_function(devices, bandwidth)


def grid(devices: int, sides: Sequence[int], torus: bool) -> Matrix:
    """A mesh or torus with these sides: a link's bandwidth divided by the links between two devices.

    Devices are numbered with the last side running fastest.
    """
    if math.prod(sides) != devices:
        raise ValueError(f"{devices} devices do not fill a grid of {'x'.join(map(str, sides))}")

    def hops(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        distances = (abs(x - y) for x, y in zip(a, b, strict=True))
        if not torus:
            return sum(distances)
        return sum(min(d, side - d) for d, side in zip(distances, sides, strict=True))

    places = list(itertools.product(*map(range, sides)))
    return from_function(devices, lambda a, b: GRID_LINK / hops(places[a], places[b]))


def squarest(devices: int, dimensions: int) -> tuple[int, ...]:
    """The sides of the grid with the least difference between its longest and shortest side, ascending.

    >>> squarest(64, 2), squarest(64, 3), squarest(12, 2)
    ((8, 8), (4, 4, 4), (3, 4))
    """

    def factorise(rest: int, parts: int, least: int) -> list[tuple[int, ...]]:
        if parts == 1:
            return [(rest,)]
        firsts = [side for side in range(least, rest + 1) if side**parts <= rest and rest % side == 0]
        return [(side, *more) for side in firsts for more in factorise(rest // side, parts - 1, side)]

    return min(factorise(devices, dimensions, 1), key=lambda sides: sides[-1] - sides[0])


def random_blocks(devices: int, seed: int, block_of: Sequence[int]) -> Matrix:
    """Fast inside blocks; between two blocks a bandwidth of their own, 10 % up or down for each pair of devices."""
    rng = random.Random(f"blocks {devices} {seed}")
    between = from_function(max(block_of) + 1, lambda _a, _b: rng.uniform(0.5, 2.5))

    def bandwidth(a: int, b: int) -> float:
        if block_of[a] == block_of[b]:
            return rng.uniform(5, 15) * GB
        return between[block_of[a]][block_of[b]] * rng.uniform(0.9, 1.1) * GB

    return from_function(devices, bandwidth)


def random_blk_1(devices: int, seed: int = 0, block: int = BLOCK) -> Matrix:
    """Blocks of the same size with devices numbered block by block."""
    return random_blocks(devices, seed, [device // block for device in range(devices)])


def random_blk_2(devices: int, seed: int = 0) -> Matrix:
    """Blocks of 2 to 16 devices that are numbered at random, so that numbers say nothing about blocks."""
    rng = random.Random(f"sizes {devices} {seed}")
    block_of: list[int] = []
    while len(block_of) < devices:
        block = max(block_of, default=-1) + 1
        block_of += [block] * rng.randint(2, 16)
    block_of = block_of[:devices]
    rng.shuffle(block_of)
    return random_blocks(devices, seed, block_of)


def uniform_dist(devices: int, seed: int = 0) -> Matrix:
    """A bandwidth for each pair of devices, uniform between 0.1 and 10 GB/s."""
    rng = random.Random(f"uniform {devices} {seed}")
    return from_function(devices, lambda _a, _b: rng.uniform(0.1, 10) * GB)


def fig2(devices: int = 4) -> Matrix:
    """Two machines of two devices, three times as fast inside (Parmesan, Figure 2; the numbers are inferred)."""
    if devices != 4:
        raise ValueError("Figure 2 shows four devices")
    return two_level(4, 2, 3 * GB, 1 * GB)


def _grid(dimensions: int, torus: bool, devices: int, sides: Sequence[int] | None = None) -> Matrix:
    if sides is not None and len(sides) != dimensions:
        raise ValueError(f"{'x'.join(map(str, sides))} has not {dimensions} dimensions")
    return grid(devices, sides or squarest(devices, dimensions), torus)


#: Every kind: its generator by keyword (``devices`` and what ``ARGUMENTS`` names).
KINDS: Mapping[str, Callable[..., Matrix]] = {
    "two-level": two_level,
    "dgx1": dgx1,
    "mesh2d": partial(_grid, 2, False),
    "mesh3d": partial(_grid, 3, False),
    "torus2d": partial(_grid, 2, True),
    "torus3d": partial(_grid, 3, True),
    "random-blk-1": random_blk_1,
    "random-blk-2": random_blk_2,
    "uniform-dist": uniform_dist,
    "fig2": fig2,
}
#: What a kind takes beside the number of devices.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "two-level": ("per_node", "intra", "inter"),
    **dict.fromkeys(("mesh2d", "mesh3d", "torus2d", "torus3d"), ("sides",)),
    "random-blk-1": ("seed", "block"),
    "random-blk-2": ("seed",),
    "uniform-dist": ("seed",),
}


def topology(kind: str, devices: int, **given: Any) -> Matrix:
    """The matrix of a kind of network.

    ``given``: whatever any kind takes; values that this kind does not take must be ``None`` (the seed may be given
    always).
    `ValueError` if the kind does not exist, does not take a value, or has no network of so many devices.
    """
    if kind not in KINDS:
        raise ValueError(f"no topology {kind}; expected one of {', '.join(KINDS)}")
    taken = {name: value for name, value in given.items() if value is not None}
    for name in taken:
        if name not in ARGUMENTS.get(kind, ()) and name != "seed":
            raise ValueError(f"a {kind} takes no {name.replace('_', '-')}")
    return KINDS[kind](devices, **{name: taken[name] for name in ARGUMENTS.get(kind, ()) if name in taken})
