"""The knapsack in decision form: is there a choice within a capacity and within a budget of time?

Callers that test millions of stages against a threshold need a yes or no, not an optimum: a relaxation above the
budget or a greedy choice within it settles nearly all of them, and the search stops at the first hit.

Source: the linear relaxation of multiple-choice knapsacks (increments on the convex hull in order of time per byte
saved); specs of the three tiers: Source: reconstructed, the paper uses a heuristic here.
"""

import numpy as np

from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FOUND,
    INT,
    INTS,
    NONE,
    STOPPED,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)

#: Prefixes of a relaxation's value that float noise may exceed the budget by.
_NOISE = 1e-12


@kernel(INT, INTS, FLOATS, FLOATS, FLOAT, FLOAT, INTS, FLAG)
def decide(num_nodes, start, cost, memory, capacity, budget, choice, flag):
    """Look for a choice with total memory <= capacity and total cost <= budget.

    Parameters
    ----------
    num_nodes
        Number of nodes m; node v has the options ``start[v]`` to ``start[v + 1] - 1``.
    start, cost, memory
        Arrays of shape (m + 1,), (options,), (options,).
    capacity, budget
        Both inclusive; ``budget`` may be infinite.
    choice
        Output, shape (m,): the option of every node, counted from its first (only if FOUND).
    flag
        The search returns STOPPED soon after ``flag[0]`` becomes nonzero.

    Returns
    -------
    int
        FOUND, NONE (a proof, up to 1e-12 of the budget) or STOPPED.
    """
    # Efficient options of every node by rising cost and falling memory: `option[first[v]:first[v + 1]]`.
    first = np.empty(num_nodes + 1, np.int64)
    option = np.empty(start[num_nodes], np.int64)
    total = ZERO
    base_cost, base_memory, least_memory = 0.0, 0.0, 0.0
    for v in range(num_nodes):
        first[v] = total
        total = _efficient(start[v], start[v + 1], cost, memory, capacity, budget, option, total)
        if total == first[v]:
            return NONE
        base_cost += cost[option[first[v]]]
        base_memory += memory[option[first[v]]]
        least_memory += memory[option[total - 1]]
    first[num_nodes] = total
    if base_cost > budget * (1 + _NOISE) or least_memory > capacity:
        return NONE
    if base_memory <= capacity:
        for v in range(num_nodes):
            choice[v] = option[first[v]] - start[v]
        return FOUND

    # Increments between neighbours on each node's lower hull, best first.
    owner = np.empty(total, np.int64)
    reached = np.empty(total, np.int64)
    rise = np.empty(total)
    saving = np.empty(total)
    steps = ZERO
    for v in range(num_nodes):
        steps = _hull(v, first, option, cost, memory, owner, reached, rise, saving, steps)
    order = ratio_order(owner, rise, saving, steps)
    need, spent = base_memory - capacity, base_cost
    taken = 0
    while taken < steps and saving[order[taken]] < need:
        need -= saving[order[taken]]
        spent += rise[order[taken]]
        taken += 1
    if taken < steps:
        z = order[taken]
        if spent + rise[z] * (need / saving[z]) > budget * (1 + _NOISE):
            return NONE
        if spent + rise[z] <= budget:
            for v in range(num_nodes):
                choice[v] = option[first[v]] - start[v]
            for r in range(taken + 1):
                choice[owner[order[r]]] = option[reached[order[r]]] - start[owner[order[r]]]
            return FOUND
    return _search(num_nodes, start, first, option, cost, memory, capacity, budget, choice, flag,
                   owner, rise, saving, order)  # fmt: skip


@inner(counted=False)
def _efficient(begin, end, cost, memory, capacity, budget, option, total):
    """Append the options of one node that no cheaper one matches in memory; rising cost, falling memory.

    Options beyond the capacity or the budget by themselves are left out: in sums they could drown the others' digits.
    """
    low = total
    for x in range(begin, end):
        if memory[x] > capacity or cost[x] > budget * (1 + _NOISE):
            continue
        # insertion by (cost, memory)
        z = total
        while z > low and (
            cost[option[z - 1]] > cost[x] or (cost[option[z - 1]] == cost[x] and memory[option[z - 1]] > memory[x])
        ):
            option[z] = option[z - 1]
            z -= 1
        option[z] = x
        total += 1
    kept = low
    for z in range(low, total):
        if kept == low or memory[option[z]] < memory[option[kept - 1]]:
            option[kept] = option[z]
            kept += 1
    return kept


