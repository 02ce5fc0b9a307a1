"""Algorithm 2: depth-first search for a mapping whose slowest node meets a target, compiled.

Source: Parmesan, section 5.1; its appendix with the listing is not public, the text describes it.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Ints, Ints2
from formulations.compiled.numba_kernels import FLAG, FLOAT, INTS, compile_kernels, kernel
from formulations.device_mapping.kernels.arrays import Tables

FOUND, NONE, STOPPED = 1, 0, -1


class Scheme(NamedTuple):
    """In which order a search assigns nodes and tries devices, and what it checks when: the checking scheme.

    Parameters
    ----------
    order
        The nodes, shape (n,).
    first, checked
        After ``order[k]`` has its device, the times of ``checked[first[k]:first[k + 1]]`` are settled and compared with
        the target; shapes (n + 1,) and (n,). Where only rings count, a node stands for its link to the next replica.
    anchor
        The node whose device says in which order the devices of ``order[k]`` are tried, shape (n,); -1: none.
    near
        Devices in the order in which they are tried beside device d, and last where there is none; shape (n + 1, n).
    """

    order: Ints
    first: Ints
    checked: Ints
    anchor: Ints
    near: Ints2


@kernel(Tables, Scheme, FLOAT, FLOAT, INTS, INTS, FLAG)
def search(tables: Any, scheme: Any, target: Any, most: Any, device: Any, nodes: Any, flag: Any) -> Any:
    """Assign nodes and try devices in the orders of the scheme; NONE: up to rounding, no mapping meets the target.

    Parameters
    ----------
    device
        Output, shape (n,): the device of each node (only if FOUND).
    nodes
        ``nodes[0]`` counts the devices tried.
    flag
        The search returns STOPPED soon after ``flag[0]`` becomes nonzero, and after ``most`` devices tried.
    """
    order, first, checked, anchor, near = scheme.order, scheme.first, scheme.checked, scheme.anchor, scheme.near
    slowness, base, start, other, volume = tables.slowness, tables.base, tables.start, tables.other, tables.volume
    ring_bytes, links, replicas = tables.ring_bytes, tables.links, tables.replicas
    n = len(order)
    alone = links > 0 and len(other) == 0
    used = np.zeros(n, np.uint8)
    tried = np.zeros(n, np.int64)
    device[:] = -1
    k = 0
    while k >= 0:
        if k == n:
            return FOUND
        v = order[k]
        if device[v] >= 0:
            used[device[v]] = 0
        beside = device[anchor[k]] if anchor[k] >= 0 else n
        fits = False
        while not fits and tried[k] < n:
            d = near[beside, tried[k]]
            tried[k] += 1
            if used[d]:
                continue
            nodes[0] += 1
            if nodes[0] > most or (nodes[0] & 4095 == 0 and flag[0]):
                return STOPPED
            device[v] = d
            fits = True
            for c in range(first[k], first[k + 1]):
                x = checked[c]
                s, r = x // replicas, x % replicas
                seconds = base[s]
                for e in range(start[s], start[s + 1]):
                    seconds += volume[e] * slowness[device[x], device[other[e] * replicas + r]]
                slowest = 0.0
                for i in range(r if alone else 0, r + 1 if alone else links):
                    a, b = device[s * replicas + i], device[s * replicas + (i + 1) % replicas]
                    slowest = max(slowest, slowness[a, b])
                if seconds + ring_bytes[s] * slowest > target:
                    fits = False
                    break
        if fits:
            used[device[v]] = 1
            k += 1
        else:
            device[v] = -1
            tried[k] = 0
            k -= 1
    return NONE


compile_kernels()
