"""Operator partitioning as a MILP (Pyomo, HiGHS): the sentences of CP-SAT's model (`models.assignment`), scaled."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer, infeasible_by_counting
from formulations.modelled import prove, require
from formulations.operator_partitioning.first_plan import first_plan
from formulations.operator_partitioning.models.assignment import largest_load
from formulations.operator_partitioning.models.quantities import Quantities
from formulations.operator_partitioning.models.sentences import SENTENCES
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.shapes import shortage
from formulations.operator_partitioning.vocabulary import VOCABULARY
from instances.operator_partitioning import OperatorInstance
from solvers import milp
from solvers.milp import weighted_sum
from solvers.outcome import Limits, Watch

#: Room in rows of sizes, in the model's units, for what HiGHS drops; what it lets through is cut off.
_SPARE = 1e-6


class MilpModel(Quantities, milp.Runnable):
    """A partition and the slowest stage over its replicas (``model.slowest``), in units of ``unit`` seconds."""

    def __init__(self, instance: OperatorInstance, known: float | None) -> None:
        super().__init__(instance)
        replicas = 1 if self.free else instance.replicas
        top = largest_load(instance)
        self.unit = (known * replicas if known else top) / milp.NATURAL or 1.0
        #: No load of interest is larger, in seconds.
        self.top = top
        if known:
            self.top = min(top, known * (instance.num_devices or replicas) * (1 + milp.ROOM))
        self._derived: dict[str, Any] = {}
        self.model = self._variables()
        self.holds, self.done, self.replicas = self.model.holds, self.model.done, self.model.replicas
        self.takes, self.leaves, self.sends = self.model.takes, self.model.leaves, self.model.sends
        self.keeps, self.awaited = self.model.keeps, self.model.awaited
        self._operators()
        self._used()
        if self.free:
            self._replicas()
        self._memory()
        self._communication()
        self._times()
        self.model.objective = pyo.Objective(expr=self.model.slowest)
        self.model.forbidden = pyo.ConstraintList(doc=SENTENCES["forbidden"])

    def _variables(self) -> Any:
        model = pyo.ConcreteModel()
        model.holds = pyo.Var(self.operators, self.stages, domain=pyo.Binary, doc=SENTENCES["holds"])
        model.done = pyo.Var(self.operators, self.stages[:-1], domain=pyo.Binary, doc=SENTENCES["done"])
        model.replicas = pyo.Var(
            self.stages, self.numbers() if self.free else (), domain=pyo.Binary, doc=SENTENCES["replicas"]
        )
        model.takes = pyo.Var(self.taking, domain=pyo.Binary, doc=SENTENCES["takes"])
        model.leaves = pyo.Var(self.leaving, domain=pyo.Binary, doc=SENTENCES["leaves"])
        model.sends = pyo.Var(self.sending, domain=pyo.Binary, doc=SENTENCES["sends"])
        model.keeps = pyo.Var(self.keeping, domain=pyo.Binary, doc=SENTENCES["keeps"])
        model.awaited = pyo.Var(list(self.awaiting), domain=pyo.Binary, doc=SENTENCES["awaited"])
        model.slowest = pyo.Var(bounds=(0, None), doc=SENTENCES["slowest"])
        return model

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
        """How many operators stage s holds."""
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

    def _communication(self) -> None:
        """M(s, s') of Equations 1 and 3; nothing but load keeps these variables down, so they need no upper rows."""
        model, tensors = self.model, self.instance.tensors

        def received(m: Any, t: int, target: int, s: int) -> Any:
            return m.takes[t, s] >= m.holds[target, s] - m.holds[tensors[t].source, s]

        targets = [(t, target, s) for t, s in self.taking for target in tensors[t].targets]
        model.received = pyo.Constraint(targets, rule=received, doc=SENTENCES["received"])

        def left(m: Any, t: int, s: int) -> Any:
            return m.leaves[t, s] >= m.holds[tensors[t].source, s] - m.holds[tensors[t].targets[0], s]

        model.left = pyo.Constraint(self.leaving, rule=left, doc=SENTENCES["left"])

        def sent(m: Any, t: int, s: int, q: int) -> Any:
            return m.sends[t, s, q] >= m.holds[tensors[t].source, s] + m.takes[t, q] - 1

        model.sent = pyo.Constraint(self.sending, rule=sent, doc=SENTENCES["sent"])

    def _times(self) -> None:
        """The slowest stage is at least as slow as every stage (Equation 1)."""
        model = self.model

        def time(s: int) -> Any:
            terms = self.seconds_of(s, model.takes, model.leaves, model.sends)
            return weighted_sum((milp.in_units(min(seconds, 2 * self.top), self.unit), each) for seconds, each in terms)

        if not self.free:
            # All stages have R replicas, so that is left to the objective:  t(s) <= slowest
            model.stage_time = pyo.Constraint(
                self.stages, rule=lambda m, s: time(s) <= m.slowest, doc=SENTENCES["stage_time"]
            )
            return

        # Big-M: no load of interest is above the largest one, so without r replicas the row says nothing.
        def stage_time(m: Any, s: int, r: int) -> Any:
            return time(s) <= r * m.slowest + self.top / self.unit * (1 - m.replicas[s, r])

        model.stage_time = pyo.Constraint(
            self.stages, [r for r in self.numbers() if r], rule=stage_time, doc=SENTENCES["stage_time"]
        )

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        replicas = 1 if self.free else self.instance.replicas
        return milp.trusted(bound, to_scale=True) * self.unit / replicas

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, which is within the tolerance of a row of sizes, yet too large; nor any no smaller."""
        variables, parts = self.no_smaller(values)
        self.model.forbidden.add(weighted_sum((1.0, each) for each in variables) <= parts - 1)


def build(instance: OperatorInstance, watch: Watch | None = None, *, complete: bool = False) -> MilpModel:
    """The model; its numbers are those of the instance but for their scale.

    A load that no plan as fast as the best one that the watch knows has counts as no larger, unless ``complete``.
    """
    model = MilpModel(instance, None if complete or watch is None else watch.best_objective)
    require(model, VOCABULARY, instance)
    return model


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)

    def model() -> MilpModel:
        return build(instance, watch)

    first = first_plan(instance)
    reason = "no assignment fits"
    return prove(instance, model, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