@inner(counted=False)
def _hull(v, first, option, cost, memory, owner, reached, rise, saving, steps):
    """Append the increments of node v's lower convex hull (time against memory saved)."""
    begin = steps
    for z in range(first[v] + 1, first[v + 1]):
        frm = first[v] if steps == begin else reached[steps - 1]
        while True:
            up, down = cost[option[z]] - cost[option[frm]], memory[option[frm]] - memory[option[z]]
            if steps == begin or rise[steps - 1] * down <= up * saving[steps - 1]:
                break
            steps -= 1  # the step before is steeper than this one: not on the hull
            frm = first[v] if steps == begin else reached[steps - 1]
        owner[steps], reached[steps], rise[steps], saving[steps] = v, z, up, down
        steps += 1
    return steps


@inner()
def ratio_order(owner, rise, saving, count):
    """Indices 0 to count - 1 by ``rise / saving``, ties in place: a merge sort that compiles in no time.

    Increments of one owner (neighbours, of ratios that fall by float noise at most) stay in their order.
    """
    ratio, order, other = np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64)
    for r in range(count):
        ratio[r], order[r] = rise[r] / saving[r], r
        if r > 0 and owner[r] == owner[r - 1]:
            ratio[r] = max(ratio[r], ratio[r - 1])
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            a, b = low, middle
            for z in range(low, high):
                if a < middle and (b >= high or ratio[order[a]] <= ratio[order[b]]):
                    other[z] = order[a]
                    a += 1
                else:
                    other[z] = order[b]
                    b += 1
        order, other = other, order
        width *= 2
    return order


@inner()
def _search(num_nodes, start, first, option, cost, memory, capacity, budget, choice, flag,
            owner, rise, saving, order):  # fmt: skip
    """Depth first over nodes in the order of their best increment, lightest option first, pruned by the relaxation."""
    steps = len(order)
    rank = np.full(num_nodes, -1, np.int64)
    sequence = np.empty(num_nodes, np.int64)
    depth = 0
    for r in range(steps):
        if rank[owner[order[r]]] < 0:
            # Nodes that follow one come right behind it, so that their order can be used.
            rank[owner[order[r]]] = depth
            sequence[depth] = owner[order[r]]
            depth += 1
            for later in range(r + 1, steps):
                v = owner[order[later]]
                if rank[v] < 0 and _follows(v, sequence[depth - 1], first, option, cost, memory):
                    rank[v] = depth
                    sequence[depth] = v
                    depth += 1
    free = depth  # nodes behind have a single efficient option
    spent, used = 0.0, 0.0
    for v in range(num_nodes):
        if rank[v] < 0:
            choice[v] = option[first[v]] - start[v]
            spent += cost[option[first[v]]]
            used += memory[option[first[v]]]
    base_cost, base_memory, least_memory = np.zeros(free + 1), np.zeros(free + 1), np.zeros(free + 1)
    follows = np.zeros(free, np.bool_)
    for z in range(free - 1, -1, -1):
        v = sequence[z]
        base_cost[z] = base_cost[z + 1] + cost[option[first[v]]]
        base_memory[z] = base_memory[z + 1] + memory[option[first[v]]]
        least_memory[z] = least_memory[z + 1] + memory[option[first[v + 1] - 1]]
        follows[z] = z > 0 and _follows(v, sequence[z - 1], first, option, cost, memory)
    run_rank, run_size, run_rise, run_saving, runs = _runs(rank, owner, rise, saving, order)
    limit = budget * (1 + _NOISE)
    at = np.empty(free + 1, np.int64)
    cost_at, memory_at = np.empty(free + 1), np.empty(free + 1)
    cost_at[0], memory_at[0] = spent, used
    z = ZERO
    at[0] = _first_try(z, sequence, first, follows, at)
    visited = 0
    while z >= 0:
        v = sequence[z]
        if at[z] < first[v]:
            z -= 1
            if z >= 0:
                at[z] -= 1
            continue
        visited += 1
        if visited & 1023 == 0 and flag[0] != 0:
            return STOPPED
        spent = cost_at[z] + cost[option[at[z]]]
        used = memory_at[z] + memory[option[at[z]]]
        if used + least_memory[z + 1] > capacity:
            at[z] = first[v] - 1  # every faster option is heavier still
            continue
        if spent + base_cost[z + 1] > limit:
            at[z] -= 1
            continue
        if used + base_memory[z + 1] <= capacity:
            if spent + base_cost[z + 1] <= budget:
                for r in range(z + 1):
                    choice[sequence[r]] = option[at[r]] - start[sequence[r]]
                for r in range(z + 1, free):
                    choice[sequence[r]] = option[first[sequence[r]]] - start[sequence[r]]
                return FOUND
            at[z] -= 1
            continue
        if _relaxed(z + 1, spent + base_cost[z + 1], used + base_memory[z + 1] - capacity,
                    run_rank, run_size, run_rise, run_saving, runs) > limit:  # fmt: skip
            at[z] -= 1
            continue
        z += 1
        cost_at[z], memory_at[z] = spent, used
        at[z] = _first_try(z, sequence, first, follows, at)
    return NONE


