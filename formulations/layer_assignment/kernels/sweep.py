"""Compiled exact search for layer assignment: a sweep over thresholds with sliding windows.

Arrays as in ``costs.Tables``, ``cut`` its ``filled_cut``. All caps are strict. Let phi(T, A) be the least sum of cut
costs over the assignments whose stage times are all below T and whose all-reduces are all below A. It is a step
function that only grows as a cap falls, so the sweep visits its steps: the assignment behind phi has a slowest stage,
and a better one must beat that.

Source: reconstructed; the windows slide because the time and the parameters of a stage only grow with its layers.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS, FLOATS2, INTS, compile_kernels, inner, kernel

#: Assignments that are better by less than this, relatively, are not searched for.
EXACT_GAP = 1e-13
#: Halvings of an interval: more than a float has digits.
_HALVINGS = 60


@inner(error_model="python")
def cheapest(
    elapsed: Any, cut: Any, held: Any, ring: Any, cap_time: Any, cap_sync: Any, back: Any, lengths: Any
) -> Any:
    """phi(cap_time, cap_sync), or ``inf`` if nothing is below the caps; writes the assignment's ``lengths``.

    ``back`` is room for (S, L + 1) integers: where stage j begins if it ends before layer i.
    """
    num_stages, num_layers = elapsed.shape[0], elapsed.shape[1] - 1
    before = np.full(num_layers + 1, np.inf)  # least cost of the first i layers in the stages before j
    before[0] = 0.0
    window = np.empty(num_layers + 1, np.int64)  # starts of stage j, ascending, with ascending costs
    cost = np.empty(num_layers + 1)
    for j in range(num_stages):
        here, own = np.full(num_layers + 1, np.inf), elapsed[j]
        first = last = 0
        for i in range(j + 1, num_layers - num_stages + j + 2):  # a layer for each stage before and after
            start = i - 1
            cost[start] = before[start] + cut[start, j]
            while last > first and cost[window[last - 1]] >= cost[start]:
                last -= 1
            window[last] = start
            last += 1
            while first < last:
                start = window[first]
                if own[i] - own[start] < cap_time and (len(ring) == 0 or ring[j] * held[start, i] < cap_sync):
                    break
                first += 1
            if first < last:
                here[i] = cost[window[first]]
                back[j, i] = window[first]
        before = here
    if before[num_layers] < np.inf:
        end = num_layers
        for j in range(num_stages - 1, -1, -1):
            lengths[j] = end - back[j, end]
            end = back[j, end]
    return before[num_layers]


@inner(error_model="python")
def slowest(elapsed: Any, lengths: Any) -> Any:
    """Seconds of the slowest stage."""
    longest, start = 0.0, 0
    for j in range(len(lengths)):
        longest = max(longest, elapsed[j, start + lengths[j]] - elapsed[j, start])
        start += lengths[j]
    return longest


@inner(error_model="python")
def longest_sync(held: Any, ring: Any, lengths: Any) -> Any:
    """Seconds of the slowest stage's all-reduce; 0 if there is none."""
    longest, start = 0.0, 0
    for j in range(len(ring)):
        longest = max(longest, ring[j] * held[start, start + lengths[j]])
        start += lengths[j]
    return longest


@inner(error_model="python")
def least_slowest(elapsed: Any) -> Any:
    """A lower bound on the slowest stage's seconds, equal to the least but for rounding and stages left empty."""
    num_stages, num_layers = elapsed.shape[0], elapsed.shape[1] - 1
    low = 0.0
    for i in range(num_layers):
        least = np.inf
        for j in range(num_stages):
            least = min(least, elapsed[j, i + 1] - elapsed[j, i])
        low = max(low, least)
    high = elapsed[0, num_layers]
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        end = 0
        for j in range(num_stages):
            start = end
            while end < num_layers and elapsed[j, end + 1] - elapsed[j, start] <= middle:
                end += 1
        if end == num_layers:
            high = middle
        else:
            low = middle
    return low


@inner(error_model="python")
def least_sync(elapsed: Any, cut: Any, held: Any, ring: Any, back: Any, lengths: Any, flag: Any) -> Any:
    """A lower bound on the slowest all-reduce's seconds, equal to the least but for rounding; 0 if there is none.

    All-reduces may span many magnitudes, so the middle of an interval is the geometric one until its ends are close.
    """
    if len(ring) == 0:
        return 0.0
    cheapest(elapsed, cut, held, ring, np.inf, np.inf, back, lengths)
    low, high = 0.0, longest_sync(held, ring, lengths)
    for _ in range(2 * _HALVINGS):
        if high <= low * (1 + EXACT_GAP) or flag[0]:
            break
        if low == 0:
            middle = high / 1024
        elif high > 2 * low:
            middle = np.sqrt(low) * np.sqrt(high)
        else:
            middle = low + (high - low) / 2
        if cheapest(elapsed, cut, held, ring, np.inf, middle, back, lengths) < np.inf:
            high = longest_sync(held, ring, lengths)
        else:
            low = middle
    return low


