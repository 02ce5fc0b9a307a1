"""Compiled loops of the dynamic programs over ``program.Program`` (its kinds of transitions, in the same order).

j: micro-batches in flight behind a state; d: devices; v: micro-batches in flight at its first stages.

Source: GraphPipe, Algorithm 1 (``by_memory``); the form of ``fewest`` is made for this project.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats2, Floats3, Ints, Ints2, Ints3
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    SHORTS2,
    SHORTS3,
    TRUTH,
    compile_kernels,
    inner,
    kernel,
)

_STAGE, _CHAIN, _SPLIT, _GROUP, _FORK = range(5)
#: More devices than any instance has.
NONE = 1 << 28


class Transitions(NamedTuple):
    """The transitions of every state, state by state: those of s are ``start[s]`` to ``start[s + 1] - 1``.

    Of transition x: ``kind``; ``stage``, an index (-1: none); ``first`` and ``second``, the states that are left (0 is
    empty).
    """

    start: Ints
    kind: Ints
    stage: Ints
    first: Ints
    second: Ints


class StageCosts(NamedTuple):
    """What a stage takes: ``base[stage, g]`` bytes of a device and ``kept[stage, g]`` for each sample in flight.

    ``fits[stage, g]``: the largest number of micro-batches in flight with which it keeps the target and its memory on
    ``degrees[g]`` devices (ascending), which are ``replicas[g]`` replicas; -1 if there is none. ``sizes``: micro-batch
    and mini-batch.
    """

    fits: Ints2
    degrees: Ints
    replicas: Ints
    base: Floats2
    kept: Floats2
    sizes: Ints


class Best(NamedTuple):
    """Of the better plan of state s with exactly d devices, all [s, j, d].

    ``flight``: micro-batches in flight at its first stages, -1 if there is none. ``memory``: its peak, bytes. ``pick``:
    the transition; ``share``: the devices of its first remainder times the number of degrees, plus the index of its
    stage's degree.
    """

    flight: Ints3
    memory: Floats3
    pick: Ints3
    share: Ints3


@inner(error_model="python")
def held_samples(sizes: Any, devices: int, in_flight: int) -> int:
    """Samples on the fullest replica with so many micro-batches in flight; ``sizes``: micro-batch and mini-batch."""
    return int(min(in_flight, sizes[1] // sizes[0]) * ((sizes[0] + devices - 1) // devices))


@kernel(FLOATS, FLOATS, INTS, INTS, FLOAT, error_model="python")
def most_in_flight(base: Any, kept: Any, degrees: Any, sizes: Any, memory: float) -> Any:
    """``[stage, g]``: the most micro-batches in flight that fit into memory; 0 if not even one does.

    ``sizes``: micro-batch, mini-batch and the largest number of interest.
    """
    most = sizes[2]
    found = np.zeros((len(base), len(degrees)), np.int64)
    for stage in range(len(base)):
        for g in range(len(degrees)):
            low, high = 0, most  # low fits or is 0, high + 1 does not fit or is beyond
            while low < high:
                middle = (low + high + 1) // 2
                if base[stage] + held_samples(sizes, degrees[g], middle) * kept[stage] <= memory:
                    low = middle
                else:
                    high = middle - 1
            found[stage, g] = low
    return found


@kernel(Transitions, SHORTS2, INT, SHORTS3, SHORTS3, SHORTS3, FLAG, error_model="python")
def fewest(transitions: Any, need: Any, devices: int, least: Any, pick: Any, middle: Any, flag: Any) -> int:
    """``least[s, j, v]``: fewest devices for state s with at most v in flight at its first stages, and the choices.

    ``need[stage, i]``: fewest devices of a stage with i in flight; more than ``devices`` are never enough. ``pick`` is
    the transition and ``middle`` the micro-batches in flight between its two remainders. Returns the number of
    transitions tried (each for all v at once); -1 if stopped.
    """
    start, kind, stage = transitions.start, transitions.kind, transitions.stage
    first, second = transitions.first, transitions.second
    most = least.shape[1] - 1
    looked = 0
    least[:] = NONE
    for j in range(most + 1):
        for v in range(j, most + 1):
            least[0, j, v] = 0
    for s in range(1, len(start) - 1):
        if flag[0]:
            return -1
        for j in range(most):
            best, chosen = least[s, j], pick[s, j]
            for x in range(start[s], start[s + 1]):
                a, b, what = first[x], second[x], kind[x]
                if what == _SPLIT:
                    looked += 1
                    one, other = least[a, j], least[b, j]
                    for v in range(j + 1, most + 1):
                        if one[v] + other[v] < best[v]:
                            best[v] = one[v] + other[v]
                            chosen[v] = x
                elif what == _STAGE or what == _GROUP:
                    own = need[stage[x], j + 1]
                    if own > devices:
                        continue
                    looked += 1
                    one = least[a, j + 1 if what == _STAGE or a == 0 else j]
                    for v in range(j + 1, most + 1):
                        if own + one[v] < best[v]:
                            best[v] = own + one[v]
                            chosen[v] = x
                else:
                    fork = 1 if what == _FORK else 0
                    last = devices + 1
                    for between in range(j + 1, most + 1 - fork):
                        more = least[a, j, between]
                        if fork:
                            more += need[stage[x], between + 1]
                        if more >= last:
                            continue  # no better than with fewer in flight
                        last = more
                        looked += 1
                        one = least[b, between + fork]
                        for v in range(between + fork, most + 1):
                            if more + one[v] < best[v]:
                                best[v] = more + one[v]
                                chosen[v] = x
                                middle[s, j, v] = between
    return looked


@kernel(Transitions, StageCosts, TRUTH, Best, FLAG, error_model="python")
def exactly(transitions: Any, stages: Any, by_memory: bool, best: Any, flag: Any) -> int:
    """Write the better plan of every state with every exact number of devices, for every j.

    The better plan has the smaller peak ``memory`` (bytes), then fewer in flight; without ``by_memory`` the other way
    round. Returns the number of transitions tried; -1 if stopped.
    """
    start, kind, stage = transitions.start, transitions.kind, transitions.stage
    first, second = transitions.first, transitions.second
    fits, degrees, replicas, sizes = stages.fits, stages.degrees, stages.replicas, stages.sizes
    flight, memory, pick, share = best.flight, best.memory, best.pick, best.share
    devices = flight.shape[2] - 1
    flight[:] = -1
    for j in range(devices + 1):
        flight[0, j, 0] = j
        memory[0, j, 0] = 0.0
    looked = 0
    for s in range(1, len(start) - 1):
        for j in range(devices):
            if flag[0]:
                return -1
            for d in range(1, devices - j + 1):
                best_flight, best_memory = -1, np.inf
                for x in range(start[s], start[s + 1]):
                    a, b, what, own = first[x], second[x], kind[x], stage[x]
                    splits = what == _CHAIN or what == _SPLIT or what == _FORK
                    staged = what == _STAGE or what == _GROUP or what == _FORK
                    for left in range(1 if splits else 0, d + 1 if splits else 1):
                        between = flight[a, j, left] if splits else j
                        if between < 0:
                            continue
                        peak = memory[a, j, left] if splits else 0.0
                        for g in range(len(degrees) if staged else 1):
                            r = degrees[g] if staged else 0
                            if left + r > d:
                                break
                            looked += 1
                            found_memory = peak
                            if staged:
                                i = between + 1
                                if fits[own, g] < i:
                                    continue
                                held = held_samples(sizes, replicas[g], i)
                                used = stages.base[own, g] + held * stages.kept[own, g]
                                found_memory = max(peak, used)
                            rest = a if what == _STAGE or what == _GROUP else b
                            behind = between + 1 if what == _STAGE or what == _FORK else between
                            if what == _SPLIT or what == _GROUP:
                                behind = j
                            found = flight[rest, behind, d - left - r]
                            if found < 0:
                                continue
                            found_memory = max(found_memory, memory[rest, behind, d - left - r])
                            if what == _SPLIT:
                                found = max(found, between)
                            elif what == _GROUP:
                                found = max(found, j + 1)
                            if by_memory:
                                better = found_memory < best_memory or (
                                    found_memory == best_memory and found < best_flight
                                )
                            else:
                                better = (
                                    best_flight < 0
                                    or found < best_flight
                                    or (found == best_flight and found_memory < best_memory)
                                )
                            if better:
                                best_flight, best_memory = found, found_memory
                                pick[s, j, d] = x
                                share[s, j, d] = left * len(degrees) + g
                flight[s, j, d] = best_flight
                memory[s, j, d] = best_memory
    return looked


compile_kernels()
