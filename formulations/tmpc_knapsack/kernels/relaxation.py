"""What the exact search begins with: plain choices, options worth considering, the linear relaxation. Compiled.

Arrays, everywhere: node v has the options ``node_start[v]`` to ``node_start[v + 1] - 1`` of ``time`` and ``memory``
(any finite numbers; memory >= 0); a choice holds for every node the option counted from the node's first.

Source: the hull and the greedy steps along it are the usual solution of the linear multiple-choice knapsack
(H. Kellerer, U. Pferschy, D. Pisinger, "Knapsack Problems" (2004), chapter 11); reconstructed.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLOAT, FLOATS, INTS, ZERO, compile_kernels, inner, kernel

#: As in problem.py: a choice fits if its memory is at most the capacity times this.
MEMORY_SLACK = 1 + 1e-12

#: Rounding of one operation, relative.
EPSILON = 2.0**-52

#: A marginal price (time per byte) beyond this is cut to it, so that products with bytes stay numbers.
STEEPEST = 1e250

#: Integers below this are exact as floats.
_EXACT_INTEGERS = 2.0**53


@kernel(INTS, FLOATS, INTS)
def chosen_sum(node_start: Any, values: Any, choice: Any) -> Any:
    """Sum of ``values`` over a choice, compensated (Neumaier): the error is about one rounding."""
    total = 0.0
    lost = 0.0
    for v in range(len(node_start) - 1):
        x = values[node_start[v] + choice[v]]
        larger = total + x
        if abs(total) >= abs(x):
            lost += (total - larger) + x
        else:
            lost += (x - larger) + total
        total = larger
    return total + lost


@kernel(INTS, FLOATS, FLOATS, FLOAT, INTS)
def smallest_choice(node_start: Any, time: Any, memory: Any, capacity: Any, choice_out: Any) -> Any:
    """Whether anything fits; writes the smallest choice (per node least memory, then least time, then first)."""
    for v in range(len(node_start) - 1):
        first = node_start[v]
        if node_start[v + 1] == first:
            return False
        least = first
        for j in range(first + 1, node_start[v + 1]):
            if memory[j] < memory[least] or (memory[j] == memory[least] and time[j] < time[least]):
                least = j
        choice_out[v] = least - first
    return chosen_sum(node_start, memory, choice_out) <= capacity * MEMORY_SLACK


@kernel(INTS, FLOATS, FLOATS, INTS)
def fastest_choice(node_start: Any, time: Any, memory: Any, choice_out: Any) -> None:
    """Write the choice of least time (then least memory, then first) of every node."""
    for v in range(len(node_start) - 1):
        first = node_start[v]
        least = first
        for j in range(first + 1, node_start[v + 1]):
            if time[j] < time[least] or (time[j] == time[least] and memory[j] < memory[least]):
                least = j
        choice_out[v] = least - first


@inner()
def rounding(node_start: Any, memory: Any, limit: Any) -> Any:
    """Bytes by which running sums below ``limit`` may be wrong: 0 where all sizes are integers."""
    if limit >= _EXACT_INTEGERS:
        return (len(node_start) + 8) * EPSILON * limit
    for j in range(node_start[-1]):
        if memory[j] <= limit and memory[j] != np.floor(memory[j]):
            return (len(node_start) + 8) * EPSILON * limit
    return 0.0


@inner()
def _follows(first: Any, second: Any, i: Any, j: Any) -> Any:
    return first[i] > first[j] or (first[i] == first[j] and second[i] > second[j])


@inner()
def sort(order: Any, lo: Any, hi: Any, first: Any, second: Any) -> None:
    """Sort the indices ``order[lo:hi]`` by ``first``, then ``second``: insertion where few, else a heap.

    Own code because numba's argsort takes seconds to compile.
    """
    if hi - lo <= 16:
        for i in range(lo + 1, hi):
            x = order[i]
            at = i
            while at > lo and _follows(first, second, order[at - 1], x):
                order[at] = order[at - 1]
                at -= 1
            order[at] = x
        return
    root, size = (hi - lo) // 2, hi - lo
    while size > 1:
        if root > 0:  # build the heap
            root -= 1
            x = order[lo + root]
        else:  # take the largest off
            size -= 1
            x = order[lo + size]
            order[lo + size] = order[lo]
        at = root
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and _follows(first, second, order[lo + child + 1], order[lo + child]):
                child += 1
            if not _follows(first, second, order[lo + child], x):
                break
            order[lo + at] = order[lo + child]
            at = child
        order[lo + at] = x


@inner()
def efficient(node_start: Any, time: Any, memory: Any, room: Any, start: Any, option: Any) -> None:
    """Options worth considering: by rising time and falling memory, none larger by ``room`` than the smallest.

    Node v gets ``option[start[v]:start[v + 1]]``. An option is dropped if another is no slower and no larger.
    """
    total = ZERO
    for v in range(len(node_start) - 1):
        start[v] = total
        least = np.inf
        for j in range(node_start[v], node_start[v + 1]):
            least = min(least, memory[j])
        for j in range(node_start[v], node_start[v + 1]):
            if memory[j] - least <= room:
                option[total] = j
                total += 1
        sort(option, start[v], total, time, memory)
        kept = start[v]
        for i in range(start[v], total):
            if i == start[v] or memory[option[i]] < memory[option[kept - 1]]:
                option[kept] = option[i]
                kept += 1
        total = kept
    start[len(node_start) - 1] = total


@inner()
def price_of(dt: Any, dm: Any) -> Any:
    """Time per byte saved."""
    return min(dt / dm, STEEPEST)


@inner()
def relax(time: Any, memory: Any, start: Any, option: Any, limit: Any, base: Any) -> Any:
    """Solve the linear relaxation; returns the marginal price of a byte.

    ``base[v]`` (a position in ``option``) becomes the option of node v in the relaxation; the node that is split
    between two gets the larger. Steps run along the lower convex hull of every node's options, cheapest byte first.
    """
    num_nodes = len(base)
    hull = np.empty(start[num_nodes], np.int64)
    step_price = np.empty(start[num_nodes], np.float64)
    step_node = np.empty(start[num_nodes], np.int64)
    step_to = np.empty(start[num_nodes], np.int64)
    num_steps = ZERO
    excess = -limit
    for v in range(num_nodes):
        base[v] = start[v]
        excess += memory[option[start[v]]]
        height = 0
        for i in range(start[v], start[v + 1]):
            j = option[i]
            while height >= 2:
                a, b = option[hull[height - 2]], option[hull[height - 1]]
                if price_of(time[b] - time[a], memory[a] - memory[b]) < price_of(
                    time[j] - time[b], memory[b] - memory[j]
                ):
                    break
                height -= 1
            hull[height] = i
            height += 1
        for h in range(1, height):
            a, b = option[hull[h - 1]], option[hull[h]]
            step_price[num_steps] = price_of(time[b] - time[a], memory[a] - memory[b])
            step_node[num_steps] = v
            step_to[num_steps] = hull[h]
            num_steps += 1
    price = 0.0
    order = np.arange(num_steps)
    sort(order, ZERO, num_steps, step_price, step_price)
    for step in order:
        v, to = step_node[step], step_to[step]
        price = step_price[step]
        saved = memory[option[base[v]]] - memory[option[to]]
        if excess <= saved:
            break
        excess -= saved
        base[v] = to
    return price


compile_kernels()
