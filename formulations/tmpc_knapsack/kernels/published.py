"""Compiled bang-per-buck heuristics on plain arrays (laid out as in `kernels.search`).

Each takes ``(node_start, time, memory, capacity, choice_out, flag)``, writes its choice, and returns its total time,
``inf`` if none fits or ``flag`` was raised. All start from the fastest option of every node and stop as soon as the
choice fits. Ties go to the lowest node, then to the lowest option.

Source: Piper, section 4, "The knapsack subproblem" (re-ranking); the released program (sort once; truncating).
"""

# mypy: disallow_untyped_decorators=False

import heapq
from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS, INTS, compile_kernels, inner, kernel
from formulations.tmpc_knapsack.kernels.relaxation import MEMORY_SLACK, chosen_sum

#: A step of a running sum of bytes is rounded by at most this part of what it began with.
_ROUNDED = 2.3e-16


@inner(counted=False)
def _fastest(node_start: Any, time: Any, choice: Any) -> None:
    for v in range(len(choice)):
        first = node_start[v]
        best = first
        for j in range(first + 1, node_start[v + 1]):
            if time[j] < time[best]:
                best = j
        choice[v] = best - first


@inner(counted=False)
def _best_swap(first: Any, end: Any, current: Any, time: Any, memory: Any, most: Any) -> tuple[Any, Any]:
    """The most bytes saved per time added by another of a node's options, and the option; (-1, -1): none saves any.

    More bytes than ``most`` do not count.
    """
    option, highest = -1, -1.0
    for j in range(first, end):
        saved = min(memory[current] - memory[j], most)
        if saved <= 0:
            continue
        added = time[j] - time[current]
        ratio = saved / added if added > 0 else np.inf
        if ratio > highest:
            option, highest = j, ratio
    return highest, option


@kernel(INTS, FLOATS, FLOATS, FLOAT, INTS, FLAG)
def rerank(node_start: Any, time: Any, memory: Any, capacity: Any, choice_out: Any, flag: Any) -> Any:
    """The paper's rule: all options compete anew after every swap, in O(S T^2 log S) for S nodes of T options.

    A swap changes the ratios of its own node alone, so a heap holds the best one of each node.
    """
    limit = capacity * MEMORY_SLACK
    _fastest(node_start, time, choice_out)
    held = chosen_sum(node_start, memory, choice_out)
    near = limit + held * len(memory) * _ROUNDED
    heap = [(0.0, -1, -1) for _ in range(0)]
    for v in range(len(choice_out)):
        current = node_start[v] + choice_out[v]
        ratio, option = _best_swap(node_start[v], node_start[v + 1], current, time, memory, np.inf)
        if option >= 0:
            heapq.heappush(heap, (-ratio, v, option))
    while flag[0] == 0:
        # Only a running sum that rounding may have lifted above the limit calls for the full one.
        if held <= near and chosen_sum(node_start, memory, choice_out) <= limit:
            return chosen_sum(node_start, time, choice_out)
        if len(heap) == 0:
            return np.inf
        _, v, option = heapq.heappop(heap)
        held -= memory[node_start[v] + choice_out[v]] - memory[option]
        choice_out[v] = option - node_start[v]
        ratio, after = _best_swap(node_start[v], node_start[v + 1], option, time, memory, np.inf)
        if after >= 0:
            heapq.heappush(heap, (-ratio, v, after))
    return np.inf


@kernel(INTS, FLOATS, FLOATS, FLOAT, INTS, FLAG)
def truncating(node_start: Any, time: Any, memory: Any, capacity: Any, choice_out: Any, flag: Any) -> Any:
    """As ``rerank``, but bytes saved beyond what is still needed do not count: every swap changes every ratio."""
    limit = capacity * MEMORY_SLACK
    _fastest(node_start, time, choice_out)
    while flag[0] == 0:
        excess = chosen_sum(node_start, memory, choice_out) - limit
        if excess <= 0:
            return chosen_sum(node_start, time, choice_out)
        node, option, highest = -1, -1, -1.0
        for v in range(len(choice_out)):
            current = node_start[v] + choice_out[v]
            ratio, best = _best_swap(node_start[v], node_start[v + 1], current, time, memory, excess)
            if ratio > highest:
                node, option, highest = v, best, ratio
        if node < 0:
            return np.inf
        choice_out[node] = option - node_start[node]
    return np.inf


@kernel(INTS, FLOATS, FLOATS, FLOAT, INTS, FLAG)
def sort_once(node_start: Any, time: Any, memory: Any, capacity: Any, choice_out: Any, flag: Any) -> Any:
    """The released program's rule: swaps sorted once by time added per byte saved; at most two options per node."""
    limit = capacity * MEMORY_SLACK
    n = len(choice_out)
    _fastest(node_start, time, choice_out)
    price, order = np.empty(n), np.empty(n, np.int64)
    count = 0
    for v in range(n):
        if flag[0] != 0:
            return np.inf
        if node_start[v + 1] - node_start[v] < 2:
            continue
        current, other = node_start[v] + choice_out[v], node_start[v] + 1 - choice_out[v]
        saved = memory[current] - memory[other]
        if saved > 0:
            price[v] = (time[other] - time[current]) / saved
            at = count
            while at > 0 and price[order[at - 1]] > price[v]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = v
            count += 1
    held = chosen_sum(node_start, memory, choice_out)
    near = limit + held * len(memory) * _ROUNDED
    for i in range(count):
        # Only a running sum that rounding may have lifted above the limit calls for the full one.
        if flag[0] != 0 or (held <= near and chosen_sum(node_start, memory, choice_out) <= limit):
            break
        v = order[i]
        held -= memory[node_start[v] + choice_out[v]] - memory[node_start[v] + 1 - choice_out[v]]
        choice_out[v] = 1 - choice_out[v]
    if flag[0] != 0 or chosen_sum(node_start, memory, choice_out) > limit:
        return np.inf
    return chosen_sum(node_start, time, choice_out)


compile_kernels()
