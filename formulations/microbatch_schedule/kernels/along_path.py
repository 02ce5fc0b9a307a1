"""The least end of the passes of a few stages, over the sets of passes that may have begun: a relaxed decision diagram.

`along_path` says why it is a bound.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats, Floats2, Ints, Ints2
from formulations.compiled.numba_kernels import FLOAT, INT, SHORTS, compile_kernels, kernel


class Lines(NamedTuple):
    """The passes of a few stages: a line for each kind of a stage, with m passes that begin in turn.

    Sets are of passes that have begun, without whole micro-batches: set 0 is empty, and is all of them at the end.

    Parameters
    ----------
    begun
        Passes of each line in each set, at least one of them 0, shape (N, S).
    first, line, to
        The steps from set i, ``first[i]`` to ``first[i + 1] - 1``: the line whose next pass begins, and the next set.
    device, seconds, reach
        Of a line: its device, the seconds of a pass, and the longest message from it; shapes (S,).
    waits, giver, room, message
        What a pass of line q waits for, ``waits[q]`` to ``waits[q + 1] - 1``: the pass of line ``giver`` that is
        ``room`` before its own number, and seconds from the end of that.
    head, tail
        Seconds before the start and after the end of each pass, shapes (S, m).
    drain
        Seconds after the last pass of each device, at least, shape (D,).
    """

    begun: Ints2
    first: Ints
    line: Ints
    to: Ints
    device: Ints
    seconds: Floats
    reach: Floats
    waits: Ints
    giver: Ints
    room: Ints
    message: Floats
    head: Floats2
    tail: Floats2
    drain: Floats


@kernel(Lines, FLOAT, INT, SHORTS, SHORTS)
def least_end(lines: Any, most: Any, width: Any, before: Any, begins: Any) -> Any:
    """No schedule ends earlier than this, unless ``most`` is less; and the last state, or -1.

    Parameters
    ----------
    most
        Seconds of some schedule.
    width
        States that are kept of a set.
    before, begins
        Output: the state before each state, and the line whose pass it begins; as long as states may be counted. If
        there are more the bound is 0.
    """
    begun, first, line, to, device = lines.begun, lines.first, lines.line, lines.to, lines.device
    seconds, reach, waits, giver, room = lines.seconds, lines.reach, lines.waits, lines.giver, lines.room
    (sets, S), m, D = begun.shape, lines.head.shape[1], len(lines.drain)
    # A state: the ends of the last pass of each line, and when the last pass began.
    states, names, size = np.zeros((sets, width, S + 1)), np.zeros((sets, width), np.int64), np.zeros(sets, np.int64)
    passes = np.empty(sets, np.int64)
    for i in range(sets):
        passes[i] = begun[i].sum()
    turn = np.argsort(passes % S)  # a step adds a pass: the sets of a round come after one another
    round_ = np.searchsorted((passes % S)[turn], np.arange(S + 1))
    size[0], named, starts, new = 1, 1, np.empty(S), np.empty(S + 1)
    free, left, after = np.empty(D), np.empty(D), np.empty(D)
    for count in range(S * m):
        for a in range(round_[(count + 1) % S], round_[(count + 1) % S + 1]):
            size[turn[a]] = 0
        for a in range(round_[count % S], round_[count % S + 1]):
            i = turn[a]
            done = (count - passes[i]) // S
            left[:] = 0.0
            for q in range(S):
                left[device[q]] += (m - done - begun[i, q]) * seconds[q]
            for number in range(size[i]):
                ends = states[i, number]
                free[:] = ends[S]
                for q in range(S):
                    free[device[q]] = max(free[device[q]], ends[q])
                for e in range(first[i], first[i + 1]):
                    q = line[e]
                    n = begun[i, q] + done
                    starts[q] = np.inf
                    if n < m:
                        starts[q] = max(free[device[q]], lines.head[q, n])
                        for w in range(waits[q], waits[q + 1]):
                            if begun[i, giver[w]] + done == n + 1 - room[w]:  # else one began after it: no wait
                                starts[q] = max(starts[q], ends[giver[w]] + lines.message[w])
                for e in range(first[i], first[i + 1]):
                    q = line[e]
                    start, end = starts[q], starts[q] + seconds[q]
                    if start == np.inf or end + lines.tail[q, begun[i, q] + done] >= most:
                        continue
                    fits = True
                    for f in range(first[i], first[i + 1]):
                        p = line[f]
                        if p != q and device[p] == device[q] and starts[p] + seconds[p] <= start:
                            fits = False
                    after[:] = start
                    for p in range(S):
                        new[p] = ends[p] if begun[i, p] + done == m else max(ends[p], start - reach[p])
                        after[device[p]] = max(after[device[p]], ends[p])
                    new[q], new[S], after[device[q]] = end, start, end
                    for d in range(D):
                        rest = left[d] - (seconds[q] if d == device[q] else 0.0)
                        if rest > 0 and after[d] + rest + lines.drain[d] >= most:
                            fits = False
                    if not fits:
                        continue
                    j = to[e]
                    kept, nearest, apart = 0, 0, np.inf
                    for other in range(size[j]):
                        known = states[j, other]
                        is_less, is_more, far = True, True, 0.0
                        for p in range(S + 1):
                            is_less = is_less and known[p] <= new[p]
                            is_more = is_more and known[p] >= new[p]
                            far += abs(known[p] - new[p])
                        if is_less:
                            fits = False
                            break
                        if not is_more:
                            if far < apart:
                                nearest, apart = kept, far
                            states[j, kept] = known
                            names[j, kept] = names[j, other]
                            kept += 1
                    if not fits:
                        continue
                    if named == len(before):
                        return 0.0, -1
                    if kept < width:
                        states[j, kept] = new
                        nearest = kept
                        kept += 1
                    else:
                        states[j, nearest] = np.minimum(states[j, nearest], new)
                    names[j, nearest] = named
                    before[named], begins[named] = names[i, number], q
                    named += 1
                    size[j] = kept
    best, last = most, -1
    for number in range(size[0]):
        ends, end = states[0, number], 0.0
        for q in range(S):
            end = max(end, ends[q] + lines.tail[q, m - 1])
        if end < best:
            best, last = end, names[0, number]
    return best, last


compile_kernels()
