"""Two rings side by side: whether replicas of two stages that exchange tensors can go around together within a target.

Replica r of both ends of an edge is a rung: two devices near enough for its tensors. From each rung a link of either
ring leads to the next one, so R rungs of 2 R devices are a closed ladder. Between neighbours of a grid ladders run
straight, so on a torus of 16 x 16 none has 32 rungs: a ring or a tensor takes more links than one there, where each
stage alone needs one. Rungs with fewer than two next ones go, again and again; of those left a connected part has to
hold R devices of each stage. With one speed of each ring at a time this is a relaxation. Source: this project.
"""

import itertools
from collections.abc import Callable

import numpy as np

from formulations.device_mapping.data.arrays import SLACK, Arrays, Floats, Mask, with_slack

#: With more bandwidths, or devices, pairs of rings are not looked at.
_MOST_LEVELS, _MOST_DEVICES = 64, 512


def ladders_fit(arrays: Arrays, target: float, is_stopped: Callable[[], bool] = lambda: False) -> bool:
    """Whether each edge's stages may have rings side by side at a target; false is a proof, true once stopped."""
    many = len(arrays.levels) > _MOST_LEVELS or arrays.num_devices > _MOST_DEVICES
    if many or not arrays.has_rings or arrays.separate_rings:
        return True
    return all(_fits(arrays, with_slack(target), edge, is_stopped) for edge in range(len(arrays.edges)))


def _fits(arrays: Arrays, target: float, edge: int, is_stopped: Callable[[], bool]) -> bool:
    one, other, volume = arrays.edges[edge]
    sending = volume * arrays.seconds_per_byte
    ways = (_rings(arrays, stage, edge, target) for stage in (one, other))
    return any(
        is_stopped()
        or _has_ladder((sending + s[:, None] <= target) & (sending + t[None, :] <= target), near, far, arrays.replicas)
        for (s, near), (t, far) in itertools.product(*ways)
    )


def _rings(arrays: Arrays, stage: int, edge: int, target: float) -> list[tuple[Floats, Mask]]:
    """For each speed of the stage's ring the least seconds of a node on each device but for an edge, and the links."""
    volumes = sorted((volume for number, volume in arrays.incident[stage] if number != edge), reverse=True)
    seconds = np.full(arrays.num_devices, arrays.compute[stage])
    for volume, fastest in zip(volumes, np.sort(arrays.seconds_per_byte, axis=1).T, strict=False):
        seconds = seconds + volume * fastest
    if arrays.ring[stage] <= 0:
        return [(seconds, arrays.speed > 0)]
    ways = [(seconds + arrays.ring[stage] / level, arrays.speed >= level * (1 - SLACK)) for level in arrays.levels]
    return [(each, near) for each, near in ways if each.min() <= target]


def _has_ladder(rungs: Mask, near: Mask, far: Mask, replicas: int) -> bool:
    """Whether R of ``rungs[d, f]`` may be a ladder, its rails links ``near[d, d']`` of one ring and ``far[f, f']``."""
    one, other = near.astype(np.float32), far.astype(np.float32)
    left = rungs & False
    while (left != rungs).any():
        left = rungs
        into, out = one @ left, left @ other
        # all next rungs, less those that use a device of this one
        following = into @ other - one * np.diag(out) - other * np.diag(into)[:, None] + one * other * left.T
        rungs = left & (following >= min(replicas - 1, 2) - 0.5)
    unseen, devices = rungs.copy(), np.arange(len(rungs))
    while unseen.any():
        part = [divmod(int(np.argmax(unseen)), len(unseen))]
        unseen[part[0]] = False
        passed: tuple[set[int], set[int]] = (set(), set())
        for d, f in part:
            passed[0].add(d)
            passed[1].add(f)
            if min(map(len, passed)) >= replicas:
                return True
            reached = np.ix_(near[d] & (devices != f), far[f] & (devices != d))
            for i, j in np.argwhere(unseen[reached]):
                part.append((int(reached[0][i, 0]), int(reached[1][0, j])))
                unseen[part[-1]] = False
    return False
