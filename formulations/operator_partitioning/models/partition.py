"""The rules of a partition in CP-SAT: operators, replicas and memory of the stages, without the time that they take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ortools.sat.python import cp_model

from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.models.assignment import Terms
from formulations.operator_partitioning.models.quantities import Quantities
from formulations.operator_partitioning.models.sentences import SENTENCES
from instances.problems.operator_partitioning import OperatorInstance
from solvers.cpsat import backend as cpsat
from solvers.scaling import Scale, size_scale


class Partition(Quantities):
    """The variables of `Assignment` and their rules in ``model``; what else it decides is the caller's."""

    def __init__(self, instance: OperatorInstance, model: cpsat.SpokenModel) -> None:
        super().__init__(instance)
        self.model = model
        self._derived: dict[str, Any] = {}
        for name, text in SENTENCES.items():
            model.says(name, text)
        self.holds = self.booleans("holds", ((v, s) for v in self.operators for s in self.stages))
        self.done = self.booleans("done", ((v, s) for v in self.operators for s in self.stages[:-1]))
        counted = ((s, r) for s in self.stages for r in self.numbers() if self.free)
        self.replicas = self.booleans("replicas", counted)
        self.keeps = self.booleans("keeps", self.keeping)
        self.awaited = self.booleans("awaited", self.awaiting)
        self.takes = self.leaves = self.sends = {}
        self._operators()
        self._used()
        if self.free:
            self._replicas()
        self._memory()

    def booleans(self, name: str, indices: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
        """A Boolean for each index."""
        return {index: self.model.new_bool_var(f"{name}[{','.join(map(str, index))}]") for index in indices}

    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""
        return self.model.new_int_var(0, most, f"{name}[{','.join(map(str, index))}]")

    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""
        self.model.add(row).with_name(f"{name}[{','.join(map(str, index))}]")

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, nor any that is no smaller."""
        variables, parts = self.no_smaller(values)
        self.model.add(cp_model.LinearExpr.sum(variables) <= parts - 1).with_name("forbidden")

    def _operators(self) -> None:
        model, holds, done = self.model, self.holds, self.done
        for v in self.operators:
            model.add_exactly_one([holds[v, s] for s in self.stages]).with_name(f"one_stage[{v}]")

        for v in self.operators:
            for s in self.stages[:-1]:
                before = done[v, s - 1] if s else 0
                model.add(done[v, s] == before + holds[v, s]).with_name(f"counted[{v},{s}]")
            if self.last:
                by_the_last = holds[v, self.last] + done[v, self.last - 1] == 1
                model.add(by_the_last).with_name(f"counted[{v},{self.last}]")

        for u, v in self.instance.edges:
            for s in self.stages[:-1]:
                model.add(done[v, s] <= done[u, s]).with_name(f"order[{u},{v},{s}]")

    def _used(self) -> None:
        model, holds = self.model, self.holds
        members = [cp_model.LinearExpr.sum([holds[v, s] for v in self.operators]) for s in self.stages]
        if not self.instance.at_most:
            for s in self.stages:
                model.add(members[s] >= 1).with_name(f"not_empty[{s}]")
            return
        for s in self.stages[:-1]:
            for v in self.operators:
                model.add(holds[v, s] <= members[s + 1]).with_name(f"empty_first[{v},{s}]")

    def _replicas(self) -> None:
        model, replicas, numbers = self.model, self.replicas, self.numbers()
        for s in self.stages:
            model.add_exactly_one([replicas[s, r] for r in numbers]).with_name(f"one_number[{s}]")
            if self.instance.at_most:
                for v in self.operators:
                    model.add(self.holds[v, s] + replicas[s, 0] <= 1).with_name(f"some_replica[{v},{s}]")

        used = [(r, replicas[s, r]) for s in self.stages for r in numbers if r]
        model.add(whole_sum(used, Scale(0)) <= self.instance.num_devices).with_name("devices")

    def _memory(self) -> None:
        model, holds = self.model, self.holds
        for v, s in self.keeping:
            for w in self.after[v]:
                model.add(self.keeps[v, s] >= holds[w, s] - holds[v, s]).with_name(f"kept[{v},{w},{s}]")

        for (v, k, s), w in self.awaiting.items():
            model.add(self.awaited[v, k, s] >= holds[v, s] + holds[w, s] - 1).with_name(f"alive[{v},{k},{s}]")
            if k:
                model.add(self.awaited[v, k, s] <= self.awaited[v, k - 1, s]).with_name(f"until[{v},{k},{s}]")

        # Sizes are rounded down and the room up.
        for s in self.stages:
            for v, terms, room in self.bytes_of(s):
                sizes = [abs(size) for size, _ in terms]
                unit = size_scale([*sizes, room], max(room, max(sizes, default=0.0)), math.fsum(sizes))
                model.add(whole_sum(terms, unit) <= unit.ceil(room)).with_name(f"memory[{s},{v}]")


def whole_sum(terms: Terms, unit: Scale) -> Any:
    """A sum of variables with their factors in whole units, rounded down."""
    return cp_model.LinearExpr.weighted_sum([each for _, each in terms], [unit.floor(factor) for factor, _ in terms])