@inner(counted=False)
def _first_try(z, sequence, first, follows, at):
    """The lightest option at depth z; a node that follows the one before it is never lighter."""
    v = sequence[z]
    if follows[z]:
        return first[v] + at[z - 1] - first[sequence[z - 1]]
    return first[v + 1] - 1


@inner()
def _runs(rank, owner, rise, saving, order):
    """Increments in their order, equal ones at nodes of neighbouring ranks together: last rank, size, one's rise and
    saving, and how many runs there are. Of hundreds of equal layers they leave a handful.
    """
    steps, runs = len(order), ZERO
    run_rank, run_size = np.empty(steps, np.int64), np.empty(steps, np.int64)
    run_rise, run_saving = np.empty(steps), np.empty(steps)
    for r in range(steps):
        z = order[r]
        up, down, here = rise[z], saving[z], rank[owner[z]]
        last = runs - 1
        if runs > 0 and run_rise[last] == up and run_saving[last] == down and run_rank[last] + 1 == here:
            run_rank[last], run_size[last] = here, run_size[last] + 1
            continue
        run_rank[runs], run_size[runs], run_rise[runs], run_saving[runs] = here, 1, up, down
        runs += 1
    return run_rank, run_size, run_rise, run_saving, runs


@inner(counted=False)
def _relaxed(depth, spent, need, run_rank, run_size, run_rise, run_saving, runs):
    """Least cost of saving ``need`` bytes at nodes of rank >= depth when increments may be cut; inf if impossible."""
    for u in range(runs):
        count = min(run_size[u], run_rank[u] - depth + 1)
        if count < 1:
            continue
        if count * run_saving[u] >= need:
            return spent + run_rise[u] * (need / run_saving[u])
        need -= count * run_saving[u]
        spent += count * run_rise[u]
    return np.inf if need > 0 else spent


@inner(counted=False)
def _follows(v, w, first, option, cost, memory):
    """True if node v need never be lighter than w: options of the same memory, and no step costs less at v than at w.

    Where v is lighter, exchanging the two leaves the memory as it is and makes nothing slower.
    """
    size = first[v + 1] - first[v]
    if size != first[w + 1] - first[w]:
        return False
    for z in range(size):
        a, b = option[first[v] + z], option[first[w] + z]
        if memory[a] != memory[b]:
            return False
        if z > 0 and cost[a] - cost[option[first[v] + z - 1]] < cost[b] - cost[option[first[w] + z - 1]]:
            return False
    return True


compile_kernels()
