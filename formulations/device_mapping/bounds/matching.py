"""Whether devices can be assigned to stages, R to each: Hall's condition, by augmenting paths over stages."""

import numpy as np
from numpy.typing import NDArray

from formulations.device_mapping.data.arrays import Floats, Mask

Ints = NDArray[np.int64]


def can_deal(allowed: Mask, each: int) -> bool:
    """Whether every stage gets ``each`` devices that it allows; ``allowed`` has shape (S, D) with D = S x ``each``."""
    num_stages, num_devices = allowed.shape
    if (allowed.sum(axis=1) < each).any() or not allowed.any(axis=0).all():
        return False
    given = np.full(num_devices, -1, dtype=np.int64)
    count = np.zeros(num_stages, dtype=np.int64)
    for device in np.argsort(allowed.sum(axis=0), kind="stable"):
        open_stages = np.nonzero(allowed[:, device] & (count < each))[0]
        if len(open_stages):
            stage = open_stages[np.argmin(allowed[open_stages].sum(axis=1))]
            given[device] = stage
            count[stage] += 1
    return all(_augment(allowed, each, given, count, int(device)) for device in np.nonzero(given < 0)[0])


def _augment(allowed: Mask, each: int, given: Ints, count: Ints, device: int) -> bool:
    """Find a stage for one more device, moving others from stage to stage."""
    through: dict[int, int] = {int(stage): device for stage in np.nonzero(allowed[:, device])[0]}
    queue = list(through)
    for stage in queue:
        if count[stage] < each:
            count[stage] += 1
            _move(given, through, stage, device)
            return True
        mine = given == stage
        for other in np.nonzero(allowed[:, mine].any(axis=1))[0]:
            if int(other) not in through:
                through[int(other)] = int(np.nonzero(mine & allowed[other])[0][0])
                queue.append(int(other))
    return False


def _move(given: Ints, through: dict[int, int], stage: int, device: int) -> None:
    while True:
        moved = through[stage]
        before = int(given[moved])
        given[moved] = stage
        if moved == device:
            return
        stage = before


def bottleneck_cost(costs: Floats, each: int) -> float:
    """The least largest cost of an assignment (bottleneck); ``costs`` has shape (S, D), infinite if forbidden.

    Infinite if there is none.
    """
    values = np.unique(costs[np.isfinite(costs)])
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if can_deal(costs <= values[middle], each):
            high = middle
        else:
            low = middle + 1
    return float(values[low]) if low < len(values) else float("inf")
