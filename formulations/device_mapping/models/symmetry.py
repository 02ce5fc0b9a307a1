"""Interchangeable devices of a topology: orbits of the symmetries of the bandwidth matrix.

A symmetry is a permutation of the devices that keeps every bandwidth. Each one found is checked in full, so an orbit
is never too large; where the search gives up it may be too small, which costs time and nothing else.
Source: this project.
"""

import numpy as np
from numpy.typing import NDArray

from formulations.device_mapping.data.arrays import Arrays
from formulations.device_mapping.definition.plan import Mapping

Ints = NDArray[np.int64]

#: More devices than this are not searched, and so many steps of a search are made.
_MAX_DEVICES, _STEPS = 128, 4000


def orbits(arrays: Arrays) -> tuple[int, ...]:
    """For each device the least device that a symmetry takes it to."""
    count = arrays.num_devices
    least = list(range(count))
    if count > _MAX_DEVICES:
        return tuple(least)
    classes: Ints = np.unique(arrays.speed, return_inverse=True)[1].reshape(count, count).astype(np.int64)
    shape = np.sort(classes, axis=1)
    for device in range(1, count):
        if least[device] != device:
            continue
        for root in range(device):
            if least[root] != root or not (shape[root] == shape[device]).all():
                continue
            permutation = _symmetry(classes, shape, device, root)
            if permutation is not None:
                _merge(least, permutation)
                break
    return tuple(least)


def _merge(least: list[int], permutation: list[int]) -> None:
    """Join the orbits that a permutation connects."""
    for device, image in enumerate(permutation):
        one, other = least[device], least[image]
        if one != other:
            low, high = min(one, other), max(one, other)
            for each, root in enumerate(least):
                if root == high:
                    least[each] = low


def _symmetry(classes: Ints, shape: Ints, start: int, image: int) -> list[int] | None:
    """A symmetry that takes ``start`` to ``image``; ``None`` if there is none or the search gives up."""
    count = len(classes)
    same_shape = (shape[:, None, :] == shape[None, :, :]).all(axis=2)
    order = [start, *(device for device in range(count) if device != start)]
    images: list[int] = []
    # options[k]: images that the first k choices leave for each device.
    options = [same_shape.copy()]
    tries = [iter([image])]
    for _ in range(_STEPS):
        chosen = next(tries[-1], None)
        if chosen is None:
            tries.pop()
            options.pop()
            if not tries:
                return None
            images.pop()
            continue
        device = order[len(images)]
        left = options[-1] & (classes[device][:, None] == classes[chosen][None, :])
        left[:, chosen] = False
        left[device, :] = False
        left[device, chosen] = True
        if not left[order[len(images) :]].any(axis=1).all():
            continue
        images.append(int(chosen))
        if len(images) == count:
            return [dict(zip(order, images, strict=True))[device] for device in range(count)]
        options.append(left)
        # The device with the fewest images left comes next.
        rest = order[len(images) :]
        following = min(rest, key=lambda device: int(left[device].sum()))
        order.remove(following)
        order.insert(len(images), following)
        tries.append(iter(np.nonzero(left[following])[0].tolist()))
    return None


def in_turn(arrays: Arrays) -> list[tuple[tuple[bool, int, int], tuple[bool, int, int]]]:
    """Pairs of nodes of which the first has the lesser device in one of all equivalent plans (`canonical`).

    A node is (whether it is a position of a ring, stage, slot). Replicas have numbers of their own only where rings go
    by them or requirements speak of them; rings may be turned and mirrored.
    """
    if arrays.numbered:
        return []
    slots, separate = range(arrays.replicas), arrays.separate_rings
    found = []
    if separate or not arrays.has_rings:
        found += [((False, 0, r), (False, 0, r + 1)) for r in slots[:-1]]
    if arrays.has_rings:
        for s in range(arrays.num_stages if separate or not arrays.edges else 1):
            found += [((separate, s, 0), (separate, s, i)) for i in slots[1:]]
            found += [((separate, s, 1), (separate, s, slots[-1]))] if len(slots) > 2 else []
    return found


def canonical(arrays: Arrays, plan: Mapping) -> Mapping:
    """The equivalent plan in which nodes are `in_turn`."""
    if arrays.numbered:
        return plan
    rows = [list(row) for row in plan.devices]
    rings = (
        [[rows[s][r] for r in ring] for s, ring in enumerate(plan.rings)] if plan.rings else [list(row) for row in rows]
    )
    if arrays.separate_rings or not arrays.has_rings:
        order = sorted(range(arrays.replicas), key=lambda r: rows[0][r])
        rows = [[row[r] for r in order] for row in rows]
        rings = [[ring[i] for i in _canonical_ring(ring)] for ring in rings]
    elif arrays.edges:
        rows = [[row[i] for i in _canonical_ring(rows[0])] for row in rows]
    else:
        rows = rings = [[ring[i] for i in _canonical_ring(ring)] for ring in rings]
    if not arrays.separate_rings:
        return Mapping(tuple(map(tuple, rows)))
    return Mapping(
        tuple(map(tuple, rows)), tuple(tuple(row.index(d) for d in ring) for row, ring in zip(rows, rings, strict=True))
    )


def _canonical_ring(ring: list[int]) -> list[int]:
    """The order of a ring's positions from its least device on, towards the lesser of the two next to it."""
    count, first = len(ring), ring.index(min(ring))
    step = 1 if ring[(first + 1) % count] <= ring[first - 1] else -1
    return [(first + step * i) % count for i in range(count)]


def device_order(arrays: Arrays, known: Mapping | None) -> tuple[list[int], list[int]]:
    """The devices in the order that `in_turn` goes by, and for each the first that a symmetry takes it to.

    The first node of the known plan is on the first device of all, so that plan is one of those that are left.
    """
    least, natural = list(orbits(arrays)), list(range(arrays.num_devices))
    if arrays.numbered or known is None:
        return natural, natural if arrays.numbered else least
    first = canonical(arrays, known).devices[0][0]
    return [first, *(d for d in natural if d != first)], [first if root == least[first] else root for root in least]