@inner(error_model="python")
def sweep(
    elapsed: Any,
    cut: Any,
    held: Any,
    ring: Any,
    weight: Any,
    fastest: Any,
    cap: Any,
    cap_sync: Any,
    cutoff: Any,
    back: Any,
    lengths: Any,
    best_lengths: Any,
    flag: Any,
    report: Any,
) -> Any:
    """Least ``weight`` times the slowest stage plus all cuts, both caps kept; ``inf`` if there is none.

    ``fastest`` is a lower bound on the slowest stage. Values of ``cutoff`` and above are of no use: the sweep may end
    before it has found the least of them. ``report`` gets a lower bound on all values below ``cutoff`` ([1]; ``inf``:
    there is none below the value returned), the steps so far ([2], added to), 1 if the flag ended it ([3]), and a lower
    bound on all cuts ([4]).
    """
    best, first = np.inf, True
    report[1] = np.inf
    while True:
        sending = cheapest(elapsed, cut, held, ring, cap, cap_sync, back, lengths)
        report[2] += 1
        if sending == np.inf:
            return best
        if first:
            report[4] = sending
            first = False
        longest = slowest(elapsed, lengths)
        value = weight * longest + sending
        if value < best:
            best = value
            for j in range(len(lengths)):
                best_lengths[j] = lengths[j]
        useful = min(best, cutoff)
        if weight * fastest + sending >= useful - EXACT_GAP * abs(useful):  # filled cuts may be below 0
            return best
        if flag[0]:
            report[1] = weight * fastest + sending
            report[3] = 1
            return best
        # What is still to come sends for at least as long, so to be of use its slowest stage must be this fast.
        cap = min(longest, (useful - sending) / weight)


@kernel(FLOATS2, FLOATS2, FLOATS2, FLOATS, FLOAT, INTS, FLAG, FLOATS, error_model="python")
def search(elapsed: Any, cut: Any, held: Any, ring: Any, weight: Any, lengths: Any, flag: Any, report: Any) -> None:
    """The best assignment in ``lengths``; all seconds but the constant of all stages (`costs.filling`) count.

    The outer sweep is over the all-reduce as the inner one is over the slowest stage. ``report`` gets the value (0), a
    lower bound (1), the number of steps (2) and 1 if the flag ended the search early (3); (4) is room. There must be an
    assignment.
    """
    back = np.empty(elapsed.shape, np.int64)
    trial, found = np.empty_like(lengths), np.empty_like(lengths)
    fastest = least_slowest(elapsed)
    quickest = least_sync(elapsed, cut, held, ring, back, trial, flag)
    best, bound, cap = np.inf, np.inf, np.inf
    report[2] = report[3] = report[4] = 0.0
    while True:
        # What is of use sends for at least as long as the last sweep's first step, so its slowest stage is this fast.
        cutoff = best - quickest
        start = (cutoff - report[4]) / weight if weight > 0 else np.inf
        inner = sweep(elapsed, cut, held, ring, weight, fastest, start, cap, cutoff, back, trial, found, flag, report)
        if inner == np.inf:
            break
        sync = longest_sync(held, ring, found)
        if inner + sync < best:
            best = inner + sync
            for j in range(len(lengths)):
                lengths[j] = found[j]
        if report[3] > 0:
            bound = min(inner, report[1]) + quickest
            break
        # Whatever is of use waits and sends for at least ``inner``, so its all-reduce must be this fast.
        if inner + quickest >= best - EXACT_GAP * abs(best) or len(ring) == 0:
            break
        cap = min(sync, best - inner)
    report[0] = best
    report[1] = min(best, bound)


@kernel(FLOATS2, FLOATS2, FLOATS2, FLOATS, FLOAT, FLOAT, INTS, FLAG, FLOATS, error_model="python")
def below(
    elapsed: Any, cut: Any, held: Any, ring: Any, weight: Any, cap_sync: Any, lengths: Any, flag: Any, report: Any
) -> None:
    """As `sweep`, of all assignments whose all-reduces are below a cap; the value in ``report[0]``."""
    back, found = np.empty(elapsed.shape, np.int64), np.empty_like(lengths)
    report[2] = report[3] = 0.0
    report[0] = sweep(
        elapsed, cut, held, ring, weight, 0.0, np.inf, cap_sync, np.inf, back, found, lengths, flag, report
    )  # fmt: skip


compile_kernels()
