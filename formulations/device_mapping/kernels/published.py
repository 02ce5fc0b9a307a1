"""Algorithm 2: depth-first search for a mapping whose slowest node meets a target, compiled.

Source: Parmesan, section 5.1; its appendix with the listing is not public, the text describes it.
"""

# mypy: disallow_untyped_decorators=False

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, INTS, compile_kernels, kernel
from formulations.device_mapping.kernels.arrays import Tables

FOUND, NONE, STOPPED = 1, 0, -1


@kernel(Tables, INTS, INTS, INTS, FLOAT, INTS, INTS, FLAG)
def search(tables: Any, order: Any, first: Any, checked: Any, target: Any, device: Any, nodes: Any, flag: Any) -> Any:
    """Assign nodes in order, devices by number; NONE is a proof, up to rounding, that no mapping meets the target.

    Parameters
    ----------
    order, first, checked
        The checking scheme: after ``order[k]`` has its device, the times of ``checked[first[k]:first[k + 1]]`` are
        settled and compared with the target. Where only rings count, a node stands for its link to the next replica.
    device
        Output, shape (n,): the device of each node (only if FOUND).
    nodes
        ``nodes[0]`` counts the devices tried.
    flag
        The search returns STOPPED soon after ``flag[0]`` becomes nonzero.
    """
    slowness, base, start, other, volume = tables.slowness, tables.base, tables.start, tables.other, tables.volume
    ring_bytes, links, replicas = tables.ring_bytes, tables.links, tables.replicas
    n = len(order)
    alone = links > 0 and len(other) == 0
    used = np.zeros(n, np.uint8)
    device[:] = -1
    k = 0
    while k >= 0:
        if k == n:
            return FOUND
        v = order[k]
        d = device[v]
        if d >= 0:
            used[d] = 0
        d += 1
        while d < n:
            if used[d]:
                d += 1
                continue
            nodes[0] += 1
            if nodes[0] & 4095 == 0 and flag[0]:
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
                break
            d += 1
        if d < n:
            used[d] = 1
            k += 1
        else:
            device[v] = -1
            k -= 1
    return NONE


compile_kernels(__name__)
