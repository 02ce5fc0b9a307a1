"""Interchangeable devices of a topology: orbits of the symmetries of the bandwidth matrix.

A symmetry is a permutation of the devices that keeps every bandwidth. Each one found is checked in full, so an orbit
is never too large; where the search gives up it may be too small, which costs time and nothing else.
Source: this project.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.device_mapping.data.arrays import Arrays

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
