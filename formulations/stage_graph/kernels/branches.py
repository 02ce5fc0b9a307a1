"""Compiled loop of the dynamic program over upsets of a model whose branches are chains (``downsets.py``)."""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Flags, Floats, Floats2, Floats3, Ints, Ints2
from formulations.compiled.numba_kernels import FLAG, INT, INTS, compile_kernels, inner, kernel

#: More devices than any instance has.
NONE = 1 << 14
#: Costs are summed in another order here than in the definition: this much, relatively, is forgiven.
_SLACK = 1e-11


class Upsets(NamedTuple):
    """Upsets of a model whose branches are chains, and sums over them that do not depend on times.

    Upset ``q < tails`` has the last q operators of the chain behind the branches; upset ``tails + s`` all of these, and
    of branch c its last ``states[s, c]`` operators. Branches of one class are neighbours, and ``first[c]`` says whether
    one begins with branch c; ``lengths[c]``: its operators. State s has the rank ``ranks[c, states[s, c]]``, summed
    over c, which is s. ``weights``, ``kept`` (states,): bytes of weights, and bytes per sample that are kept.
    ``sizes[c, i]``, ``counts[c, i]``: bytes per sample and edges that leave branch c where i operators are taken.
    ``tail_sums[q]``: weights, kept, bytes and edges that cross, of the chain without its last q operators.
    """

    states: Ints2
    first: Flags
    lengths: Ints
    ranks: Ints2
    weights: Floats
    kept: Floats
    sizes: Floats2
    counts: Floats2
    tail_sums: Floats2


class Times(NamedTuple):
    """The least that some micro-batch sizes take, in seconds per sample; r devices are at index r - 1.

    ``work`` (states,) and ``tail_work`` (tails,): passes of an upset of the branches, and of the chain without its last
    q operators, on one device; ``busy`` (states, r) and ``tail_busy`` (tails, r): on r. ``within[q, to, r]``: a stage
    of the chain, without its all-reduce, which is ``within_reduce``. ``rates[r]``: for each byte and each edge that
    crosses, each byte of weights, and fixed. ``ahead[c, i]``: passes of branch c without its last i operators, on one
    device. ``paths[c, i, r]``: the same if each operator has as many as r devices, at most, as are quickest for it;
    ``tail_paths[q, r]``: of the longest branch and the chain behind it without its last q operators.
    """

    work: Floats
    busy: Floats2
    tail_work: Floats
    tail_busy: Floats2
    within: Floats3
    within_reduce: Floats3
    rates: Floats2
    ahead: Floats2
    paths: Floats3
    tail_paths: Floats2


class Budget(NamedTuple):
    """What a stage may take: ``target`` seconds per sample, ``memory`` bytes of a device.

    ``elsewhere``: what the stages of everything else may take, at least the target. All-reduces count as ``reduce_low``
    at least and take ``reduce_high`` at most. ``heads``: within ``elsewhere`` a stage has a head, too, of what comes
    before it on the devices left for that (the share of one micro-batch; 0: none). ``copies`` of the weights are held;
    ``reduced``: seconds per sample that r devices spend at least in reducing a byte, times r / (r - 1).
    ``pace``: work in seconds per sample, as in `Times`, that a device of a stage with something behind it does at most.
    ``flights[0, r - 1]``: samples in flight on the fullest of r replicas of stages with the last operator,
    ``flights[1, r - 1]`` of others.
    """

    target: float
    elsewhere: float
    reduce_low: float
    reduce_high: float
    heads: float
    memory: float
    copies: float
    reduced: float
    pace: float
    flights: Floats2


@inner(error_model="python")
def _crossing(
    first: Any, own: Any, other: Any, is_empty: bool, sizes: Any, counts: Any, ahead: Any, found: Any, entered: Any
) -> int:
    """What crosses the border of the stage between two upsets: bytes and edges, bytes that come in, and what is ahead.

    Returned is how many branches are ahead; ``entered`` has them, and how many of their operators are not.
    Branches of one class that end where another begins are one branch that stands still: they cross nothing.
    """
    found[0] = found[1] = found[2] = found[3] = found[4] = 0.0
    number = 0
    start = 0
    width = len(own)
    while start < width:
        stop = start + 1
        while stop < width and not first[stop]:
            stop += 1
        a, b = start, start
        while a < stop or b < stop:
            if is_empty or a == stop:
                here, side = other[b], 1
            elif b == stop or own[a] < other[b]:
                here, side = own[a], 0
            elif own[a] > other[b]:
                here, side = other[b], 1
            else:
                a += 1
                b += 1
                continue
            found[0] += sizes[start, here]
            found[1] += counts[start, here]
            if side:
                found[2] += sizes[start, here]
                found[3] += ahead[start, here]
                found[4] += counts[start, here]
                if ahead[start, here] > 0.0:
                    entered[0, number], entered[1, number] = start, here
                    number += 1
                b += 1
                if is_empty:
                    a += 1
            else:
                a += 1
        start = stop
    return number


