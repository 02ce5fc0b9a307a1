"""An event simulation of pipelines whose stages have their own data-parallel degrees.

Micro-batch m runs on replica m mod d of a stage, forwards through the stages and then backwards. A replica does one
thing at a time, and a backward pass that can start goes before a forward pass (1F1B, PipeDream-2BW). A forward pass
starts only while the replica holds fewer micro-batches in flight than it has room for. Links are part of a stage's
times, as in Piper's cost model.

Source: Piper, Appendix A and Fig. 5 (the schedule and how many micro-batches are in flight).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PipelineStage:
    """d replicas; times of one micro-batch on one replica; micro-batches in flight that a replica has room for."""

    dp_degree: int
    forward_time: float
    backward_time: float
    room: int


@dataclass(frozen=True)
class Task:
    """A pass of a micro-batch on a replica of a stage."""

    stage: int
    replica: int
    microbatch: int
    is_forward: bool
    start: float
    end: float


@dataclass(frozen=True)
class Trace:
    """What happened: all tasks by start, and the most micro-batches that a replica of each stage held at once."""

    tasks: tuple[Task, ...]
    peak_in_flight: tuple[int, ...]

    @property
    def makespan(self) -> float:
        """When the last task ended."""
        return max(task.end for task in self.tasks)

    def time_per_sample(self) -> float:
        """Time between micro-batches that leave the pipeline, over the middle third of them.

        Fill and drain at the two ends are left out; fewer than six micro-batches give the whole time, shared.
        """
        ends = sorted(task.end for task in self.tasks if task.stage == 0 and not task.is_forward)
        first, last = len(ends) // 3, 2 * len(ends) // 3
        return self.makespan / len(ends) if len(ends) < 6 else (ends[last] - ends[first]) / (last - first)


def in_flight(degrees: Sequence[int]) -> list[int]:
    """ceil(s/d) of every stage: what a schedule without flushes keeps in flight on each replica (Appendix A)."""
    return [-(-sum(degrees[i:]) // d) for i, d in enumerate(degrees)]


def simulate(stages: Sequence[PipelineStage], num_microbatches: int, *, pace: float = 0.0) -> Trace:
    """Run ``num_microbatches`` through the stages, as early as the rules of the module allow.

    With a ``pace``, micro-batch m enters no sooner than at m * pace. At the bottleneck's time per sample this keeps the
    first stage from rushing ahead in bursts that later replicas have no room for.

    `ValueError` if there is no stage or no micro-batch, or a replica has no room for one.
    """
    if not stages or num_microbatches < 1 or any(stage.room < 1 or stage.dp_degree < 1 for stage in stages):
        raise ValueError("expected at least one stage, one micro-batch, one replica, and room for one in flight")
    return _Simulation(stages, num_microbatches, pace).run()


#: What ends at an event: the wait of a micro-batch to enter, a forward pass, a backward pass.
_ENTRY, _FORWARD, _BACKWARD = 0, 1, 2


class _Simulation:
    def __init__(self, stages: Sequence[PipelineStage], num_microbatches: int, pace: float) -> None:
        self.stages = stages
        # Micro-batches that wait at (stage, replica), the earliest first.
        self.forward: list[list[list[int]]] = [[[] for _ in range(stage.dp_degree)] for stage in stages]
        self.backward: list[list[list[int]]] = [[[] for _ in range(stage.dp_degree)] for stage in stages]
        self.busy = [[False] * stage.dp_degree for stage in stages]
        self.held = [[0] * stage.dp_degree for stage in stages]
        self.peak = [0] * len(stages)
        # (time, stage, replica, micro-batch, what ends)
        self.events = [(m * pace, 0, m % stages[0].dp_degree, m, _ENTRY) for m in range(num_microbatches)]
        self.tasks: list[Task] = []

    def run(self) -> Trace:
        """Start what can start, advance to the next moments at which tasks end, and so on."""
        while self.events:
            now = self.events[0][0]
            freed = []
            while self.events and self.events[0][0] == now:  # all that ends now, before anything starts
                _, stage, replica, m, what = heapq.heappop(self.events)
                freed += [(stage, replica), self._finish(stage, replica, m, what)]
            for stage, replica in sorted(set(freed)):
                self._start(now, stage, replica)
        return Trace(tuple(self.tasks), tuple(self.peak))

    def _finish(self, stage: int, replica: int, m: int, what: int) -> tuple[int, int]:
        """Hand the micro-batch on; returns the (stage, replica) where it waits now."""
        if what == _ENTRY:
            return self._wait(self.forward, 0, m)
        self.busy[stage][replica] = False
        if what == _BACKWARD:
            self.held[stage][replica] -= 1
            if stage == 0:
                return stage, replica
            return self._wait(self.backward, stage - 1, m)
        if stage == len(self.stages) - 1:
            return self._wait(self.backward, stage, m)
        return self._wait(self.forward, stage + 1, m)

    def _wait(self, queues: list[list[list[int]]], stage: int, m: int) -> tuple[int, int]:
        replica = m % self.stages[stage].dp_degree
        heapq.heappush(queues[stage][replica], m)
        return stage, replica

    def _start(self, now: float, stage: int, replica: int) -> None:
        if self.busy[stage][replica]:
            return
        own = self.stages[stage]
        backward = bool(self.backward[stage][replica])
        is_forward = bool(self.forward[stage][replica]) and self.held[stage][replica] < own.room and not backward
        if not backward and not is_forward:
            return
        m = heapq.heappop((self.forward if is_forward else self.backward)[stage][replica])
        if is_forward:
            self.held[stage][replica] += 1
            self.peak[stage] = max(self.peak[stage], self.held[stage][replica])
        self.busy[stage][replica] = True
        end = now + (own.forward_time if is_forward else own.backward_time)
        self.tasks.append(Task(stage, replica, m, is_forward, now, end))
        heapq.heappush(self.events, (end, stage, replica, m, _FORWARD if is_forward else _BACKWARD))
