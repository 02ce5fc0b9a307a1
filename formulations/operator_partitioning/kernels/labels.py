"""The exact search by labels over a family of downsets, compiled.

Stages as in loads.py.

Source: this project.
"""

import numpy as np

from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FLOATS2,
    INT,
    INTS,
    TRUTH,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)
from formulations.operator_partitioning.costs.arrays import Counts, Graph, MemoryRules, Rows
from formulations.operator_partitioning.kernels.loads import (
    NOISE,
    has,
    keeps,
    lands,
    load_at_least,
    receiving_seconds,
    room_for,
    stage_memory,
    within,
)

FOUND, NONE, STOPPED, TOO_MANY = 1, 0, -1, -2

#: More devices than any instance has.
_NEVER = np.int64(1 << 40)


@kernel(Rows, Graph, Counts, MemoryRules, FLOAT, FLOAT, TRUTH, FLOATS2, INT, INTS, INTS, FLOATS, FLAG)
def threshold_test(
    rows, graph, counts, rules, threshold, cap, blind, ahead, most_labels, chain, chain_replicas, report, flag
):
    """Look for a plan whose slowest stage takes at most ``threshold``.

    Parameters
    ----------
    cap
        Most parameter bytes of a stage.
    blind
        Count every tensor that leaves a stage once, whatever stages it goes to: a relaxation.
    ahead
        Lower bounds, shape (D, S + 1): the slowest of s stages that make up row F.
    most_labels
        More are not kept: TOO_MANY.
    chain, chain_replicas
        Output: the rows of the plan with the empty set first, shape (S + 1,), and replicas, shape (S,), from the input
        side on; ``report[0]`` is the number of stages. ``report[1]`` counts steps, ``report[2]`` labels;
        ``report[3]`` is the least threshold under which anything would have gone otherwise (only if NONE).

    From the last stage to the first. A label of row F is a way to do all that is outside F: ``uses[label, s]`` devices
    with s stages, and for each tensor across the border the number of stages that take it. A label that needs no more
    of any of these makes another one useless.
    """
    bits, compute, parameters, edge_start, edge = rows.bits, rows.compute, rows.parameters, rows.edge_start, rows.edge
    source, start, target, seconds = graph.source, graph.start, graph.target, graph.seconds
    fixed, computed, feed_start, feed = rows.fixed, rows.activation, rows.feed_start, rows.feed
    after_start, after, activation = graph.after_start, graph.after, graph.activation
    num_stages, replicas, devices, limited = counts.stages, counts.replicas, counts.devices, rules.limit < np.inf
    top = bits.shape[0] - 1
    size = 1024
    # The labels: those of row r are head[r], follow[head[r]], ... (-1 ends them); takers[place[l]:place[l + 1]] are
    # the stages that take the tensors across the border of row[l]; parent[l] is what label l was made from.
    head = np.full(bits.shape[0], -1, np.int64)
    follow, parent, row = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    place = np.empty(size + 1, np.int64)
    uses = np.empty((size, num_stages + 1), np.int64)
    takers = np.empty(4096, np.int64)
    head[top] = 0
    follow[0] = parent[0] = -1
    row[0] = top
    place[0] = place[1] = 0
    for s in range(num_stages + 1):
        uses[0, s] = 0 if s == 0 else _NEVER
    total = ZERO + 1
    fresh = np.empty(num_stages + 1, np.int64)
    fitting = np.ones(num_stages, np.int64)
    taken = np.empty(len(source) + 1, np.int64)
    last = np.empty(len(activation), np.int64)
    # How many replicas add their memory up: from the fewest to the most.
    fewest = np.int64(max(1, replicas) if rules.pooled else 1)
    sharing = np.int64(devices) if rules.pooled and replicas == 0 else fewest
    widest = np.float64(replicas) if replicas > 0 else np.float64(devices)
    bound = threshold * (1 + NOISE)
    most = bound * widest
    useful = np.empty(bits.shape[0], np.int64)
    count, least = _within_bound(ahead, bound, useful)  # least: the least threshold that was refused
    next_load = np.inf  # the least load that was refused
    done = False
    for high in range(top, 0, -1):
        if head[high] < 0:
            continue
        if flag[0]:
            return STOPPED
        # What is left in front must fit the stages or devices that are left.
        rest = _rest(head[high], follow, uses, num_stages, replicas, devices)
        begin = _begin(compute, useful, count, high, rest * bound)
        if begin + 1 < count and useful[begin + 1] < high and rest > 0:
            least = min(least, compute[useful[begin + 1]] / rest)
        for index in range(begin, -1, -1):
            low = useful[index]
            spent = compute[high] - compute[low]
            if spent > most:
                next_load = min(next_load, spent)
                break
            at_least = load_at_least(rows, low, high)
            if at_least > most * (1 + NOISE):
                next_load = min(next_load, at_least)
                continue
            if parameters[high] - parameters[low] > cap or not within(bits, low, high):
                continue
            report[1] += 1
            spent += receiving_seconds(rows, graph, low, high)
            if spent > most:
                next_load = min(next_load, spent)
                continue
            weighed = not limited
            width = 0 if blind else edge_start[low + 1] - edge_start[low]
            here = head[high]
            while here >= 0 and not done:
                load = spent
                offset = place[here] - edge_start[high]
                for k in range(edge_start[high], edge_start[high + 1]):
                    if not has(bits, low, source[edge[k]]):
                        load += seconds[edge[k]] * (1 if blind else takers[offset + k])
                if load > most:
                    next_load = min(next_load, load)
                    here = follow[here]
                    continue
                own = np.int64(1)
                if replicas == 0 and load > bound:
                    own = np.int64(np.ceil(load / bound))
                    least = min(least, load / (own - 1))
                if not weighed:
                    few, held = fewest, fixed[high] - fixed[low]
                    while few < sharing and held > rules.limit * few:
                        few += 1
                    memory = stage_memory(
                        bits, low, high, held, computed[high] - computed[low], feed_start, feed, after_start, after,
                        activation, rules, rules.limit * few, last,
                    )  # fmt: skip
                    _fit(memory, rules, few, sharing, replicas, fitting)
                    weighed = True
                found, refused = _put(
                    uses, here, own, fitting, ahead, low, compute[low], replicas, devices, bound, fresh
                )
                least = min(least, refused)
                if found == 0:
                    here = follow[here]
                    continue
                done = low == 0 and (counts.at_most or fresh[num_stages] < _NEVER)
                if not blind:
                    _take(bits, low, high, start, target, edge_start, edge, takers, offset, taken)
                if _useful(head[low], follow, place, takers, uses, taken, width, fresh):
                    if total == most_labels:
                        return TOO_MANY
                    if total == size:
                        size *= 2
                        follow, parent, row = _longer(follow, size), _longer(parent, size), _longer(row, size)
                        place, uses = _longer(place, size + 1), _taller(uses, size)
                    while place[total] + width > len(takers):
                        takers = _longer(takers, 2 * len(takers))
                    for k in range(width):
                        takers[place[total] + k] = taken[k]
                    place[total + 1] = place[total] + width
                    for s in range(num_stages + 1):
                        uses[total, s] = fresh[s]
                    follow[total], parent[total], row[total] = head[low], here, low
                    head[low] = total
                    total += 1
                here = follow[here]
            if done:
                break
        if done:
            break
    report[3] = min(least, next_load / widest)
    report[2] = max(report[2], np.float64(total))
    label, stages = _finish(head[0], follow, uses, num_stages, counts.at_most)
    if label < 0:
        return NONE
    report[0] = stages
    chain[0] = 0
    for position in range(stages):
        above = parent[label]
        chain[position + 1] = row[above]
        chain_replicas[position] = uses[label, stages - position] - uses[above, stages - position - 1]
        label = above
    return FOUND


