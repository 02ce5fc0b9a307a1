"""Alpa's choice of stages with submeshes of their own, beside the optimum of its formula with any number of devices.

Intervals of a chain's layers have a cost on each submesh, as what Alpa measures. The formula is S + (m - 1) C: all
stages once, and the slowest for each other micro-batch. It counts neither sums of gradients nor what is sent between
stages, and a micro-batch is shared by the d replicas of a stage.

Source: Zheng et al. 2022, section 5.2, and alpa/pipeline_parallel/stage_construction.py, commit 01d71eb.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from instances.problems.stage_partitioning import StageInstance
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note

#: Model, devices, micro-batches, GiB of a device.
SETTINGS = (
    ("bert32", 8, 64, 80.0),
    ("bert32", 16, 64, 80.0),
    ("bert32", 16, 64, 16.0),
    ("bert32", 24, 64, 80.0),
    ("bert32", 32, 64, 16.0),
    ("gpt", 8, 64, 80.0),
    ("gpt", 16, 64, 80.0),
    ("gpt", 16, 64, 24.0),
    ("gpt", 24, 64, 80.0),
    ("gpt", 32, 256, 24.0),
)
#: Layers that operators are clustered into before stages are chosen, as Alpa's users set it; devices of a host.
_LAYERS, _HOST = 16, 8
#: Thresholds that are closer to the last one are skipped, in seconds, as in the release.
_GAP = 1e-6


#: First layer, one behind the last, and devices.
Stage = tuple[int, int, int]


class Costs(NamedTuple):
    """By first layer, one behind the last, and devices: seconds, for each number of stages that may follow.

    ``cost[s]`` are those of stages that s others follow; infinite where none fits. All have shape (S, L, L + 1, K + 1).
    """

    cost: NDArray[np.float64]

    @property
    def layers(self) -> int:
        """L."""
        return int(self.cost.shape[1])


def submeshes(devices: int, *, powers: bool) -> tuple[int, ...]:
    """Alpa's: powers of two within a host, and whole hosts, of which its default takes ``powers`` of two."""
    found = (each for each in range(1, devices + 1) if each % _HOST == 0 or (each.bit_count() == 1 and each < _HOST))
    return tuple(each for each in found if not powers or each.bit_count() == 1)


def grouped(count: int, groups: int, times: Sequence[float]) -> list[range]:
    """Layers 0 to count - 1 in so many parts of about equal time, each with a layer at least."""
    share, ends = math.fsum(times) / groups, [0]
    for part in range(1, groups):
        sums = np.cumsum(times)
        end = int(np.searchsorted(sums, part * share)) + 1
        ends.append(min(max(end, ends[-1] + 1), count - groups + part))
    return [range(x, y) for x, y in zip(ends, [*ends[1:], count], strict=True)]


