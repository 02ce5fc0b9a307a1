"""The compiled recursion of ``per_stage``: a micro-batch size, and a k, of every stage.

s: state; d: devices; c and y: configurations, ascending by size, then k. A cell is (s, i, y, d): i samples in flight at
the stages behind s, whose configuration is y. Its rows are the better plan for each c of its first stages, by c.

Source: GraphPipe, Algorithms 1 and 2, with a table of the cells that are reached.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats, Floats2, Ints, Ints2, Ints3
from formulations.compiled.numba_kernels import FLAG, FLOAT, INT, STOPPED, ZERO, compile_kernels, inner, kernel
from formulations.stage_graph.kernels.program import Transitions, held_samples

_STAGE, _CHAIN, _SPLIT, _GROUP, _FORK = range(5)
#: The table has no room for another cell.
FULL = -2


class Stages(NamedTuple):
    """What stages take on ``degrees[g]``, and their configurations.

    ``base`` and ``kept`` as of ``program.StageCosts``; ``quick[stage, g]``: the sizes that are tried, -1 for none.
    ``work[s]``: seconds per sample of a state. ``micro[c]``: samples of a micro-batch; ``sizes[size]``: that and the
    mini-batch. ``block[c]``: k micro-batches; ``ahead[c, y]``: samples beyond those of stages behind.
    """

    degrees: Ints
    base: Floats
    kept: Floats
    work: Floats
    quick: Ints3
    sizes: Ints2
    micro: Ints
    block: Ints
    ahead: Ints2


class Cells(NamedTuple):
    """The table: ``keys`` hashed, -1 if free, with the rows ``start`` to ``end - 1`` of each cell;
    the last place is that of all cells that cannot keep the target.

    ``rows[r]``: configuration, samples in flight of the first stages, transition, g times configurations plus c of its
    stage (-1: none), and the rows of its parts (-1: none); ``memory[r]`` the peak. ``used``: rows, cells, transitions
    tried. ``open`` and ``open_memory`` are rows by c at each depth of the recursion.
    """

    keys: Ints
    start: Ints
    end: Ints
    rows: Ints2
    memory: Floats
    used: Ints
    open: Ints3
    open_memory: Floats2


@inner(counted=False, wraps=True, error_model="python")
def _slot(keys: Any, key: int) -> Any:
    """Where a cell is, or may be put."""
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & (len(keys) - 1)
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return slot


@inner(counted=False, error_model="python")
def _offer(cells: Any, depth: int, c: int, memory: float, flight: int, x: int, own: int, one: int, other: int) -> None:
    """Keep a plan if it is the better one of its configuration."""
    cells.used[2] += 1
    rows, best = cells.open, cells.open_memory[depth, c]
    if rows[depth, c, 1] < 0 or memory < best or (memory == best and flight < rows[depth, c, 1]):
        rows[depth, c, 0], rows[depth, c, 1], rows[depth, c, 2] = c, flight, x
        rows[depth, c, 3], rows[depth, c, 4], rows[depth, c, 5] = own, one, other
        cells.open_memory[depth, c] = memory


@inner(counted=False, error_model="python")
def _cell(
    moves: Any, stages: Any, cells: Any, target: float, memory: float, s: int, i: int, y: int, d: int, depth: int,
    flag: Any,
) -> Any:  # fmt: skip
    """The place of a cell in the table, which is filled with it and all that it needs; `FULL` or `STOPPED`."""
    count, degrees = len(stages.micro), stages.degrees
    samples = stages.sizes[0, 1]
    if stages.work[s] > d * target:
        return len(cells.keys)
    key = ((s * (samples + 1) + i) * (count + 1) + y) * cells.open.shape[0] + d
    slot = _slot(cells.keys, key)
    if cells.keys[slot] == key:
        return slot
    if flag[0]:
        return STOPPED
    for c in range(count):
        cells.open[depth, c, 1] = -1
    for x in range(moves.start[s], moves.start[s + 1]):
        a, b, what, own = moves.first[x], moves.second[x], moves.kind[x], moves.stage[x]
        splits = what == _CHAIN or what == _SPLIT or what == _FORK
        staged = what == _STAGE or what == _GROUP or what == _FORK
        alone = what == _CHAIN and b == 0
        for left in range(d if alone else 1 if splits else 0, d + 1 if alone else d if splits else 1):
            row, last = -1, 0
            if splits:
                at = _cell(moves, stages, cells, target, memory, a, i, y, left, depth + 1, flag)
                if at < 0:
                    return at
                row, last = cells.start[at], cells.end[at]
            if what == _SPLIT and row < last:
                at = _cell(moves, stages, cells, target, memory, b, i, y, d - left, depth + 1, flag)
                if at < 0:
                    return at
                for other in range(cells.start[at], cells.end[at]):
                    while row < last and cells.rows[row, 0] < cells.rows[other, 0]:
                        row += 1
                    if row < last and cells.rows[row, 0] == cells.rows[other, 0]:
                        flight = max(cells.rows[row, 1], cells.rows[other, 1])
                        peak = max(cells.memory[row], cells.memory[other])
                        _offer(cells, depth, cells.rows[row, 0], peak, flight, x, -1, row, other)
                continue
            for end in range(row, last):
                behind, after = (cells.rows[end, 1], cells.rows[end, 0]) if splits else (i, y)
                peak = cells.memory[end] if splits else 0.0
                if alone:
                    _offer(cells, depth, after, peak, behind, x, -1, end, -1)
                elif not staged:
                    at = _cell(moves, stages, cells, target, memory, b, behind, after, d - left, depth + 1, flag)
                    if at < 0:
                        return at
                    for other in range(cells.start[at], cells.end[at]):
                        found = max(peak, cells.memory[other])
                        _offer(cells, depth, cells.rows[other, 0], found, cells.rows[other, 1], x, -1, end, other)
                    continue
                for option in range(2 * len(degrees) if staged else 0):
                    g = option // 2
                    size, rest = stages.quick[own, g, option % 2], d - left - degrees[g]
                    if rest < 0:
                        break
                    blocks = count // len(stages.sizes) if size >= 0 else 0
                    for c in range(size * blocks, (size + 1) * blocks):
                        if stages.block[c] > samples:
                            break
                        kept = stages.block[c]
                        if after < count:
                            kept = max(kept, behind + stages.ahead[c, after])
                        in_flight = (kept + stages.micro[c] - 1) // stages.micro[c]
                        held = held_samples(stages.sizes[size], degrees[g], in_flight)
                        own_peak = stages.base[own] + held * stages.kept[own]
                        if own_peak > memory:
                            continue
                        kept, own_peak = min(in_flight * stages.micro[c], samples), max(peak, own_peak)
                        to = b if what == _FORK else a
                        if to == 0 or rest == 0:
                            if to == 0 and rest == 0:
                                _offer(cells, depth, c, own_peak, kept, x, g * count + c, end, -1)
                            continue
                        if what == _GROUP:
                            at = _cell(moves, stages, cells, target, memory, to, i, y, rest, depth + 1, flag)
                        else:
                            at = _cell(moves, stages, cells, target, memory, to, kept, c, rest, depth + 1, flag)
                        if at < 0:
                            return at
                        for other in range(cells.start[at], cells.end[at]):
                            found, flight = max(own_peak, cells.memory[other]), cells.rows[other, 1]
                            if what != _GROUP:
                                first = cells.rows[other, 0]
                                _offer(cells, depth, first, found, flight, x, g * count + c, end, other)
                            elif cells.rows[other, 0] == c:
                                _offer(cells, depth, c, found, max(kept, flight), x, g * count + c, end, other)
    return _close(cells, depth, key)


@inner(counted=False, error_model="python")
def _close(cells: Any, depth: int, key: int) -> Any:
    """Put the rows of a depth into the table, as a cell."""
    used, count = cells.used, cells.open.shape[1]
    if 2 * used[1] >= len(cells.keys) or used[0] + count > len(cells.rows):
        return FULL
    slot = _slot(cells.keys, key)
    cells.keys[slot], cells.start[slot] = key, used[0]
    for c in range(count):
        if cells.open[depth, c, 1] >= 0:
            for field in range(6):
                cells.rows[used[0], field] = cells.open[depth, c, field]
            cells.memory[used[0]] = cells.open_memory[depth, c]
            used[0] += 1
    cells.end[slot] = used[0]
    used[1] += 1
    return slot


@kernel(Transitions, Stages, Cells, FLOAT, FLOAT, INT, INT, FLAG, counted=False, error_model="python")
def cell(moves: Any, stages: Any, cells: Any, target: float, memory: float, s: int, d: int, flag: Any) -> Any:
    """The place in ``cells`` of state s on d devices with nothing behind it (y is the number of configurations)."""
    return _cell(moves, stages, cells, target, memory, s, ZERO, len(stages.micro), d, ZERO, flag)


compile_kernels()
