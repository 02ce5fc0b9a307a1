"""The data of the models of blocks: those of the flat problem without weights, which are synchronised once a batch."""

import math
from collections.abc import Iterator

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory
from formulations.stage_partitioning.model_size import blocks_too_large
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.block_search import BlockModel
from formulations.stage_partitioning.models.blocks import Blocks
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule
from solvers.memory_budget import SizeError
from solvers.milp.backend import ROOM
from solvers.outcome import Prover, Watch


class FlushedBlocks(Blocks):
    """The blocks of all plans in which no stage's step takes more than ``most``, in the instance's time unit.

    Nor does its synchronisation, unless ``whole``.
    """

    def __init__(self, instance: FlushedInstance, most: float, watch: Watch, *, whole: bool) -> None:
        super().__init__(Terms(instance.weightless), most, watch, whole=whole)
        self.flushed, self.microbatches = instance, instance.flat.num_microbatches
        self.weights = [option.tmpc.weight_bytes for option in Terms(instance.flat).options]
        per_byte = 4 / instance.flat.bandwidth / self.microbatches
        #: No synchronisation of a plan takes longer.
        self.longest = min(per_byte * sum(self.weights), math.inf if whole else most)

    def in_flight(self, s: int, d: int) -> int:
        """As in the flat problem; under GPipe all micro-batches, before the first backward pass."""
        gpipe = self.flushed.schedule is Schedule.GPIPE
        return super().in_flight(self.microbatches if gpipe else s, d)

    def synchronisation(self, b: int, o: int) -> float:
        """What an option adds to the synchronisation of block b, per micro-batch; what is too long, twice `longest`."""
        d, B = self.blocks[b].dp_degree, self.flushed.flat.bandwidth
        return min(4 * (d - 1) / d * self.weights[o] / B / self.microbatches, 2 * self.longest)

    @property
    def by_replicas(self) -> bool:
        """Whether replicas have micro-batches of their own: where they fill, and where the batch is simulated."""
        return self.flushed.fill is Fill.REPLICAS or self.flushed.objective is Objective.ITERATION

    def rounds(self, b: int) -> int:
        """Micro-batches of the busiest replica of block b: ceil(m/d)."""
        return -(-self.microbatches // self.blocks[b].dp_degree)

    def later(self, b: int) -> int:
        """Those behind its first one."""
        return self.rounds(b) - 1

    def replica_times(self, b: int) -> list[tuple[tuple[str, int], float]]:
        """What t of block b is made of: each choice and each paid crossing, by the variables' names, times d."""
        block = self.blocks[b]
        own = [
            *((("choice", o), x) for o, x in block.times.items()),
            *((("paid", c), x) for c, x in block.paid.items()),
        ]
        return [(name, block.dp_degree * time) for name, time in own]

    @property
    def largest(self) -> float:
        """What no sum of times in a model exceeds."""
        m, all_synchronised = self.microbatches, 2 * len(self.weights) * self.longest
        if self.by_replicas:  # a block's time on a replica is d times its step at most, and d is at most m
            heads = 3 * (self.terms.max_s + 1) * m * self.most  # of an iteration, as each F may be as long
            return max((m + 1) * super().largest + heads + 2 * m * self.longest, all_synchronised)
        objective = 2 * (m + len(self.terms.stages)) * self.most + 2 * m * self.longest
        return max(super().largest, objective, all_synchronised)


def data_of(instance: FlushedInstance, watch: Watch, *, complete: bool) -> FlushedBlocks:
    """The blocks of all plans no slower than the watch's best one: no step takes longer; of all if ``complete``.

    Raises `SizeError` if the model would be too large.
    """
    terms, reason = Terms(instance.weightless), blocks_too_large(instance.flat)
    watch.bound(terms.lower_bound, Prover.BOUNDS)  # no step is shorter
    if reason is not None:
        raise SizeError(reason)
    known = None if complete else watch.best_objective
    most = terms.largest_time if known is None else known * (1 + ROOM)
    return FlushedBlocks(instance, most or 1.0, watch, whole=known is None)


class FlushedModel(BlockModel):
    """What both models forbid under GPipe."""

    data: FlushedBlocks

    def time_unit(self) -> float | None:
        """What a stage takes is no expression of its own where a batch is filled by replicas."""
        return None

    def cut_off(self, plan: StagePlan, values: object) -> None:
        """Forbid every stage that is too large, with so many micro-batches in flight or more."""
        super().cut_off(plan, values)
        if self.data.flushed.schedule is Schedule.GPIPE:
            for stage in self._too_large(plan):
                self.forbid_beyond(self._of(stage), self.data.in_flight(0, stage.dp_degree))

    def _too_large(self, plan: StagePlan) -> Iterator[Stage]:
        flat = self.data.flushed.flat
        limit = flat.memory_bytes * MEMORY_SLACK
        return (stage for stage in plan.stages if stage_memory(flat, stage, flat.num_microbatches) > limit)
