"""Where devices stand, as far as their bandwidths tell: in machines, on a grid or torus, or not at all.

A matrix of bandwidths has no coordinates. Machines are groups in which all pairs of devices are clearly faster than any
pair of two groups; a grid is recognised by its fastest links, which join neighbours in row-major order.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

#: Links inside a machine are at least so many times as fast as those between machines.
_CLEARLY = 1.5
#: Machines stand so far apart, in steps of one device.
_GAP = 0.8


@dataclass(frozen=True)
class Standing:
    """For each device x, y (steps of one device) and the number of its machine; ``machines`` is 0 if none are known."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    machine: tuple[int, ...]
    machines: int


def device_places(bandwidth: Sequence[Sequence[float]]) -> Standing | None:
    """Places for the devices of a symmetric matrix; ``None``: it shows none.

    >>> fast, slow = 4.0, 1.0
    >>> one, other = [[0, fast, slow, slow], [fast, 0, slow, slow]], [[slow, slow, 0, fast], [slow, slow, fast, 0]]
    >>> found = device_places([*one, *other])
    >>> found.machine if found else None
    (0, 0, 1, 1)
    """
    matrix = np.array(bandwidth, dtype=float)
    return _on_grid(matrix) or _in_machines(matrix)


def _in_machines(matrix: np.ndarray) -> Standing | None:
    """Groups that are cliques above a gap between bandwidths, the widest such gap first."""
    count = len(matrix)
    speeds = np.unique(matrix[np.triu_indices(count, 1)])
    if len(speeds) < 2:
        return None
    ratios = speeds[1:] / np.maximum(speeds[:-1], 1e-300)
    for place in np.argsort(-ratios)[:8]:
        if ratios[place] < _CLEARLY:
            break
        near = matrix >= speeds[place + 1]
        np.fill_diagonal(near, True)
        first = near.argmax(axis=1)
        if np.array_equal(near, first[:, None] == first[None, :]):
            return pack_machines([int(each) for each in np.unique(first, return_inverse=True)[1]])
    return None


def pack_machines(machine: list[int]) -> Standing:
    """Each machine a block of devices, the blocks in rows."""
    machines = max(machine) + 1
    largest = max(machine.count(each) for each in range(machines))
    wide = math.ceil(math.sqrt(largest))
    tall = math.ceil(largest / wide)
    across = min(range(1, machines + 1), key=lambda each: _ugliness(each, machines, wide, tall))
    seen = [0] * machines
    x, y = [], []
    for each in machine:
        row, column = divmod(seen[each], wide)
        seen[each] += 1
        x.append(each % across * (wide + _GAP) + column)
        y.append(each // across * (tall + _GAP) + row)
    return Standing(tuple(x), tuple(y), tuple(machine), machines)


def _ugliness(across: int, machines: int, wide: int, tall: int) -> float:
    """How far a block of machines is from one and a half times as wide as tall, and how much of it is empty."""
    down = math.ceil(machines / across)
    shape = across * (wide + _GAP) / (down * (tall + _GAP))
    return abs(math.log(shape / 1.5)) + (across * down / machines - 1)


def _on_grid(matrix: np.ndarray) -> Standing | None:
    """A mesh or torus of two or three dimensions, numbered with the last side running fastest."""
    count = len(matrix)
    if count < 4:
        return None
    near = matrix >= matrix.max() * (1 - 1e-9)
    np.fill_diagonal(near, False)
    links = int(near.sum()) // 2
    for sides in _sides(count):
        for torus in (False, True):
            pairs = _neighbours(sides, torus)
            if len(pairs) == links and all(near[a, b] for a, b in pairs):
                return _unroll(sides)
    return None


def _sides(count: int) -> Iterator[tuple[int, ...]]:
    divisors = [d for d in range(2, count) if count % d == 0]
    for first in divisors:
        yield first, count // first
    for first, second in product(divisors, divisors):
        if count % (first * second) == 0 and count // (first * second) > 1:
            yield first, second, count // (first * second)


def _neighbours(sides: tuple[int, ...], torus: bool) -> set[tuple[int, int]]:
    shape = np.arange(math.prod(sides)).reshape(sides)
    pairs = set()
    for axis, side in enumerate(sides):
        shifted = np.roll(shape, -1, axis)
        last = [slice(None)] * len(sides)
        if not torus or side == 2:
            last[axis] = slice(0, side - 1)
        pairs |= {
            (min(int(a), int(b)), max(int(a), int(b)))
            for a, b in zip(shape[tuple(last)].ravel(), shifted[tuple(last)].ravel(), strict=True)
        }
    return pairs


def _unroll(sides: tuple[int, ...]) -> Standing:
    """Rows and columns as they are numbered, the longer side across; a third dimension is planes side by side."""
    planes, rows, columns = sides if len(sides) == 3 else (1, *sides)
    flip = rows > columns
    x, y = [], []
    for plane, row, column in product(range(planes), range(rows), range(columns)):
        across, down = (row, column) if flip else (column, row)
        x.append(plane * (max(rows, columns) + _GAP) + across)
        y.append(float(down))
    return Standing(tuple(map(float, x)), tuple(y), (0,) * len(x), 0)
