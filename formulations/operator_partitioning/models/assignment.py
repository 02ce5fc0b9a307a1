"""Operators assigned to stages: what both solvers' models decide, what their sums are made of, how a solution is read.

All variables are binary (`models.sentences` says what each means).
Stages may be empty only with ``at_most``, and then the first are: positions from the end stay true.

Source: this project; the objective is Parmesan's, Equations 1 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import stage_of
from instances.graph import adjacency
from instances.problems.operator_partitioning import OperatorInstance, TrainingMemory

#: A sum of variables with their factors.
Terms = Sequence[tuple[float, Any]]


class Assignment:
    """The variables of a model of an instance with a given S, by their indices; ``holds`` and ``replicas`` decide."""

    holds: Any
    done: Any
    replicas: Any
    takes: Any
    leaves: Any
    sends: Any
    keeps: Any
    awaited: Any

    def __init__(self, instance: OperatorInstance) -> None:
        assert instance.num_stages is not None
        self.instance = instance
        self.operators = range(len(instance.operators))
        self.stages = range(instance.num_stages)
        self.last = instance.num_stages - 1
        #: Whether the number of replicas is free.
        self.free = instance.num_devices is not None
        self.after, _ = adjacency(len(instance.operators), instance.edges)
        #: The tensors that take time, and their seconds for one receiver.
        self.seconds = {
            t: tensor.volume_bytes / instance.bandwidth_bytes_per_s
            for t, tensor in enumerate(instance.tensors)
            if tensor.volume_bytes / instance.bandwidth_bytes_per_s
        }
        self._single = [t for t in self.seconds if len(instance.tensors[t].targets) == 1]
        self._several = [t for t in self.seconds if len(instance.tensors[t].targets) > 1]
        self.taking = [(t, s) for t in self.seconds for s in self.stages[1:]]
        self.leaving = [(t, s) for t in self._single for s in self.stages[:-1]]
        self.sending = [(t, s, q) for t in self._several for s in self.stages[:-1] for q in self.stages[s + 1 :]]
        #: Outputs that may be kept as inputs, and those that may be awaited, with the successor that awaits them.
        trains = instance.training is not None and instance.memory_bytes is not None
        recomputes = trains and (instance.training or TrainingMemory()).recompute
        self._feeding = [v for v in self.operators if self.after[v] and trains]
        self.keeping = [(v, s) for v in self._feeding for s in self.stages]
        self.awaiting = {
            (v, k, s): w for v in self._feeding if recomputes for k, w in enumerate(self.after[v]) for s in self.stages
        }

    def numbers(self) -> range:
        """How many replicas a stage may have: one is left to each other stage; 0 and all where stages may be empty."""
        devices, least = self.instance.num_devices or 0, 0 if self.instance.at_most else 1
        return range(least, devices + 1 - least * self.last)

    def seconds_of(self, s: int, takes: Any, leaves: Any, sends: Any) -> Terms:
        """Equations 1 and 3: t(s) = sum of c_u(v) + sum over s' of (M(s, s') + M(s', s)) / B."""
        compute = [(self.instance.operators[v].compute_s, self.holds[v, s]) for v in self.operators]
        received = [(each, takes[t, s]) for t, each in self.seconds.items() if s]
        left = [(self.seconds[t], leaves[t, s]) for t in self._single if s < self.last]
        sent = [(self.seconds[t], sends[t, s, q]) for t in self._several for q in self.stages[s + 1 :]]
        return [term for term in (*compute, *received, *left, *sent) if term[0]]

    def bytes_of(self, s: int) -> Iterator[tuple[int, Terms, float]]:
        """What must fit stage s: bytes, and room for them, while operator v runs (0: all the time the same)."""
        instance, operators, training = self.instance, self.instance.operators, self.instance.training
        if instance.memory_bytes is None:
            return
        room, pooled = instance.memory_bytes, []
        if instance.pooled_memory and self.free:
            # Each replica brings its own room.
            room, pooled = 0.0, [(-instance.memory_bytes * r, self.replicas[s, r]) for r in self.numbers() if r]
        elif instance.pooled_memory:
            room *= instance.replicas
        copies = training.weight_copies if training else 0.0
        own = [each.memory_bytes + copies * each.parameter_bytes for each in operators]
        if training is None:
            yield 0, [*self._held(s, own), *pooled], room
            return
        # An input is kept for each micro-batch in flight.
        in_flight = training.microbatches
        if training.schedule != "gpipe":
            in_flight = min(in_flight, self.last + 1 - s)
        kept = [(in_flight * operators[v].activation_bytes, self.keeps[v, s]) for v in self._feeding]
        if not training.recompute:
            every = [
                each + training.microbatches * of.activation_bytes for each, of in zip(own, operators, strict=True)
            ]
            yield 0, [*self._held(s, every), *pooled, *kept], room
            return
        for now in self.operators:
            # While it runs there are its own output, and those of earlier operators that it or a later one awaits.
            with_output = [each + operators[v].activation_bytes * (v == now) for v, each in enumerate(own)]
            live = []
            for v in range(now):
                k = sum(successor < now for successor in self.after[v])
                if k < len(self.after[v]):
                    live.append((operators[v].activation_bytes, self.awaited[v, k, s]))
            yield now, [*self._held(s, with_output), *pooled, *kept, *live], room

    def _held(self, s: int, sizes: list[float]) -> Terms:
        return [(size, self.holds[v, s]) for v, size in enumerate(sizes)]

    def decode(self, values: Any) -> OperatorPlan:
        """The plan of a solution."""
        stages: list[list[int]] = [[] for _ in self.stages]
        for v, s in _ones(self.holds, values):
            stages[s].append(v)
        number = dict(_ones(self.replicas, values)) if self.free else dict.fromkeys(self.stages, self.instance.replicas)
        used = [s for s in self.stages if stages[s]]
        return OperatorPlan(tuple(tuple(sorted(stages[s])) for s in used), tuple(number[s] for s in used))

    def values_of(self, plan: OperatorPlan) -> Iterator[tuple[Any, int]]:
        """The values of all binary variables in a feasible plan, as pairs of a variable and its value."""
        home, empty = stage_of(plan), len(self.stages) - len(plan.stages)
        at = [home[v] + empty for v in self.operators]
        number = [0] * empty + list(plan.replicas)
        tensors = self.instance.tensors

        def received(t: int, s: int) -> bool:
            return at[tensors[t].source] != s and any(at[target] == s for target in tensors[t].targets)

        yield from ((each, int(at[v] == s)) for (v, s), each in self.holds.items())
        yield from ((each, int(at[v] <= s)) for (v, s), each in self.done.items())
        yield from ((each, int(number[s] == r)) for (s, r), each in self.replicas.items() if self.free)
        yield from ((each, int(received(t, s))) for (t, s), each in self.takes.items())
        for (t, s), each in self.leaves.items():
            yield each, int(at[tensors[t].source] == s != at[tensors[t].targets[0]])
        for (t, s, q), each in self.sends.items():
            yield each, int(at[tensors[t].source] == s and received(t, q))
        for (v, s), each in self.keeps.items():
            yield each, int(at[v] != s and any(at[w] == s for w in self.after[v]))
        for (v, k, s), each in self.awaited.items():
            yield each, int(at[v] == s and any(at[w] == s for w in self.after[v][k:]))

    def no_smaller(self, values: Any) -> tuple[list[Any], int]:
        """Variables of which so many are 1 in a solution that is too large; any with as many is no smaller.

        Some operator must move, or where replicas pool their memory a stage must have more of them. Replicas of empty
        stages, which no plan shows, do not make it another one.
        """
        places = _ones(self.holds, values)
        found, parts = [self.holds[place] for place in places], len(places)
        if self.free and self.instance.pooled_memory:
            number = dict(_ones(self.replicas, values))
            for s in {s for _, s in places}:
                found += [self.replicas[s, r] for r in self.numbers() if 0 < r <= number[s]]
                parts += 1
        return found, parts


def _ones(variables: Mapping[Any, Any], values: Any) -> list[Any]:
    """The indices of the variables that are 1."""
    return [index for index, variable in variables.items() if values[variable] > 0.5]


def largest_load(instance: OperatorInstance) -> float:
    """No stage takes longer than this."""
    sent = [len(tensor.targets) * tensor.volume_bytes for tensor in instance.tensors]
    return instance.total_compute_s + 2 * math.fsum(sent) / instance.bandwidth_bytes_per_s