@inner()
def _within_bound(ahead, bound, useful):
    """Write the rows that can be made up within the bound, ascending; their number, the least time of the others."""
    count, least = ZERO, np.inf
    for r in range(ahead.shape[0]):
        soonest = np.inf
        for s in range(ahead.shape[1]):
            soonest = min(soonest, ahead[r, s])
        if soonest <= bound:
            useful[count] = r
            count += 1
        else:
            least = min(least, soonest)
    return count, least


@inner()
def _fit(memory, rules, few, many, replicas, fitting):
    """``fitting[s]``: the fewest replicas, from ``few`` to ``many``, with which a stage fits in front of s others.

    _NEVER if none do; 1 where ``replicas`` are given. ``memory`` is the stage's, from `stage_memory`.
    """
    least, whole, entering = memory
    for s in range(len(fitting)):
        while few <= many and not keeps(room_for(least, whole, entering, rules.limit * few), s + 1, rules):
            few += 1
        fitting[s] = _NEVER if few > many else 1 if replicas > 0 else few


@inner()
def _put(uses, here, own, fitting, ahead, low, compute, replicas, devices, bound, fresh):
    """Write the devices that a label uses with a stage in front, by the number of stages; _NEVER where it cannot be.

    Returns for how many numbers it can, and the least bound under which it could for more. The stage needs ``own``
    devices for its load and ``fitting[s]`` for its memory; ``compute`` seconds are left in front of it.
    """
    num_stages = len(fitting)
    found, least = ZERO, np.inf
    fresh[0] = _NEVER
    for s in range(num_stages):
        fresh[s + 1] = _NEVER
        if uses[here, s] >= _NEVER or fitting[s] >= _NEVER:
            continue
        together = uses[here, s] + max(own, fitting[s])
        if replicas > 0:
            rest = (num_stages - s - 1) * np.float64(replicas)
        else:
            rest = np.float64(devices - together)
            if rest < 0:
                continue
        if low > 0 and s + 1 == num_stages:
            continue
        if ahead[low, num_stages - s - 1] > bound:
            least = min(least, ahead[low, num_stages - s - 1])
        elif compute <= rest * bound:
            fresh[s + 1] = together
            found += 1
        elif rest > 0:
            least = min(least, compute / rest)
    return found, least