@inner(error_model="python")
def _head(ahead: float, beside: float, devices: int, target: float, share: float) -> float:
    """Seconds per sample before the first forward pass of a stage and after its last backward pass, at least.

    A micro-batch, a ``share`` of all samples, passes through all the work ``ahead``, and ``devices`` are left for that
    and for the work ``beside`` it. Each stage ahead is on a path into this one, so it has at most the head for its two
    passes: k devices ahead work at most k times the head together, and the others at most the target each. So the head
    is at least ahead / k, and at least what k devices take for all the work less (devices - k) target. The first falls
    with k and the second rises; they meet where k is devices - beside / target.
    """
    if share == 0.0 or ahead <= 0.0:
        return 0.0
    both = ahead + beside
    if devices <= 0 or both > devices * target * (1 + _SLACK):
        return np.inf
    meet = int(np.floor(devices - beside / target + 1e-9)) if beside > 0.0 else devices
    head = np.inf if meet < 1 else ahead / meet
    if meet < devices:
        head = min(head, target - (devices * target - both) / (meet + 1))
    return share * max(0.0, head)


@inner(error_model="python")
def _path_head(
    paths: Any, entered: Any, number: int, sizes: Any, counts: Any, rates: Any, work: float, devices: int, target: float
) -> float:
    """The same by the longest path ahead, and for all samples: its stages have at most r devices each, one of them r.

    That one takes no longer than the path, the other ``devices`` at most the target, and they do all the ``work``.
    """
    head = np.inf
    for r in range(1, devices + 1):
        longest = 0.0
        for x in range(number):
            c, i = entered[0, x], entered[1, x]
            sent = sizes[c, i] * rates[r - 1, 0] + counts[c, i] * rates[r - 1, 1]
            longest = max(longest, paths[c, i, r - 1] + sent)
        least = target - (devices * target - work) / r
        head = min(head, max(longest, least))
        if least >= longest:
            break
    return head


@inner(error_model="python")
def _lowest(c: int, own: Any, other: Any, first: Any) -> int:
    """The fewest operators of branch c in an upset around ``own`` with these of the branches before."""
    return int(own[c] if first[c] else max(own[c], other[c - 1]))


@inner(error_model="python")
def _needed(work: float, target: float) -> int:
    """Devices that so many seconds of work need at least within the target, which may be 0."""
    if work <= 0:
        return 0
    return NONE if work > NONE * target else int(np.ceil(work / target - 1e-9))


@inner(error_model="python")
def _fewest(work: float, load: float, target: float, reduce_low: float, reduce_high: float, reducing: float) -> int:
    """Devices of a stage at least, never fewer of a larger one: for its work, and as it reduces on more than one."""
    if work <= target - reduce_low:
        return 1
    reduced = reducing * load  # (r - 1) / r of this on r devices
    if reduce_low >= target or (work > target and reduced >= target):
        return NONE
    fewest = max(work / (target - reduce_low), 2.0)
    if work > target:
        fewest = max(fewest, (work - reduced) / (target - reduced))
    fewest = np.ceil(min(fewest, float(NONE)) - 1e-9)
    return NONE if reduced * (fewest - 1) / fewest > reduce_high else int(fewest)


