"""The quickest warm-ups of a partition: how many micro-batches its stages keep in flight.

A stage's order under 1F1B is F^l (B F)* B^l, and l is a choice: at least one more than behind it, at most what fits
into memory. Neither fewer nor more are always quicker, so ranges of l are bounded (`kernels.warm_ups`): ends of a range
at which nothing is quick enough are taken off, stage by stage, and what is left is halved.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.costs.iteration import iteration_s, neighbours
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import all_reduce_s, replica_samples, violations
from formulations.stage_graph.kernels.warm_ups import Stages, least_makespan, narrow
from solvers.outcome import Watch

#: A target this much below the best plan, relatively, leaves no better plan that is worth the name.
STEP = 1e-9
#: The bound adds up in another order than the simulation.
_ROUNDING = 1e-11
#: Stages are distinguished by what is so many tensors away.
_AROUND = 2


def _pass_times(costs: Costs, stage: Stage) -> tuple[float, float]:
    """`problem.pass_times` by sums over the stage, without a look at all edges."""
    instance, samples = costs.instance, replica_samples(stage.microbatch, stage.devices)
    sent, edges = costs.cut(sum(1 << node for node in stage.nodes))
    moved = sent * samples / instance.bandwidth_bytes_per_s + edges * instance.latency_s
    operators = [instance.operators[node] for node in stage.nodes]
    forward = sum((each.forward.at(samples) for each in operators), moved)
    return forward, sum((each.backward.at(samples) for each in operators), moved)


class Keys:
    """Keys of partitions at a micro-batch size: one for all whose warm-ups take the same.

    That depends on a stage's passes, devices and bytes, and on which stages it waits for. Stages are written down in an
    order of what they are and of what is before and behind them, so that the same graph mostly has the same key. Equal
    keys are the same graph.
    """

    def __init__(self, costs: Costs, size: int) -> None:
        self.costs, self.size = costs, size
        self._known: dict[tuple[int, int], tuple[Hashable, int]] = {}

    def of(self, parts: Sequence[tuple[int, int]]) -> Hashable:
        """The key of stages, as bitsets with their devices, in a topological order."""
        own, before = list[Hashable](), list[list[int]]()
        for part in parts:
            if part not in self._known:
                self._known[part] = self._described(*part)
            described, begin = self._known[part]
            before.append([number for number, (nodes, _) in enumerate(parts[: len(own)]) if nodes & begin])
            own.append(described)
        behind: list[list[int]] = [[] for _ in parts]
        for number, sources in enumerate(before):
            for source in sources:
                behind[source].append(number)
        rank = _ranks(own)
        for _ in range(_AROUND):
            around = zip(rank, before, behind, strict=True)
            rank = _ranks([
                (each, *sorted(rank[s] for s in ahead), -1, *sorted(rank[s] for s in later))
                for each, ahead, later in around
            ])  # fmt: skip
        place, written = dict[int, int](), list[Hashable]()
        while len(place) < len(parts):
            ready = [n for n, ahead in enumerate(before) if n not in place and all(s in place for s in ahead)]
            named = sorted((rank[n], sorted(place[s] for s in before[n]), n) for n in ready)
            for _, ahead, number in named:
                place[number] = len(place)
                written.append((own[number], *ahead))
        return tuple(written)

    def _described(self, nodes: int, devices: int) -> tuple[Hashable, int]:
        """What a stage takes and holds, and the operators that tensors come from."""
        sums, sources = self.costs.sums(nodes), 0
        for v in bits(nodes):
            sources |= self.costs.predecessors[v]
        passes = _pass_times(self.costs, Stage(tuple(bits(nodes)), devices, self.size, self.size))
        return (*passes, devices, sums.weight_bytes, sums.kept_bytes), sources & ~nodes


def _ranks(values: list[Any]) -> list[int]:
    """Places of the values among the different ones, ascending."""
    place = {value: number for number, value in enumerate(sorted(set(values)))}
    return [place[value] for value in values]


class WarmUps:
    """The ranges of warm-ups that a plan's stages may have, and the quickest ones.

    ``plan`` has the fewest micro-batches in flight that it may have; its stages come in a topological order.
    """

    def __init__(self, costs: Costs, plan: StagePlan) -> None:
        self.costs, self.plan = costs, plan
        instance, stages = costs.instance, plan.stages
        self.size = stages[0].microbatch
        self.rounds = instance.minibatch // self.size
        self.fewest = np.array([stage.in_flight // self.size for stage in stages])
        times = [_pass_times(costs, stage) for stage in stages]
        before = neighbours(len(stages), [(after, source) for source, after in plan.edges])
        forward, backward = (np.array(each) for each in zip(*times, strict=True))
        self._stages = Stages(forward, backward, *before, *neighbours(len(stages), plan.edges), self.rounds)
        self.reduce_s = max(all_reduce_s(instance, stage) for stage in stages)
        self.simulated, self.barred = 0, False

    def bound(self, fewest: np.ndarray, most: np.ndarray) -> float:
        """Seconds of an iteration, at least."""
        passes = least_makespan(fewest, most, self._stages)
        self.simulated += 1
        return float((passes + self.reduce_s) * (1 - _ROUNDING))

    def may_take(self, target_s: float) -> bool:
        """Whether the bound of all warm-ups is within the target."""
        return self.bound(self.fewest, np.full(len(self.fewest), self.rounds)) < target_s

    def best_below(self, target_s: float, watch: Watch) -> tuple[StagePlan, float] | None:
        """The quickest plan (but for `STEP`) that keeps all rules within the target; ``None``: none, or it stopped."""
        found, flag = None, np.frombuffer(watch.flag, np.uint8)
        most = np.array([self._most(index) for index in range(len(self.plan.stages))])
        open_ranges = [(self.fewest, most)]
        while open_ranges and not watch.stopped():
            fewest, most = (each.copy() for each in open_ranges.pop())
            within = (target_s - self.reduce_s) * (1 + _ROUNDING)
            self.simulated += narrow(fewest, most, self._stages, within, flag)
            if (fewest > most).any():
                continue
            if self.bound(fewest, fewest) < target_s:
                plan = self._with(fewest)
                seconds = iteration_s(self.costs.instance, plan)
                if seconds < target_s and judge(violations, self.costs.instance, plan):
                    self.barred = True  # not by what it takes
                elif seconds < target_s:
                    found, target_s = (plan, seconds), seconds * (1 - STEP)
            choices = np.flatnonzero(most > fewest)
            if len(choices):
                stage = choices[np.argmin((most - fewest)[choices])]
                middle = (most[stage] + fewest[stage]) // 2
                upper, lower = fewest.copy(), most.copy()
                upper[stage], lower[stage] = middle + 1, middle
                open_ranges += [(upper, most), (fewest, lower)]
        return found

    def _most(self, index: int) -> int:
        """Micro-batches in flight that fit into memory."""
        stage = self.plan.stages[index]
        nodes = sum(1 << node for node in stage.nodes)
        low, high = int(self.fewest[index]), self.rounds
        while low < high:
            middle = (low + high + 1) // 2
            held = self.costs.memory(nodes, self.size, stage.devices, middle * self.size)
            low, high = (middle, high) if held <= self.costs.instance.memory_bytes else (low, middle - 1)
        return low

    def _with(self, warm_ups: np.ndarray) -> StagePlan:
        stages = zip(self.plan.stages, warm_ups.tolist(), strict=True)
        return replace(self.plan, stages=tuple(replace(stage, in_flight=count * self.size) for stage, count in stages))
