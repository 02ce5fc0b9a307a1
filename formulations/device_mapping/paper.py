"""Parmesan's device mapping: Algorithm 1 (binary search on targets) over Algorithm 2 (depth-first search).

| Paper                    | Here                                                             |
|--------------------------|------------------------------------------------------------------|
| V', s in V'              | nodes v = s R + r                                                |
| p, B                     | ``device`` and ``bandwidth_bytes_per_s`` (``slowness`` is 1 / B) |
| t_l, t_r                 | ``low``, ``high``                                                |
| epsilon                  | ``PRECISION`` (relative)                                         |
| targets of a batch       | ``_targets``                                                     |
| checking scheme          | ``checking_scheme``                                              |
| next stage, next device  | ``order``, ``device_order`` (the text names neither)             |

A search that ran out of time counts as not found: ``low`` rises then, and is no bound. ``proved`` rises only by
searches that came to their end.

Source: Parmesan, section 5. Algorithm 2 (Appendix D) is not public. Its text says "it tries to assign the next unmapped
stage s by checking all the unallocated devices", but neither which stage is next nor which device comes first, on which
it depends how far a search comes before it is cut off. Both orders are options here, and the result states them.
"""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.device_mapping.annealing.baselines import RANDOM_MAPPINGS, at_random, pipeline_major, stage_major
from formulations.device_mapping.data.arrays import arrays, plan_of
from formulations.device_mapping.data.costs import safe, single_bound, tables
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate
from formulations.device_mapping.kernels import published
from formulations.device_mapping.kernels.arrays import Tables
from instances.graph import topological_order
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Prover, Stop, Watch

#: Relative width of the interval at which the search ends: as published, and for a proof.
PRECISION, PROOF_PRECISION = 1e-4, 1e-7
#: Seconds that one search may take.
SEARCH_TIMEOUT_S = 5.0
#: The next node is the next stage of the replica, the next replica of the stage, or the latter with the stages of the
#: longest rings first. ``auto`` keeps together what is settled together: a stage where rings count, else a replica.
ORDERS = ("auto", "replica-major", "stage-major", "longest-ring-first")
#: Devices by their number; or first the one with the fastest link to the device of the last node before that the next
#: one exchanges anything with.
DEVICE_ORDERS = ("adjacent", "number")
#: What is settled together is assigned together; Table 2 does not decide it (findings, Parmesan, section 5).
ORDER, DEVICE_ORDER = ORDERS[0], DEVICE_ORDERS[0]


def solve(
    instance: DeviceMapping,
    limits: Limits,
    watch: Watch,
    search_timeout: float | None = SEARCH_TIMEOUT_S,
    targets: int | None = None,
    order: str = ORDER,
    device_order: str = DEVICE_ORDER,
    search_devices: float | None = None,
) -> Answer[Mapping]:
    """Algorithm 1 with batches of targets and a timeout for each search (``None``: none, and then it is exact).

    ``targets``: the number of searches of a batch, by default one for each thread.
    ``order``, ``device_order``: in which order a search takes nodes (`ORDERS`) and tries devices (`DEVICE_ORDERS`); see
    `checking_scheme`.
    ``search_devices``: a search is cut off after so many devices tried, too (``None``: not). That depends on no
    machine.
    """
    state = _Interval(instance, watch, limits.seed)
    inner = _Searcher(instance, search_timeout, watch, order, device_order, search_devices)
    is_proof = search_timeout is None and search_devices is None
    count = targets or limits.threads
    for _ in _batches(state, inner, watch, PROOF_PRECISION if is_proof else PRECISION, count):
        pass
    cut_off = f"{state.timed_out} of {state.searches} searches were cut off and count as not found"
    return Answer(
        plan=state.plan,
        bound=state.proved,
        stop=watch.why(Stop.COMPLETED),
        reason=f"{cut_off}, which is no proof" if state.timed_out else "",
        stats={
            "searches": state.searches,
            "searches_timed_out": state.timed_out,
            "devices_tried": inner.tried,
            "assumed_bound": state.low,
        },
        options={
            "search-timeout": search_timeout,
            "search-devices": search_devices,
            "targets": count,
            "order": order,
            "device-order": device_order,
        },
    )


def _batches(
    state: "_Interval", inner: "_Searcher", watch: Watch, precision: float, count: int
) -> "Iterator[list[Outcome]]":
    """The searches of Algorithm 1, a batch at a time, each of which has narrowed the interval."""
    with ThreadPoolExecutor(count) as pool:
        while state.high - state.low > precision * state.high and not watch.stopped():
            outcomes = list(pool.map(inner.find, _targets(state.low, state.high, count)))
            state.update(outcomes)
            yield outcomes


def decisions(instance: DeviceMapping, limits: Limits, watch: Watch) -> "Iterator[tuple[Outcome, float, float]]":
    """The searches of a published run, each with the interval that its target lies in."""
    state = _Interval(instance, watch, limits.seed)
    inner = _Searcher(instance, SEARCH_TIMEOUT_S, watch)
    low, high = state.low, state.high
    for outcomes in _batches(state, inner, watch, PRECISION, limits.threads):
        yield from ((outcome, low, high) for outcome in outcomes)
        low, high = state.low, state.high


def solve_without_timeout(
    instance: DeviceMapping,
    limits: Limits,
    watch: Watch,
    targets: int | None = None,
    order: str = ORDER,
    device_order: str = DEVICE_ORDER,
) -> Answer[Mapping]:
    """Algorithm 1 as its proof of optimality has it: every search comes to its end."""
    return solve(instance, limits, watch, None, targets, order, device_order)


