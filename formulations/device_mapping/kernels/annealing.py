"""Annealing by swaps towards a target, compiled.

A mapping meets the target t if every stage s has a cap c for the links of its ring such that each link takes at most c
and each replica exchanges its tensors within t - base[s] - c. The energy of a mapping with caps is the sum of all
excesses over these limits; it is 0 exactly where the target is met.

Source: reconstructed; the paper has no local search.
"""

# mypy: disallow_untyped_decorators=False

import math

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, INT, TRUTH, WORDS, compile_kernels, inner, kernel
from formulations.device_mapping.kernels.arrays import Layout, Loads, Tables

#: Share of the trials that reverse a part of a ring, where that is allowed.
REVERSALS = 0.3

#: Share of the trials whose first node is any, not one over its limits.
ANYWHERE = 0.5

#: Random numbers: multiplier and increment of a 64-bit linear congruential generator (Knuth, MMIX).
_FACTOR, _STEP = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
_SHIFT, _UNIT = np.uint64(33), 1.0 / 2**31


@inner(wraps=True)
def _random(state):
    """The next number from 0 to below 1."""
    state[0] = state[0] * _FACTOR + _STEP
    return (state[0] >> _SHIFT) * _UNIT


@inner()
def _over(value, limit):
    return value - limit if value > limit else 0.0


@kernel(Tables, Layout, Loads)
def refresh(tables, layout, loads):
    """Write the seconds that every node exchanges tensors (``sending``) and that every link of a ring takes."""
    slowness, other, replicas, device, ring = tables.slowness, tables.other, tables.replicas, layout.device, layout.ring
    for v in range(len(device)):
        s, r = v // replicas, v % replicas
        total = 0.0
        for e in range(tables.start[s], tables.start[s + 1]):
            total += tables.volume[e] * slowness[device[v], device[other[e] * replicas + r]]
        loads.sending[v] = total
        loads.link[v] = 0.0
        if r < tables.links:
            after = s * replicas + (r + 1) % replicas
            loads.link[v] = tables.ring_bytes[s] * slowness[device[ring[v]], device[ring[after]]]


@kernel(Tables, Loads)
def slowest(tables, loads):
    """Seconds of the slowest node."""
    seconds, replicas = 0.0, tables.replicas
    for s in range(len(tables.base)):
        longest, ringing = 0.0, 0.0
        for r in range(replicas):
            longest = max(longest, loads.sending[s * replicas + r])
            ringing = max(ringing, loads.link[s * replicas + r])
        seconds = max(seconds, tables.base[s] + longest + ringing)
    return seconds


@kernel(Tables, FLOAT, Loads)
def set_caps(tables, target, loads):
    """Write each stage's best cap for the links of its ring, and what is left for its tensors; return the energy.

    With caps c the excess of a stage is convex in c, with a break wherever a link takes c or a replica's tensors leave
    just c; it is least at the break that as many breaks as there are links do not exceed.
    """
    base, start, links, replicas = tables.base, tables.start, tables.links, tables.replicas
    sending, link, cap, room = loads.sending, loads.link, loads.cap, loads.room
    energy = 0.0
    for s in range(len(base)):
        first = s * replicas
        budget = target - base[s]
        if links == 0:
            cap[s] = 0.0
        elif start[s] == start[s + 1]:
            cap[s] = budget
        else:
            # The links-th smallest of all breaks, by bisection: exact enough for a cap, and without sorting.
            low, high = 0.0, max(budget, 0.0)
            for _ in range(40):
                middle = 0.5 * (low + high)
                below = 0
                for v in range(first, first + replicas):
                    if budget - sending[v] <= middle:
                        below += 1
                for v in range(first, first + links):
                    if link[v] <= middle:
                        below += 1
                if below >= links:
                    high = middle
                else:
                    low = middle
            cap[s] = high
        room[s] = budget - cap[s]
        for v in range(first, first + replicas):
            energy += _over(sending[v], room[s])
        for v in range(first, first + links):
            energy += _over(link[v], cap[s])
    return energy


