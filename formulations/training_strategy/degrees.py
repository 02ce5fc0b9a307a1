"""Degrees and schedules of a trainer: all that the rules, but for memory, and the requirements allow."""

from collections.abc import Iterator, Mapping
from itertools import product
from operator import le
from typing import NamedTuple

from formulations.contract.quantities import unmet
from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import chunk_counts, refusal
from formulations.training_strategy.definition.quantities import VOCABULARY
from formulations.training_strategy.definition.sharing import has_groups, no_experts, offers_sequences, shared_in, sums
from instances.problems.training_strategy import MOST_SHARED, ROUNDED, Schedule, StrategyInstance
from instances.rules import NodeId


class Degrees(NamedTuple):
    """What a plan decides besides its layout: a schedule with V chunks on each of p devices, t, and d replicas.

    ``m`` is the number of micro-batches of a replica; ``level`` and ``sequences`` are what is shared, ``c`` and ``e``
    the degrees of context and expert parallelism, ``r`` the groups of replicas that share, which may be ``outermost``.
    """

    schedule: Schedule
    V: int
    p: int
    t: int
    d: int
    m: int
    level: int = 0
    sequences: bool = False
    c: int = 1
    e: int = 1
    r: int = 1
    outermost: bool = False

    @property
    def share(self) -> float:
        """Of weights, what each of the devices that sum their gradients sends to another one."""
        return (self.d * self.c - 1) / (self.d * self.c)

    def plan(
        self, chunks: tuple[tuple[NodeId, ...], ...] = (), tmpcs: Mapping[NodeId, str] | None = None
    ) -> StrategyPlan:
        """A plan of these degrees; of no layout, if none is given."""
        ways: Mapping[NodeId, str] = {} if tmpcs is None else tmpcs
        shared = self.level, self.sequences, self.c, self.e, self.r, self.outermost
        return StrategyPlan(self.p, self.t, self.d, self.V, self.schedule, chunks, ways, *shared)

    @property
    def num_chunks(self) -> int:
        """Of all devices of a pipeline."""
        return self.p * self.V

    @property
    def is_split(self) -> bool:
        """Whether weight gradients are apart from backward passes."""
        return SCHEDULES[self.schedule].is_split

    @property
    def is_vee(self) -> bool:
        """Whether device i has chunks i and 2p - 1 - i, between which it sends nothing."""
        return SCHEDULES[self.schedule].layout == "vee"

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each chunk."""
        return SCHEDULES[self.schedule].devices(self.p, self.V)

    @property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """The chunks of each device."""
        return SCHEDULES[self.schedule].held(self.p, self.V)


def all_degrees(instance: StrategyInstance) -> Iterator[Degrees]:
    """Whatever the rules, but for memory, and the requirements allow."""
    flat, L = instance.flat, len(instance.chain)
    K, N = flat.num_devices, flat.num_microbatches
    most = min(N, K, flat.max_dp_degree or K)
    for t in flat.tp_degrees:
        if not all(layer.tmpcs.get(t) for layer in flat.layers):
            continue
        sequences = (False, True) if offers_sequences(instance, t) else (False,)
        for d in (d for d in range(1, min(most, K // t) + 1) if N % d == 0):
            for schedule, c in product(instance.schedules, instance.cp_degrees):
                for V in chunk_counts(schedule, instance.virtual_stages):
                    for p in range(1, min(K // (t * c * d), L // V) + 1):
                        if refusal(schedule, p, N // d, V, instance.virtual_stages) is not None:
                            continue
                        orders = (False, True) if instance.any_degree_order else (False,)
                        kinds = product(sequences, instance.ep_degrees, instance.groups(d), orders)
                        for has_sequences, e, r, outermost in kinds:
                            shared = ((level, has_sequences, c, e, r, outermost) for level in instance.levels)
                            own = (Degrees(schedule, V, p, t, d, N // d, *each) for each in shared)
                            found = [each for each in own if _allows(instance, each)]
                            # One replica shares nothing with others, at whichever level.
                            yield from found if d * c > 1 else found[:1]


def _allows(instance: StrategyInstance, degrees: Degrees) -> bool:
    """Whether degrees meet the requirements: none speaks of a layout, so that of the plan is left empty."""
    plan = degrees.plan()
    is_sound = has_groups(plan) and no_experts(plan) is None and not unmet(VOCABULARY, instance, plan)
    return is_sound and not _is_beaten(instance, degrees)


def _is_beaten(instance: StrategyInstance, degrees: Degrees) -> bool:
    """Whether fewer groups, which hold less, send no longer (README.md): but for FSDP without a pipeline.

    Or whether machines have as many members of all groups in the other order.
    """
    other = degrees._replace(outermost=False)
    if degrees.outermost and shared_in(instance, degrees.plan()) == shared_in(instance, other.plan()):
        return _allows(instance, other)
    if degrees.r == 1 or (degrees.level == MOST_SHARED and degrees.p == 1) or instance.overlaps_gradients:
        return False

    def sent(of: Degrees) -> tuple[float, float]:
        gradients, others = sums(instance, shared_in(instance, of.plan()))
        return gradients + others, gradients * (of.level == 2)  # level 2 sends gradients in each pass

    most = [time * (1 + ROUNDED) for time in sent(degrees)]
    fewer = (degrees._replace(r=r) for r in instance.groups(degrees.d) if r < degrees.r)
    return any(all(map(le, sent(each), most)) and _allows(instance, each) for each in fewer)
