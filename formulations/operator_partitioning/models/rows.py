"""The rules of a partition in Pyomo: operators, replicas and memory of the stages, without the time that they take."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from typing import Any

import pyomo.environ as pyo

from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.models.quantities import Quantities
from formulations.operator_partitioning.models.sentences import SENTENCES
from instances.problems.operator_partitioning import OperatorInstance
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum

#: Room in rows of sizes, in the model's units, for what HiGHS drops; what it lets through is cut off.
_SPARE = 1e-6


class Rows(Quantities):
    """The variables of `Assignment` and their rules in ``model``; what else it decides is the caller's."""

    def __init__(self, instance: OperatorInstance, model: Any) -> None:
        super().__init__(instance)
        self.model = model
        self._derived: dict[str, Any] = {}
        model.holds = pyo.Var(self.operators, self.stages, domain=pyo.Binary, doc=SENTENCES["holds"])
        model.done = pyo.Var(self.operators, self.stages[:-1], domain=pyo.Binary, doc=SENTENCES["done"])
        model.replicas = pyo.Var(
            self.stages, self.numbers() if self.free else (), domain=pyo.Binary, doc=SENTENCES["replicas"]
        )
        model.keeps = pyo.Var(self.keeping, domain=pyo.Binary, doc=SENTENCES["keeps"])
        model.awaited = pyo.Var(list(self.awaiting), domain=pyo.Binary, doc=SENTENCES["awaited"])
        model.forbidden = pyo.ConstraintList(doc=SENTENCES["forbidden"])
        self.holds, self.done, self.replicas = model.holds, model.done, model.replicas
        self.keeps, self.awaited = model.keeps, model.awaited
        self.takes = self.leaves = self.sends = {}
        self._operators()
        self._used()
        if self.free:
            self._replicas()
        self._memory()

    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""
        if self.model.component(name) is None:
            variables = pyo.Var(pyo.Any, domain=pyo.NonNegativeIntegers, dense=False, doc=SENTENCES[name])
            self.model.add_component(name, variables)
        found = self.model.component(name)[index]
        found.setub(most)
        return found

    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""
        if self.model.component(name) is None:
            self.model.add_component(name, pyo.Constraint(pyo.Any, doc=SENTENCES[name]))
        self.model.component(name)[index] = row

    def _members(self, s: int) -> Any:
        return weighted_sum((1.0, self.model.holds[v, s]) for v in self.operators)

    def _operators(self) -> None:
        model = self.model

        def one_stage(m: Any, v: int) -> Any:
            return weighted_sum((1.0, m.holds[v, s]) for s in self.stages) == 1

        model.one_stage = pyo.Constraint(self.operators, rule=one_stage, doc=SENTENCES["one_stage"])

        def counted(m: Any, v: int, s: int) -> Any:
            before = m.done[v, s - 1] if s else 0.0
            return (m.done[v, s] if s < self.last else 1.0) == before + m.holds[v, s]

        model.counted = pyo.Constraint(
            self.operators, self.stages if self.last else (), rule=counted, doc=SENTENCES["counted"]
        )

        def order(m: Any, u: int, v: int, s: int) -> Any:
            return m.done[v, s] <= m.done[u, s]

        model.order = pyo.Constraint(list(self.instance.edges), self.stages[:-1], rule=order, doc=SENTENCES["order"])

    def _used(self) -> None:
        if not self.instance.at_most:
            self.model.not_empty = pyo.Constraint(
                self.stages, rule=lambda _, s: self._members(s) >= 1, doc=SENTENCES["not_empty"]
            )
            return

        def empty_first(m: Any, v: int, s: int) -> Any:
            return m.holds[v, s] <= self._members(s + 1)

        self.model.empty_first = pyo.Constraint(
            self.operators, self.stages[:-1], rule=empty_first, doc=SENTENCES["empty_first"]
        )

    def _replicas(self) -> None:
        model, numbers = self.model, self.numbers()

        def one_number(m: Any, s: int) -> Any:
            return weighted_sum((1.0, m.replicas[s, r]) for r in numbers) == 1

        def some_replica(m: Any, v: int, s: int) -> Any:
            return m.holds[v, s] + m.replicas[s, 0] <= 1

        model.one_number = pyo.Constraint(self.stages, rule=one_number, doc=SENTENCES["one_number"])
        if self.instance.at_most:
            model.some_replica = pyo.Constraint(
                self.operators, self.stages, rule=some_replica, doc=SENTENCES["some_replica"]
            )

        used = weighted_sum((r, model.replicas[s, r]) for s in self.stages for r in numbers if r)
        model.devices = pyo.Constraint(expr=used <= self.instance.num_devices, doc=SENTENCES["devices"])

    def _memory(self) -> None:
        model = self.model

        def kept(m: Any, v: int, w: int, s: int) -> Any:
            return m.keeps[v, s] >= m.holds[w, s] - m.holds[v, s]

        model.kept = pyo.Constraint(
            [(v, w, s) for v, s in self.keeping for w in self.after[v]], rule=kept, doc=SENTENCES["kept"]
        )

        def alive(m: Any, v: int, k: int, s: int) -> Any:
            return m.awaited[v, k, s] >= m.holds[v, s] + m.holds[self.awaiting[v, k, s], s] - 1

        def until(m: Any, v: int, k: int, s: int) -> Any:
            return m.awaited[v, k, s] <= m.awaited[v, k - 1, s]

        model.alive = pyo.Constraint(list(self.awaiting), rule=alive, doc=SENTENCES["alive"])
        model.until = pyo.Constraint([(v, k, s) for v, k, s in self.awaiting if k], rule=until, doc=SENTENCES["until"])

        rows = {(s, v): (terms, room) for s in self.stages for v, terms, room in self.bytes_of(s)}

        def memory(_: Any, s: int, v: int) -> Any:
            terms, room = rows[s, v]
            if not any(size for size, _ in terms):
                return pyo.Constraint.Skip
            unit = max(abs(room), *(abs(size) for size, _ in terms)) / milp.NATURAL or 1.0
            return weighted_sum((size / unit, each) for size, each in terms) <= room / unit + _SPARE

        model.memory = pyo.Constraint(list(rows), rule=memory, doc=SENTENCES["memory"])

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, which is within the tolerance of a row of sizes, yet too large; nor any no smaller."""
        variables, parts = self.no_smaller(values)
        self.model.forbidden.add(weighted_sum((1.0, each) for each in variables) <= parts - 1)