@kernel(Upsets, Times, Budget, INT, INTS, INTS, FLAG, error_model="python")
def fewest_devices(upsets: Any, times: Any, budget: Any, devices: int, least: Any, before: Any, flag: Any) -> int:
    """Fewest devices for everything within the target, more than ``devices`` if these are too few; -1 if stopped.

    ``least[q]`` and ``before[q]`` are the result for each upset; more than ``devices`` where what is not in it needs
    too many of them.
    """
    states, first, lengths, ranks = upsets.states, upsets.first, upsets.lengths, upsets.ranks
    weights, kept, sizes, counts = upsets.weights, upsets.kept, upsets.sizes, upsets.counts
    work, busy, tail_work, tail_busy = times.work, times.busy, times.tail_work, times.tail_busy
    tail_sums, tail_within, rates, flights = upsets.tail_sums, times.within, times.rates, budget.flights
    target, memory = budget.target * (1 + _SLACK), budget.memory * (1 + _SLACK)
    elsewhere, reduce_low = budget.elsewhere * (1 + _SLACK), budget.reduce_low
    reduce_high = budget.reduce_high * (1 + _SLACK)
    others = elsewhere - reduce_low
    copies, reducing = budget.copies, budget.reduced
    tails, width = len(tail_work), states.shape[1]
    own, other = np.zeros(width, np.int64), np.zeros(width, np.int64)
    crossing, entered = np.zeros(5), np.zeros((2, width), np.int64)
    everything = tail_work[0] + work[-1] if tails else work[-1]
    for q in range(len(least)):
        least[q] = NONE
    least[0] = 0
    for q in range(len(least) - 1):
        if flag[0]:
            return -1
        inside = q >= tails
        s = q - tails if inside else 0  # upset 0 of the branches holds nothing: what it sums to is 0
        done = work[s] + (tail_work[0] if tails else 0.0) if inside else tail_work[0] - tail_work[q]
        if least[q] + _needed(everything - done, budget.pace if q else others) > devices:
            continue
        left = devices - least[q]
        if not inside:
            for to in range(q + 1, tails):
                for r in range(1, left + 1):
                    reduced = times.within_reduce[q, to, r - 1]
                    if reduced > reduce_high:
                        continue  # more devices may reduce sooner: between nodes
                    seconds = tail_within[q, to, r - 1] + max(reduced, reduce_low)
                    if seconds + _head(tail_work[to] + work[-1], 0.0, left - r, others, budget.heads) > elsewhere:
                        continue
                    if left > r and seconds + budget.heads * times.tail_paths[to, left - r - 1] > elsewhere:
                        continue
                    if seconds <= target:
                        if least[q] + r < least[to]:
                            least[to] = least[q] + r
                            before[to] = q
                        break
        flight = flights[1] if q > 0 and (tails > 0 or width == 1) else flights[0]
        rank = 0
        for c in range(width):
            own[c] = states[s, c] if inside else 0
            other[c] = own[c]
            rank += ranks[c, own[c]]
        moved = not inside
        while True:
            if moved:
                to = tails + rank
                more = work[rank] - work[s] + (0.0 if inside else tail_work[q])
                load = weights[rank] - weights[s] + (0.0 if inside else tail_sums[q, 0])
                rest = everything - done - more
                fewest = _fewest(more, load, target, reduce_low, reduce_high, reducing)
                held = kept[rank] - kept[s] + (0.0 if inside else tail_sums[q, 1])
                while fewest <= left and copies * load + flight[fewest - 1] * held > memory:
                    fewest += 1
                most = min(left - _needed(rest, budget.pace), least[to] - least[q] - 1)
                number = -1
                for r in range(fewest, most + 1):
                    seconds = busy[rank, r - 1] - busy[s, r - 1]
                    if not inside:
                        seconds += tail_busy[q, r - 1]
                    reduced = load * rates[r - 1, 2] + rates[r - 1, 3]
                    if reduced > reduce_high or seconds + max(reduced, reduce_low) > target:
                        continue
                    if number < 0:  # of few pairs it matters what crosses
                        number = _crossing(first, own, other, not inside, sizes, counts, times.ahead, crossing, entered)
                        keep = held + crossing[2]
                        if not inside:
                            crossing[0] += tail_sums[q, 2]
                            crossing[1] += tail_sums[q, 3]
                        ahead = crossing[3] + crossing[2] * rates[0, 0] + crossing[4] * rates[0, 1]
                    seconds += crossing[0] * rates[r - 1, 0] + crossing[1] * rates[r - 1, 1] + max(reduced, reduce_low)
                    if seconds > target or copies * load + flight[r - 1] * keep > memory:
                        continue
                    if seconds + _head(ahead, rest - crossing[3], left - r, others, budget.heads) > elsewhere:
                        continue
                    head = 0.0
                    if number and budget.heads > 0.0:
                        head = _path_head(
                            times.paths, entered, number, sizes, counts, rates, rest + ahead - crossing[3],
                            left - r, others,
                        )  # fmt: skip
                    if seconds + budget.heads * head <= elsewhere:
                        least[to] = least[q] + r
                        before[to] = q
                        break
            c = width - 1
            if moved and fewest > left:  # so do all upsets with no fewer of any branch: more of an earlier one is next
                while c > 0 and other[c] == _lowest(c, own, other, first):
                    c -= 1
                c -= 1
            moved = True
            while c >= 0 and other[c] == lengths[c]:
                c -= 1
            if c < 0:
                break
            rank += ranks[c, other[c] + 1] - ranks[c, other[c]]
            other[c] += 1
            for after in range(c + 1, width):
                low = _lowest(after, own, other, first)
                rank += ranks[after, low] - ranks[after, other[after]]
                other[after] = low
    return int(least[-1])


compile_kernels()