@inner()
def _take(bits, low, high, start, target, edge_start, edge, takers, offset, taken):
    """``taken[k]``: stages that take the k-th tensor across the border of row ``low``, with a stage behind it."""
    j = edge_start[high]
    for k in range(edge_start[low + 1] - edge_start[low]):
        t = edge[edge_start[low] + k]
        while j < edge_start[high + 1] and edge[j] < t:
            j += 1
        taken[k] = 0
        if j < edge_start[high + 1] and edge[j] == t:
            taken[k] = takers[offset + j]
        if lands(bits, low, high, start, target, t):
            taken[k] += 1


@inner()
def _rest(first, follow, uses, num_stages, replicas, devices):
    """Devices (or stages times replicas) that at most are left in front of the stage before a row."""
    fewest, here = _NEVER, first
    while here >= 0:
        for s in range(num_stages):
            if uses[here, s] < fewest:
                fewest = uses[here, s]
        here = follow[here]
    if fewest >= _NEVER:
        return 0.0
    return np.float64((num_stages - fewest - 1) * replicas if replicas > 0 else devices - fewest - 1)


@inner()
def _begin(compute, useful, count, high, limit):
    """Where in ``useful`` the last row before ``high`` of at most ``limit`` seconds is; -1: nowhere."""
    first, last = np.int64(-1), np.int64(count - 1)
    while first < last:
        middle = (first + last + 1) // 2
        if useful[middle] < high and compute[useful[middle]] <= limit:
            first = middle
        else:
            last = middle - 1
    return first


@inner()
def _useful(first, follow, place, takers, uses, taken, width, fresh):
    """Drop from ``fresh`` what labels of the row do as well; True if something is left."""
    here = first
    while here >= 0:
        covers = True
        for k in range(width):
            if takers[place[here] + k] > taken[k]:
                covers = False
                break
        if covers:
            left = False
            for s in range(len(fresh)):
                if fresh[s] < _NEVER:
                    if uses[here, s] <= fresh[s]:
                        fresh[s] = _NEVER
                    else:
                        left = True
            if not left:
                return False
        here = follow[here]
    return True


@inner()
def _finish(first, follow, uses, num_stages, at_most):
    """The label and the number of stages of a plan that needs the fewest devices; -1 if there is none."""
    best, label, stages = _NEVER, np.int64(-1), np.int64(0)
    here = first
    while here >= 0:
        for s in range(1 if at_most else num_stages, num_stages + 1):
            if uses[here, s] < best:
                best, label, stages = uses[here, s], here, np.int64(s)
        here = follow[here]
    return label, stages


@inner()
def _longer(values, size):
    longer = np.empty(size, values.dtype)
    for k in range(len(values)):
        longer[k] = values[k]
    return longer


@inner()
def _taller(values, size):
    taller = np.empty((size, values.shape[1]), values.dtype)
    for r in range(values.shape[0]):
        for s in range(values.shape[1]):
            taller[r, s] = values[r, s]
    return taller


compile_kernels()