def costs_of(instance: StageInstance, groups: int) -> Costs:
    """What each interval costs on each number of devices: the fastest of its shapes (t, d), recomputing all or nothing.

    A stage that s others follow holds s + 1 micro-batches, as in 1F1B.
    """
    chain, K, unit = instance.layers, instance.num_devices, 1e-3 if instance.time_unit == "ms" else 1.0
    times = [min(x.time for x in layer.tmpcs[min(layer.tmpcs)]) for layer in chain]
    parts = grouped(len(chain), min(groups, len(chain)), times)
    L = len(parts)
    S = min(L, K)
    cost = np.full((S, L, L + 1, K + 1), math.inf)
    for t in sorted(set.intersection(*(set(layer.tmpcs) for layer in chain))):
        for pick in (min, max):  # all layers keep everything, or as little as they can
            ways = [pick(layer.tmpcs[t], key=lambda x: x.time) for layer in chain]
            sums = [
                np.concatenate(([0.0], np.cumsum([math.fsum(getattr(ways[v], name) for v in part) for part in parts])))
                for name in ("time", "static_bytes", "activation_bytes")
            ]
            for x in range(L):
                for y in range(x + 1, L + 1):
                    time, static, held = (float(each[y] - each[x]) for each in sums)
                    for s in range(S):
                        if static + (s + 1) * held <= instance.memory_bytes:
                            for d in range(1, min(K // t, instance.num_microbatches) + 1):
                                cost[s, x, y, d * t] = min(cost[s, x, y, d * t], time * unit / d)
    return Costs(np.round(cost, 9))


def choose(costs: Costs, devices: int, microbatches: int, widths: Sequence[int], gap: float) -> float:
    """The least S + (m - 1) C of stages on all devices, each on one of ``widths``; infinite if there is none."""
    return min((found for found, _ in thresholds(costs, devices, microbatches, widths, gap)), default=math.inf)


def thresholds(
    costs: Costs, devices: int, microbatches: int, widths: Sequence[int], gap: float
) -> Iterator[tuple[float, tuple[Stage, ...]]]:
    """For each cost C as the most that a stage may take, ascending: stages of the least S, and their S + (m - 1) C.

    None is looked at that is closer than ``gap`` to the one before, or alone takes as long as the best so far. Below an
    equal share of all work there are no such stages.
    """
    own = np.full_like(costs.cost, math.inf)
    own[..., list(widths)] = costs.cost[..., list(widths)]
    work = (costs.cost[..., 1:] * np.arange(1, costs.cost.shape[3])).min(axis=(0, 3))
    least = [math.inf] * costs.layers + [0.0]
    for x in reversed(range(costs.layers)):
        least[x] = min(float(work[x, y]) + least[y] for y in range(x + 1, costs.layers + 1))
    share = least[0] / devices * (1 - 1e-6)
    best, last = math.inf, 0.0
    for most in map(float, np.unique(own[np.isfinite(own)])):
        if microbatches * most >= best:
            return
        if most - last >= gap:
            last = most
            if most >= share:
                found, stages = _least_sum(np.where(own <= most, own, math.inf), devices)
                if stages:
                    slowest = max(float(own[(len(stages) - 1 - place, *each)]) for place, each in enumerate(stages))
                    found += (microbatches - 1) * slowest
                    best = min(best, found)
                    yield found, stages


def _least_sum(own: NDArray[np.float64], devices: int) -> tuple[float, tuple[Stage, ...]]:
    """The least sum of stages on all devices, and these; none if there are none."""
    S, L, _, width = own.shape
    after = np.full((L + 1, devices + 1), math.inf)
    after[L, 0] = 0.0  # by first layer and devices, so many stages from there on
    taken = np.zeros((S, L, devices + 1, 2), dtype=int)  # where the first of them ends, and its devices
    sums: list[float] = []  # from the first layer on, by number of stages
    for stages in range(S):
        here = np.full_like(after, math.inf)
        for used in range(1, min(width - 1, devices) + 1):
            ahead = own[stages, :, :, used]  # a stage on so many devices, which `stages` others follow
            if not np.isfinite(ahead).any():
                continue
            both = ahead[:, :, None] + after[None, :, : devices + 1 - used]
            ends = both.argmin(axis=1)
            least = np.take_along_axis(both, ends[:, None], 1)[:, 0]
            is_less = least < here[:L, used:]
            here[:L, used:][is_less] = least[is_less]
            taken[stages, :, used:, 0][is_less], taken[stages, :, used:, 1][is_less] = ends[is_less], used
        after = here
        sums.append(float(after[0, devices]))
    if min(sums) == math.inf:
        return math.inf, ()
    chosen, first, left = [], 0, devices
    for stages in reversed(range(sums.index(min(sums)) + 1)):
        end, used = taken[stages, first, left].tolist()
        chosen.append((first, end, used))
        first, left = end, left - used
    return min(sums), tuple(chosen)


def run(_inputs: str | None, note: Note) -> Evidence:
    """Every setting with Alpa's submeshes, with any number of devices, and with equal ones."""
    rows: list[dict[str, Any]] = []
    for name, devices, microbatches, memory in SETTINGS:
        note(f"{name}, {devices} devices, {memory:g} GiB")
        given: dict[str, Any] = {"devices": devices, "memory": f"{memory}GiB", "microbatches": microbatches}
        costs, any_width = costs_of(cast(StageInstance, load(name, **given)), _LAYERS), range(1, devices + 1)
        best = choose(costs, devices, microbatches, any_width, 0.0)
        meshes = {space: submeshes(devices, powers=space == "powers") for space in ("powers", "hosts")}
        row: dict[str, Any] = {"model": name, "devices": devices, "microbatches": microbatches, "memory_gib": memory}
        row |= {"best_s": best, "alpa_s": choose(costs, devices, microbatches, meshes["powers"], _GAP)}
        for space, widths in meshes.items():
            row[f"{space}_percent"] = _lost(choose(costs, devices, microbatches, widths, 0.0), best)
        row["gap_percent"] = _lost(row["alpa_s"], best * (1 + row["powers_percent"] / 100))
        equal = min(choose(costs, devices, microbatches, (each,), 0.0) for each in any_width if devices % each == 0)
        row["equal_percent"] = _lost(equal, best)
        rows.append(row)
    return Evidence(
        tuple(rows),
        f"catalog; {_LAYERS} layers of about equal time, hosts of {_HOST} devices",
        notes=(
            "best_s: the least S + (m - 1) C with any number of devices for each stage, over all C",
            "powers_percent, hosts_percent: with the submeshes of Alpa's default and with those of any whole hosts",
            "gap_percent: what the release loses beside by thresholds that it skips; equal_percent: equal submeshes",
        ),
    )


def _lost(found: float, best: float) -> float:
    return 100 * (found / best - 1)