@dataclass(frozen=True)
class Outcome:
    """What one search gave: its target, a mapping and its seconds, or none.

    ``complete``: it came to its end; ``proves``: it would have found any mapping there is.
    """

    target: float
    plan: Mapping | None
    seconds: float
    complete: bool
    proves: bool = True


class _Interval:
    """The interval of Algorithm 1, its best mapping, and apart from it what is proved."""

    def __init__(self, instance: DeviceMapping, watch: Watch, seed: int) -> None:
        self._watch = watch
        rng = random.Random(seed)
        self.plan = stage_major(instance)
        self.high = evaluate(instance, self.plan)
        for plan in (pipeline_major(instance), *(at_random(instance, rng) for _ in range(RANDOM_MAPPINGS))):
            if watch.stopped():
                break
            seconds = evaluate(instance, plan)
            if seconds < self.high:
                self.plan, self.high = plan, seconds
        watch.plan(self.plan, self.high)
        self.low = self.proved = single_bound(arrays(instance))
        watch.bound(self.proved, Prover.BOUNDS)
        self.searches = self.timed_out = 0

    def update(self, outcomes: list[Outcome]) -> None:
        """Narrow the interval by a batch of searches."""
        before = self.proved
        for outcome in outcomes:
            self.searches += 1
            self.timed_out += not outcome.complete
            if outcome.plan is None:
                self.low = max(self.low, outcome.target)
                if outcome.complete and outcome.proves:
                    self.proved = max(self.proved, safe(outcome.target))
            elif outcome.seconds < self.high:
                self.plan, self.high = outcome.plan, outcome.seconds
        self.low = min(self.low, self.high)
        self._watch.plan(self.plan, self.high)
        if self.proved > before:
            self._watch.bound(self.proved)


class _Searcher:
    """Algorithm 2 for one instance, callable from several threads."""

    def __init__(
        self,
        instance: DeviceMapping,
        timeout: float | None,
        watch: Watch,
        order: str = ORDER,
        device_order: str = DEVICE_ORDER,
        most: float | None = None,
    ) -> None:
        self._instance, self._timeout, self._watch = instance, timeout, watch
        self._most = np.inf if most is None else most
        self._table = tables(instance)
        self._scheme = checking_scheme(instance, self._table, order, device_order)
        # Rings are searched by replica number: with rings in any order, what is not found may exist beside tensors.
        self._exhaustive = instance.ring == "index" or instance.objective != "full" or instance.replicas < 4
        self._lock = threading.Lock()
        self.tried = 0

    def find(self, target: float) -> Outcome:
        """Search for a mapping that meets the target."""
        device, tried = np.empty(len(self._table.slowness), np.int64), np.zeros(1, np.int64)
        part = self._watch.part(self._timeout, silent=True)
        with alarm(part):
            flag = np.frombuffer(part.flag, np.uint8)
            found = published.search(self._table, self._scheme, target, self._most, device, tried, flag)
        with self._lock:
            self.tried += int(tried[0])
        if found != published.FOUND:
            return Outcome(target, None, np.inf, found == published.NONE, self._exhaustive)
        plan = plan_of(device.reshape(-1, self._table.replicas))
        return Outcome(target, plan, evaluate(self._instance, plan), True)


def _targets(low: float, high: float, count: int) -> list[float]:
    """Targets that divide the interval evenly."""
    return [low + (high - low) * i / (count + 1) for i in range(1, count + 1)]


def checking_scheme(
    instance: DeviceMapping, table: Tables, order: str = ORDER, device_order: str = DEVICE_ORDER
) -> published.Scheme:
    """The orders of nodes and devices, and after each node those whose times are settled then.

    Where only rings count, each link of a ring is checked on its own: the slowest one decides. Else a node is settled
    with the last of itself, its neighbours and, where rings count too, all replicas of its stage.
    """
    S, R = instance.num_stages, instance.replicas
    stages = topological_order(S, [(edge.source, edge.target) for edge in instance.edges])
    ring_only = table.links > 0 and len(table.other) == 0
    if order == "longest-ring-first":
        stages = sorted(stages, key=lambda stage: -table.ring_bytes[stage])
    if order == "replica-major" or (order == "auto" and not table.links):
        nodes = [stage * R + replica for replica in range(R) for stage in stages]
    else:
        nodes = [stage * R + replica for stage in stages for replica in range(R)]
    at = {node: k for k, node in enumerate(nodes)}
    settled: list[list[int]] = [[] for _ in nodes]
    anchor = np.full(len(nodes), -1)
    for stage in range(S):
        near = table.other[table.start[stage] : table.start[stage + 1]]
        for replica in range(R):
            node = stage * R + replica
            beside = [int(s) * R + replica for s in near]
            ring = [stage * R + (replica + step) % R for step in (1, -1)] if table.links else []
            before = [at[part] for part in (*beside, *ring) if at[part] < at[node]]
            if device_order == "adjacent" and before:
                anchor[at[node]] = nodes[max(before)]
            if ring_only and replica < table.links:
                settled[max(at[node], at[ring[0]])].append(node)
            elif not ring_only:
                whole = [stage * R + each for each in range(R)] if table.links else []
                settled[max(at[part] for part in (node, *beside, *whole))].append(node)
    far = table.slowness + np.where(np.eye(len(nodes), dtype=bool), np.inf, 0.0)
    return published.Scheme(
        np.array(nodes),
        np.cumsum([0, *map(len, settled)]),
        np.array([node for part in settled for node in part], np.int64),
        anchor,
        np.vstack([np.argsort(far, axis=1, kind="stable"), np.arange(len(nodes))]),
    )