@inner()
def _mark(v, bad, listed, where, count):
    """Keep ``listed[:count]`` the nodes that are over a limit; returns the new count."""
    if bad and where[v] < 0:
        listed[count] = v
        where[v] = count
        return count + 1
    if not bad and where[v] >= 0:
        last = listed[count - 1]
        listed[where[v]] = last
        where[last] = where[v]
        where[v] = -1
        return count - 1
    return count


@kernel(Tables, Layout, Loads, TRUTH, FLOAT, FLOAT, FLOAT, FLOAT, INT, WORDS, FLAG)
def anneal(tables, layout, loads, reorder, blocks, energy, hot, cold, moves, state, flag):
    """Swap devices (and, with ``reorder``, reverse parts of rings) until the energy is 0; returns the energy.

    The temperature falls geometrically from ``hot`` to ``cold`` seconds over ``moves`` trials. One of the two nodes of
    a trial is over its limits. One trial in ``blocks`` moves a row of devices. ``state`` holds the random numbers.

    One long loop on purpose: in functions of their own its steps take seven times as long, as numba then counts
    references to every array at every trial.
    """
    slowness, start, other, volume, ring_bytes = (
        tables.slowness, tables.start, tables.other, tables.volume, tables.ring_bytes
    )  # fmt: skip
    links, replicas, device, ring, place = tables.links, tables.replicas, layout.device, layout.ring, layout.place
    sending, link, cap, room = loads.sending, loads.link, loads.cap, loads.room
    n = len(device)
    num_stages = len(ring_bytes)
    listed = np.empty(n, np.int64)
    where = np.full(n, -1)
    count = 0
    for v in range(n):
        s = v // replicas
        bad = sending[v] > room[s]
        if links > 0:
            i = place[v]
            before = s * replicas + (i - 1 if i > 0 else replicas - 1)
            bad = bad or link[s * replicas + i] > cap[s] or link[before] > cap[s]
        count = _mark(v, bad, listed, where, count)
    touched = np.empty(2 * num_stages + 2, np.int64)
    change = np.zeros(n)
    seen = np.zeros(n, np.uint8)
    old_link = np.empty(4, np.int64)
    new_link = np.empty(4)
    cooling = (cold / hot) ** (1.0 / max(1, moves))
    heat = hot
    for move in range(moves):
        heat *= cooling
        if count == 0 or (move & 1023 == 0 and flag[0]):
            break
        u = listed[min(count - 1, int(_random(state) * count))]
        if _random(state) < ANYWHERE:
            u = int(_random(state) * n)
        s = u // replicas
        if reorder and links > 3 and _random(state) < REVERSALS:
            # Reverse the part of the ring behind u, or the part up to u: two links change.
            i = place[u]
            if _random(state) < 0.5:
                i = i - 1 if i > 0 else replicas - 1
            j = int(_random(state) * replicas)
            if i > j:
                i, j = j, i
            first = s * replicas
            end = j + 1 if j + 1 < replicas else 0
            if i == j or end == i:
                continue
            a, b = ring[first + i], ring[first + i + 1]
            c, d = ring[first + j], ring[first + end]
            cost_i = ring_bytes[s] * slowness[device[a], device[c]]
            cost_j = ring_bytes[s] * slowness[device[b], device[d]]
            limit = cap[s]
            delta = _over(cost_i, limit) + _over(cost_j, limit)
            delta -= _over(link[first + i], limit) + _over(link[first + j], limit)
            if delta > 0 and _random(state) >= math.exp(-delta / heat):
                continue
            energy += delta
            x, y = i + 1, j
            while x < y:
                ring[first + x], ring[first + y] = ring[first + y], ring[first + x]
                x += 1
                y -= 1
            x, y = i + 1, j - 1
            while x < y:
                link[first + x], link[first + y] = link[first + y], link[first + x]
                x += 1
                y -= 1
            for x in range(i + 1, j + 1):
                place[ring[first + x]] = x
            link[first + i], link[first + j] = cost_i, cost_j
            for v in (a, b, c, d):
                k = place[v]
                before = first + (k - 1 if k > 0 else replicas - 1)
                bad = sending[v] > room[s] or link[first + k] > limit or link[before] > limit
                count = _mark(v, bad, listed, where, count)
            continue
        # Swap the devices of `length` nodes from u on with those from w on: along the rings (or backwards from w, which
        # turns a part of a ring around), or from stage to stage.
        w = int(_random(state) * n)
        length, along, forth = 1, True, 1
        if _random(state) * blocks < 1.0:
            along = _random(state) < 0.5
            if along and _random(state) < 0.5:
                w = ring[w // replicas * replicas + place[u]]
            t = w // replicas
            if along and links > 0 and not reorder and _random(state) < 0.5:
                forth = -1
            if along and s == t and forth < 0:
                length = ((place[w] - place[u]) % replicas + 1) // 2
            elif along:
                length = replicas if s != t else min((place[u] - place[w]) % replicas, (place[w] - place[u]) % replicas)
            else:
                length = min(num_stages - s, num_stages - t)
                if u % replicas == w % replicas:
                    length = min(length, abs(s - t))
            if (forth > 0 or s != t) and _random(state) < 0.5:
                length = 1 + int(_random(state) * length)
        if w == u:
            continue
        total = 0.0
        step, steps = 0, length
        while step < steps:
            k = step if step < length else 2 * length - 1 - step
            x, y = u, w
            if along:
                x = ring[s * replicas + (place[u] + k) % replicas]
                t = w // replicas
                y = ring[t * replicas + (place[w] + forth * k) % replicas]
            else:
                x, y = u + k * replicas, w + k * replicas
            step += 1
            # What the swap changes: tensors of the two nodes and of their neighbours, and up to four links (a link
            # between the two is looked at twice, but does not change).
            dx, dy = device[x], device[y]
            device[x], device[y] = dy, dx
            delta = 0.0
            number = 0
            for v, was in ((x, dx), (y, dy)):
                q, r = v // replicas, v % replicas
                now = device[v]
                if start[q] < start[q + 1] and seen[v] == 0:
                    seen[v] = 1
                    touched[number] = v
                    number += 1
                for e in range(start[q], start[q + 1]):
                    z = other[e] * replicas + r
                    if z == x or z == y:
                        continue  # the two swap the ends of one link
                    by = volume[e] * (slowness[now, device[z]] - slowness[was, device[z]])
                    change[v] += by
                    change[z] += by
                    if seen[z] == 0:
                        seen[z] = 1
                        touched[number] = z
                        number += 1
            for k in range(number):
                v = touched[k]
                limit = room[v // replicas]
                delta += _over(sending[v] + change[v], limit) - _over(sending[v], limit)
            num_links = 0
            if links > 0:
                for v in (x, y):
                    q = v // replicas
                    for back in range(2):
                        i = place[v] - back
                        k = q * replicas + (i if i >= 0 else replicas - 1)
                        if k - q * replicas >= links:
                            continue
                        after = k + 1 if k + 1 < (q + 1) * replicas else q * replicas
                        cost = ring_bytes[q] * slowness[device[ring[k]], device[ring[after]]]
                        old_link[num_links] = k
                        new_link[num_links] = cost
                        num_links += 1
                        delta += _over(cost, cap[q]) - _over(link[k], cap[q])
            total += delta
            if length > 1 or delta <= 0 or _random(state) < math.exp(-delta / heat):
                energy += delta
                for k in range(number):
                    sending[touched[k]] += change[touched[k]]
                for k in range(num_links):
                    link[old_link[k]] = new_link[k]
                for k in range(number + 2 * num_links):
                    if k < number:
                        v = touched[k]
                    else:
                        v = old_link[(k - number) // 2]
                        if (k - number) % 2:
                            v = v + 1 if (v + 1) % replicas else v + 1 - replicas
                        v = ring[v]
                    q = v // replicas
                    bad = sending[v] > room[q]
                    if links > 0:
                        i = place[v]
                        before = q * replicas + (i - 1 if i > 0 else replicas - 1)
                        bad = bad or link[q * replicas + i] > cap[q] or link[before] > cap[q]
                    count = _mark(v, bad, listed, where, count)
            else:
                device[x], device[y] = dx, dy
            for k in range(number):
                change[touched[k]] = 0.0
                seen[touched[k]] = 0
            if step == length and length > 1 and steps == length and total > 0:
                if _random(state) >= math.exp(-total / heat):
                    steps = 2 * length  # take it back, from its end on
    return energy


compile_kernels()
