"""Compiled exact search for the multiple-choice knapsack, on plain arrays.

The search grows a core (Pisinger's expanding-core idea for multiple-choice knapsacks): the linear relaxation gives
every node a base option; nodes whose alternatives have a marginal price near the relaxation's are branched on first;
partial choices are kept as a list sorted by memory without dominated entries, and cut off by a Dantzig bound over the
nodes still at their base option. Long lists are worked off in chunks, depth first, so that memory stays bounded.
Equal layers make equal partial choices, which the list merges: no symmetry is left to search through.

Arrays, everywhere: node v has the options ``node_start[v]`` to ``node_start[v + 1] - 1`` of ``time`` and ``memory``
(any finite numbers; memory >= 0); a choice holds for every node the option counted from the node's first.

Source: D. Pisinger, "A minimal algorithm for the multiple-choice knapsack problem" (1995), for the core and the lists;
reconstructed, from the idea only.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS, INTS, ZERO, compile_kernels, inner, kernel
from formulations.tmpc_knapsack.kernels.relaxation import (
    EPSILON,
    MEMORY_SLACK,
    STEEPEST,
    chosen_sum,
    efficient,
    fastest_choice,
    price_of,
    relax,
    rounding,
    smallest_choice,
    sort,
)

#: Relative to the objective: partial choices that could improve it by less are not searched.
EXACT_GAP = 1e-13

#: All lists together hold about this many partial choices (28 bytes each); one list at most `_LONGEST_LIST`.
_STATES = 2**22
_LONGEST_LIST = 2**16
_SHORTEST_LIST = 2**5


@inner()
def _copy(choice: Any, out: Any) -> None:
    for v in range(len(choice)):
        out[v] = choice[v]


@inner()
def _write(node_start: Any, option: Any, at: Any, choice: Any) -> None:
    """Turn positions in ``option`` into a choice."""
    for v in range(len(at)):
        choice[v] = option[at[v]] - node_start[v]


@inner()
def _core(time: Any, memory: Any, start: Any, option: Any, base: Any, price: Any, slack: Any) -> Any:
    """Nodes to branch on, in order, with their options relative to the base.

    An option stays if its reduced cost (time it adds, bytes counted at ``price``) is below ``slack``.

    Returns
    -------
    tuple
        ``node``, ``first`` (shape L, L + 1): branch k is on ``node[k]`` and has the alternatives
        ``first[k]`` to ``first[k + 1] - 1`` of ``at`` (position in ``option``), ``dt``, ``dm`` (time and memory
        added); the base option is the first of them.
        ``cheap``, ``dear``, ``saving`` (shape L + 1): over branches k and later, the largest price of a byte given
        up, the least price of a byte saved, and the bytes that can be saved.
    """
    num_nodes = len(base)
    key = np.empty(num_nodes, np.float64)
    up = np.empty(num_nodes, np.float64)
    down = np.empty(num_nodes, np.float64)
    count = np.zeros(num_nodes, np.int64)
    branching = 0
    total = 0
    for v in range(num_nodes):
        up[v] = STEEPEST
        down[v] = 0.0
        b = option[base[v]]
        for i in range(start[v], start[v + 1]):
            dt, dm = time[option[i]] - time[b], memory[option[i]] - memory[b]
            if i == base[v] or dt + price * dm >= slack:
                continue
            count[v] += 1
            if dm < 0:
                up[v] = min(up[v], price_of(dt, -dm))
            else:
                down[v] = max(down[v], price_of(-dt, dm))
        if count[v] > 0:
            branching += 1
            total += count[v] + 1
        # Nodes without alternatives sort to the end.
        key[v] = min(up[v] - price, price - down[v]) if count[v] > 0 else np.inf
    order = np.arange(num_nodes)
    sort(order, ZERO, num_nodes, key, key)
    node = order[:branching]
    first = np.empty(branching + 1, np.int64)
    at = np.empty(total, np.int64)
    dt_out = np.empty(total, np.float64)
    dm_out = np.empty(total, np.float64)
    total = 0
    for k in range(branching):
        v = node[k]
        b = option[base[v]]
        first[k] = total
        at[total], dt_out[total], dm_out[total] = base[v], 0.0, 0.0
        total += 1
        for i in range(start[v], start[v + 1]):
            dt, dm = time[option[i]] - time[b], memory[option[i]] - memory[b]
            if i == base[v] or dt + price * dm >= slack:
                continue
            at[total], dt_out[total], dm_out[total] = i, dt, dm
            total += 1
    first[branching] = total
    cheap = np.zeros(branching + 1, np.float64)
    dear = np.empty(branching + 1, np.float64)
    dear[branching] = STEEPEST
    saving = np.zeros(branching + 1, np.float64)
    for k in range(branching - 1, -1, -1):
        cheap[k] = max(cheap[k + 1], down[node[k]])
        dear[k] = min(dear[k + 1], up[node[k]])
        most = 0.0
        for i in range(first[k], first[k + 1]):
            most = max(most, -dm_out[i])
        saving[k] = saving[k + 1] + most
    return node, first, at, dt_out, dm_out, cheap, dear, saving


@inner()
def _bound(cost: Any, excess: Any, cheap: Any, dear: Any) -> Any:
    """Least time of a partial choice completed: bytes over are saved, bytes to spare are given up, at best price."""
    return cost + excess * (dear if excess > 0 else cheap)


@inner()
def _swap_one(
    node_start: Any, time: Any, memory: Any, start: Any, option: Any, base: Any, base_cost: Any, base_excess: Any,
    noise: Any, best: Any, choice: Any,
) -> Any:  # fmt: skip
    """Change one option of the base so that it fits in less than ``best``, at the least time; whether there is one."""
    swap, swap_to, least = -1, -1, best
    for v in range(len(base)):
        for i in range(start[v], start[v + 1]):
            cost = base_cost + (time[option[i]] - time[option[base[v]]])
            if cost < least and base_excess + (memory[option[i]] - memory[option[base[v]]]) <= noise:
                swap, swap_to, least = v, i, cost
    if swap < 0:
        return False
    choice[swap] = option[swap_to] - node_start[swap]
    return True


@inner()
def _trace(
    node_start: Any, option: Any, node: Any, first: Any, at: Any, parent: Any, pick: Any, k: Any, w: Any, state: Any,
    choice: Any,
) -> None:  # fmt: skip
    """Write into ``choice`` alternative w of branch k, and those of the partial choice ``state`` it extends."""
    choice[node[k]] = option[at[first[k] + w]] - node_start[node[k]]
    for level in range(k - 1, -1, -1):
        choice[node[level]] = option[at[first[level] + pick[state]]] - node_start[node[level]]
        state = parent[state]


@inner()
def _grown(array: Any, size: Any) -> Any:
    larger = np.empty(size, array.dtype)
    for i in range(len(array)):
        larger[i] = array[i]
    return larger


@kernel(INTS, FLOATS, FLOATS, FLOAT, FLOAT, INTS, FLAG, FLOATS)
def search(
    node_start: Any, time: Any, memory: Any, capacity: Any, gap: Any, choice_out: Any, flag: Any, report: Any
) -> Any:
    """Least total time of a choice that fits; ``inf`` if none does.

    Parameters
    ----------
    node_start, time, memory, capacity
        The instance (shapes (n + 1,), (options,), (options,)); a node without options makes it infeasible.
    gap
        Partial choices that cannot improve the incumbent by this part of it are dropped (`EXACT_GAP` to prove it).
    choice_out
        Shape (n,): the best choice found; meaningless if the result is ``inf``.
    flag
        The search returns its incumbent soon after ``flag[0]`` becomes nonzero.
    report
        Shape (3,), output: a proved lower bound (safe against rounding; ``inf`` if infeasible), the number of partial
        choices looked at, and 1 if the search ran to its end.
    """
    n = len(node_start) - 1
    report[0], report[1], report[2] = np.inf, 0.0, 1.0
    if not smallest_choice(node_start, time, memory, capacity, choice_out):
        return np.inf
    limit = capacity * MEMORY_SLACK
    room = limit - chosen_sum(node_start, memory, choice_out)
    best = chosen_sum(node_start, time, choice_out)
    choice = np.empty(n, np.int64)
    fastest_choice(node_start, time, memory, choice)
    negative = 0.0  # `best + negative` bounds the sum of all |time| in an incumbent
    for v in range(n):
        negative += 2 * max(0.0, -time[node_start[v] + choice[v]])
    if chosen_sum(node_start, memory, choice) <= limit:
        _copy(choice, choice_out)
        best = chosen_sum(node_start, time, choice)
        report[0] = best - 2 * EPSILON * (best + negative)
        return best

    noise = rounding(node_start, memory, limit)
    start, option, base = np.empty(n + 1, np.int64), np.empty(node_start[n], np.int64), np.empty(n, np.int64)
    efficient(node_start, time, memory, room + noise, start, option)
    price = relax(time, memory, start, option, limit, base)
    _write(node_start, option, base, choice)
    base_cost = chosen_sum(node_start, time, choice)
    base_excess = chosen_sum(node_start, memory, choice) - limit
    if _swap_one(node_start, time, memory, start, option, base, base_cost, base_excess, noise, best, choice):
        if chosen_sum(node_start, memory, choice) <= limit and chosen_sum(node_start, time, choice) < best:
            best = chosen_sum(node_start, time, choice)
            _copy(choice, choice_out)
    relaxed = base_cost + price * (base_excess - noise)
    cutoff = best - gap * (best + negative)
    node, first, at, dt, dm, cheap, dear, saving = _core(time, memory, start, option, base, price, cutoff - relaxed)

    depth, widest = len(node), 1
    for k in range(depth):
        widest = max(widest, first[k + 1] - first[k])
    tie = gap * max(0.0, relaxed + negative) / (depth + 1)
    longest = max(_SHORTEST_LIST, min(_LONGEST_LIST, _STATES // (depth + 1)))
    cost, excess = np.empty(128), np.empty(128)
    parent, pick = np.empty(128, np.int64), np.empty(128, np.int64)
    begin, end = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    heads = np.empty(widest, np.int64)
    cost[0], excess[0], parent[0], pick[0] = base_cost, base_excess, -1, -1
    end[0] = 1
    # The list of branch k is [begin[k], end[k]): partial choices over branches before k, by rising excess.
    k = ZERO
    while k >= 0:
        if begin[k] == end[k] or k == depth:
            k -= 1
            continue
        if flag[0]:
            break
        width = first[k + 1] - first[k]
        lo, hi = begin[k], min(end[k], begin[k] + max(1, longest // width))
        begin[k] = hi
        top = end[k]
        need = top + (hi - lo) * width
        if need > len(cost):
            need = max(need, 2 * len(cost))
            cost, excess, parent, pick = (
                _grown(cost, need),
                _grown(excess, need),
                _grown(parent, need),
                _grown(pick, need),
            )
        for j in range(width):
            heads[j] = lo
        lowest = np.inf
        while True:
            # Next in the merged order of the list shifted by every alternative; the cheaper one on a tie.
            w = ZERO - 1
            e = c = np.inf
            for j in range(width):
                if heads[j] < hi:
                    ej, cj = excess[heads[j]] + dm[first[k] + j], cost[heads[j]] + dt[first[k] + j]
                    if w < 0 or ej < e or (ej == e and cj < c):
                        w, e, c = j, ej, cj
            if w < 0 or e - saving[k + 1] > noise:
                break  # what follows is larger still
            state = heads[w]
            heads[w] += 1
            report[1] += 1
            if c >= lowest - tie:
                continue  # no smaller and no faster than one before
            lowest = c
            if e <= noise and c < cutoff:  # fits with all others at their base
                _write(node_start, option, base, choice)
                _trace(node_start, option, node, first, at, parent, pick, k, w, state, choice)
                total = chosen_sum(node_start, time, choice)
                if total < best and chosen_sum(node_start, memory, choice) <= limit:
                    best = total
                    cutoff = best - gap * (best + negative)
                    _copy(choice, choice_out)
            if _bound(c, e - noise, cheap[k + 1], dear[k + 1]) < cutoff:
                cost[top], excess[top], parent[top], pick[top] = c, e, state, w
                top += 1
        begin[k + 1], end[k + 1] = end[k], top
        k += 1

    lowest = cutoff
    while k >= 0:  # stopped: what is left of the lists still counts
        report[2] = 0.0
        for state in range(begin[k], end[k]):
            lowest = min(lowest, _bound(cost[state], excess[state] - noise, cheap[k], dear[k]))
        k -= 1
    report[0] = lowest - gap * (best + negative) - 4 * (n + 8) * EPSILON * (best + negative)
    return best


@kernel(INTS, FLOATS, FLOATS, FLOAT, INTS, FLAG)
def solve_arrays(node_start: Any, time: Any, memory: Any, capacity: Any, choice_out: Any, flag: Any) -> Any:
    """``search`` to the proof, for other compiled loops: least total time (``inf``: infeasible), and its choice."""
    return search(node_start, time, memory, capacity, EXACT_GAP, choice_out, flag, np.empty(3))


compile_kernels()
