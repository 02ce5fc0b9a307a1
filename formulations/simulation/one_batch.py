"""When one batch ends under GPipe or 1F1B: `orders.replicated` and `iteration.simulate` in two loops, to the last bit.

A pass is a number: (F of stage s: s, B of it: p + s) times m, plus its micro-batch. The loops take lists, or arrays
where they are compiled.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import accumulate, chain
from typing import Any, NamedTuple

from formulations.simulation.simulate_chain import in_flight

#: More passes than these, 0.1 s in Python, are worth the import of compiled loops.
_MANY = 40_000


def write_passes(degrees, room, m, first, stage_of, counts, passes):  # type: ignore[no-untyped-def]
    """Write 1F1B in ``passes``, as they start where F takes d and B 2 d, with ``room[s]`` in flight on a replica.

    At each moment all that ends does so before anything starts. ``first[s]`` is the first replica of a stage,
    ``stage_of`` that of each replica; ``counts`` are zeros, as many as `_passes` says.
    """
    p, replicas = len(degrees), len(stage_of)
    longest = len(counts) - 2 * p * m - 9 * replicas
    # Of passes: whether they wait, 1, or have started, 2. Of kinds and replicas: how many wait, how many have started.
    state, counts = counts[: 2 * p * m], counts[2 * p * m :]
    waiting, begun, counts = counts[: 2 * replicas], counts[2 * replicas : 4 * replicas], counts[4 * replicas :]
    # Of replicas, from 1: what runs, and who ends at the same moment. How many are in flight, who may start a pass.
    running, link, counts = counts[:replicas], counts[replicas : 2 * replicas], counts[2 * replicas :]
    held, freed, ends = counts[:replicas], counts[replicas : 3 * replicas], counts[3 * replicas :]
    for j in range(m):
        state[j] = 1
        waiting[j % degrees[0]] += 1
    for r in range(degrees[0]):
        freed[r] = r
    now, at, touched = 0, 0, degrees[0]
    while True:
        for x in range(touched):
            r = freed[x]
            s = stage_of[r]
            kind = 1 if waiting[replicas + r] > 0 else 0
            n = kind * replicas + r
            if running[r] != 0 or waiting[n] == 0 or (kind == 0 and held[r] == room[s]):
                continue
            one = (kind * p + s) * m + r - first[s] + begun[n] * degrees[s]
            while state[one] == 2:
                begun[n] += 1
                one += degrees[s]
            while state[one] != 1:
                one += degrees[s]
            state[one] = 2
            waiting[n] -= 1
            held[r] += 1 - kind
            passes[at], running[r] = one, one + 1
            at += 1
            moment = (now + degrees[s] * (1 + kind)) % longest
            link[r], ends[moment] = ends[moment], r + 1
        if at == len(passes):
            return
        touched = 0
        while ends[now % longest] == 0:
            now += 1
        r, ends[now % longest] = ends[now % longest] - 1, 0
        while r >= 0:
            group, j = divmod(running[r] - 1, m)
            running[r], freed[touched] = 0, r
            touched += 1
            if group >= p:
                held[r] -= 1
            if group != p:  # B of the first stage
                # F goes on to the next stage, at the last one to its B; B to the stage before.
                after = group - 1 if group > p else group + 1 if group < p - 1 else 2 * p - 1
                s = after % p
                freed[touched] = first[s] + j % degrees[s]
                waiting[freed[touched] + (after // p) * replicas] += 1
                state[after * m + j] = 1
                touched += 1
            r = link[r] - 1


def run_passes(passes, degrees, m, first, starts, needs, seconds, end, free):  # type: ignore[no-untyped-def]
    """The end of the last of the passes; each comes after all that it waits for.

    The n-th of F and B of stages takes ``seconds[n]`` and waits for ``needs[starts[n]:starts[n + 1]]``. ``end`` of the
    passes and ``free`` of the replicas are zeros.
    """
    for each in passes:
        group, j = divmod(each, m)
        s = group % len(degrees)
        r = first[s] + j % degrees[s]
        at = free[r]
        for x in range(starts[group], starts[group + 1]):
            other = end[needs[x] * m + j]
            if other > at:
                at = other
        at += seconds[group]
        end[each], free[r] = at, at
    return max(free)


class Loops(NamedTuple):
    """Both loops, and what makes their sequences: of given numbers, and of so many equal ones."""

    write: Callable[..., None]
    run: Callable[..., float]
    array: Callable[[Any], Any]
    full: Callable[[int, float], Any]


_IN_PYTHON = Loops(write_passes, run_passes, list, lambda count, value: [value] * count)


def end_of_batch(
    schedule: str,
    degrees: Sequence[int],
    m: int,
    edges: Iterable[tuple[int, int]],
    steps: Sequence[float],
    loops: Loops | None = None,
) -> float:
    """When the last pass of m micro-batches ends, with one in ``steps`` on a replica of a stage, B two thirds of it.

    ``edges``: which stage hands to which later one. ``loops``: Python's, or of many passes compiled ones.
    """
    if len(set(degrees)) == 1:  # the first replica of each stage has the most micro-batches
        degrees, m = (1,) * len(degrees), -(-m // degrees[0])
    p = len(degrees)
    if loops is None:
        loops = import_module("formulations.simulation.kernels").COMPILED if 2 * p * m > _MANY else _IN_PYTHON
    pairs = list(edges)
    needs = [[s for s, t in pairs if t == stage] for stage in range(p)]
    needs += [[stage, *(p + t for s, t in pairs if s == stage)] for stage in range(p)]
    seconds = [step * share for share in (1 / 3, 2 / 3) for step in steps]
    lists = [0, *accumulate(map(len, needs))], [*chain.from_iterable(needs)], seconds
    passes, first = _passes(schedule, tuple(degrees), m, loops)
    end, free = loops.full(2 * p * m, 0.0), loops.full(sum(degrees), 0.0)
    return float(loops.run(passes, loops.array(degrees), m, first, *map(loops.array, lists), end, free))


@lru_cache(maxsize=4)
def _passes(schedule: str, degrees: tuple[int, ...], m: int, loops: Loops) -> tuple[Any, Any]:
    """The passes, so that none comes before one that it waits for, and the first replicas of stages."""
    p, replicas = len(degrees), sum(degrees)
    first = loops.array([sum(degrees[:s]) for s in range(p)])
    if schedule == "gpipe":
        turns = (range(p), range(2 * p - 1, p - 1, -1))
        return loops.array([group * m + j for groups in turns for j in range(m) for group in groups]), first
    passes, stage_of = loops.full(2 * p * m, 0), [s for s, d in enumerate(degrees) for _ in range(d)]
    counts = loops.full(2 * p * m + 9 * replicas + 2 * max(degrees) + 1, 0)
    given = map(loops.array, (degrees, in_flight(degrees)))
    loops.write(*given, m, first, loops.array(stage_of), counts, passes)
    return passes, first
