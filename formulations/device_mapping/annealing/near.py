"""Annealing by swaps: targets below the best mapping are tried with more and more moves.

Source: reconstructed. Time plays no part in the search, only in when it is cut off, so a seed gives the same plan.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.device_mapping.annealing import stage_by_stage
from formulations.device_mapping.annealing.baselines import pipeline_major, stage_major
from formulations.device_mapping.data.arrays import arrays, plan_of
from formulations.device_mapping.data.costs import single_bound, tables
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate
from formulations.device_mapping.kernels import annealing
from formulations.device_mapping.kernels.arrays import Layout, Loads, Tables
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Prover, Stop, Watch

#: Levels of effort; each tries targets with ``GROWTH`` times the moves of the level before.
LEVELS, GROWTH = 4, 4
#: Moves of one target on the first level, for each device.
MOVES_PER_DEVICE = 800
#: Relative temperature at the start and at the end of a try, and parts of a try between which caps are set anew.
HOT, COLD, PARTS = 0.1, 0.003, 10
#: One trial in so many moves a row of devices at once; one in so many for each replica, where that is rarer.
BLOCKS, BLOCKS_PER_REPLICA = 40.0, 4.0
#: Relative step below the best mapping that a level begins with (the first one, later ones) and ends at.
FIRST_STEP, STEP, LAST_STEP = 0.3, 0.016, 0.001
#: Levels that several starts go through on their own, most starts, and devices of all starts together.
STARTING_LEVELS, MAX_STARTS, STARTED_DEVICES = 2, 8, 512
#: Float noise when a target counts as met.
_NOISE = 1e-12


def solve(
    instance: DeviceMapping, limits: Limits, watch: Watch, levels: int = LEVELS, most_starts: int = MAX_STARTS
) -> Answer[Mapping]:
    """The best mapping that a search finds.

    On few devices, where one start soon settles on a structure, it has several starts (``most_starts`` at most), of
    which the best goes on. Threads share the starts, then the moves of every try: the effort is that of one.
    """
    table = tables(instance)
    bound = single_bound(arrays(instance))
    watch.bound(bound, Prover.BOUNDS)
    start, first_moves = first_mapping(instance, table, limits.seed, watch)
    watch.plan(start, evaluate(instance, start))
    starts = max(1, min(most_starts, STARTED_DEVICES // instance.num_devices))

    count = starts + limits.threads - 1
    searches = [_Search(instance, table, start, limits.seed * 2**20 + seed, bound, watch) for seed in range(count)]
    with alarm(watch), ThreadPoolExecutor(limits.threads) as pool:
        early = min(STARTING_LEVELS, levels) if starts > 1 else 0
        [*pool.map(lambda each: _run([each], range(early), map), searches[:starts])]
        best = min(searches[:starts], key=lambda each: each.best)
        _run([best, *searches[starts:]], range(early, levels), pool.map)
    return Answer(
        plan=best.plan(),
        bound=bound,
        stop=watch.why(Stop.COMPLETED),
        stats={
            "moves": first_moves + sum(each.moves for each in searches),
            "tries": sum(each.tries for each in searches),
        },
    )


def first_mapping(instance: DeviceMapping, table: Tables, seed: int, watch: Watch) -> tuple[Mapping, int]:
    """The best of some mappings: consecutive ones and, where tensors and rings count, those whose rings come first.

    Rings come first where a level of annealing orders the devices of each stage of a consecutive mapping (each by
    itself, or all as the first), or all devices, for rings alone. Then each ring is turned, or turned around, for its
    tensors. Of many bandwidths a better one is looked for `stage_by_stage`. The number is that of the moves made.
    """
    plans, moves = [stage_major(instance), pipeline_major(instance)], 0
    if table.links > 1 and len(table.other):
        alone = replace(instance, edges=(), objective="allreduce")
        bandwidth, part = np.array(instance.bandwidth_bytes_per_s), watch.part(silent=True)

        def ringed(given: DeviceMapping) -> Any:
            nonlocal moves
            with alarm(part):
                search = _Search(given, tables(given), stage_major(given), seed, single_bound(arrays(given)), part)
                _run([search], range(1), map)
            moves += search.moves
            return search.kept[search.kept_ring].reshape(-1, instance.replicas)

        rows = [ringed(alone)]
        for plan in plans:
            devices, orders = np.array(plan.devices), []
            for stage, own in zip(instance.stages, devices, strict=True):
                inside = tuple(map(tuple, bandwidth[np.ix_(own, own)].tolist()))
                orders.append(ringed(replace(alone, stages=(stage,), bandwidth_bytes_per_s=inside))[0])
            rows += [np.take_along_axis(devices, np.array(each), 1) for each in (orders, orders[:1] * len(devices))]
        plans += [plan_of(_turned(table, found)) for found in rows]
    if table.links and len(table.other):
        numbers, best = arrays(instance), min(evaluate(instance, plan) for plan in plans)
        found = stage_by_stage.search(numbers, single_bound(numbers), best, seed, watch.stopped)
        plans += [] if found is None else [plan_of(found)]
    return min(plans, key=lambda plan: evaluate(instance, plan)), moves


def _turned(table: Tables, rows: Any) -> Any:
    """The rings of devices, shape (S, R), each turned for its neighbours: one after the other, then all once more."""
    stages = range(len(rows))
    for stage, placed in [*((stage, stage) for stage in stages), *((stage, len(rows)) for stage in stages)]:
        near = [e for e in range(table.start[stage], table.start[stage + 1]) if table.other[e] < placed]
        if near:
            turns = np.array([np.roll(row, k) for row in (rows[stage], rows[stage][::-1]) for k in range(len(row))])
            sending = sum(table.volume[e] * table.slowness[turns, rows[table.other[e]]] for e in near)
            rows[stage] = turns[min(range(len(turns)), key=lambda k: (sending[k].max(), sending[k].sum()))]
    return rows


def _run(team: "list[_Search]", levels: Iterable[int], each_of: Callable[..., Iterable[bool]]) -> None:
    """These levels of effort by searches that share the moves of a try, and go on from the best of them, first of all
    the first; ends early at the bound, or if the watch says so. ``each_of`` is a ``map``.
    """
    first = team[0]
    devices = first.instance.num_devices
    if devices == 1:
        return
    for level in levels:
        step, moves = FIRST_STEP if level == 0 else STEP / 2 ** (level - 1), MOVES_PER_DEVICE * devices * GROWTH**level
        while step > LAST_STEP / 2**level:
            if first.watch.stopped() or first.best <= first.bound * (1 + 1e-9):
                return
            for each in team:
                each.best, each.kept, each.kept_ring = first.best, first.kept, first.kept_ring
            target = max(first.best * (1 - step), first.bound)
            if not any([*each_of(partial(_Search.reach, target=target, moves=moves // len(team)), team)]):
                step /= 2
            best = min(team, key=lambda each: each.best)
            first.best, first.kept, first.kept_ring = best.best, best.kept, best.kept_ring


@dataclass
class _Search:
    """A search: the mapping it works on, and its best (``kept``, ``kept_ring``, ``best`` seconds)."""

    instance: DeviceMapping
    table: Tables
    start: Mapping
    seed: int
    bound: float
    watch: Watch
    moves: int = 0
    tries: int = 0

    def __post_init__(self) -> None:
        n = self.instance.num_devices
        self.flag = np.frombuffer(self.watch.flag, np.uint8)
        device = np.array([device for row in self.start.devices for device in row])
        self.layout = Layout(device, np.arange(n), np.arange(n) % self.table.replicas)
        stages = len(self.table.base)
        self.loads = Loads(np.zeros(n), np.zeros(n), np.zeros(stages), np.zeros(stages))
        self.state = np.array([(2 * self.seed + 1) % 2**64], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        # In a free ring, and where nothing but the ring counts, the order of the replicas is for us to choose.
        self.reorder = self.table.links > 0 and (self.instance.ring == "free" or len(self.table.other) == 0)
        self.best = np.inf
        self._keep_if_better()

    def plan(self) -> Mapping:
        """The best mapping so far; where only rings count, replicas are numbered along them."""
        shape = -1, self.table.replicas
        if self.instance.ring == "free" and self.reorder:
            return plan_of(self.kept.reshape(shape), self.kept_ring.reshape(shape) % shape[1])
        return plan_of((self.kept[self.kept_ring] if self.reorder else self.kept).reshape(shape))

    def reach(self, target: float, moves: int) -> bool:
        """Whether a try from the best mapping meets the target."""
        self.tries += 1
        before = self.best
        self._begin_at(self.kept)
        temperatures = target * HOT * (COLD / HOT) ** (np.arange(PARTS + 1) / PARTS)
        for hot, cold in pairwise(temperatures):
            self._part(target, float(hot), float(cold), moves // PARTS)
            if self.best <= target * (1 + _NOISE) or self.watch.stopped():
                break
        if self.best < before:
            plan = self.plan()
            self.watch.plan(plan, evaluate(self.instance, plan))
        return self.best <= target * (1 + _NOISE)

    def _begin_at(self, devices: Any) -> None:
        """Work on a mapping with these devices and the orders of the best one's rings."""
        device, ring, place = self.layout
        device[:], ring[:] = devices, self.kept_ring
        place[ring] = np.arange(len(ring)) % self.table.replicas

    def _part(self, target: float, hot: float, cold: float, moves: int) -> None:
        annealing.refresh(self.table, self.layout, self.loads)
        energy = annealing.set_caps(self.table, target, self.loads)
        blocks = max(BLOCKS, BLOCKS_PER_REPLICA * self.table.replicas)
        annealing.anneal(
            self.table, self.layout, self.loads, self.reorder, blocks, energy, hot, cold, moves, self.state, self.flag
        )
        self.moves += moves
        self._keep_if_better()

    def _keep_if_better(self) -> None:
        annealing.refresh(self.table, self.layout, self.loads)
        seconds = float(annealing.slowest(self.table, self.loads))
        if seconds < self.best:
            self.best, self.kept, self.kept_ring = seconds, self.layout.device.copy(), self.layout.ring.copy()
