"""What requirements may speak of in the models of blocks and of columns: sums over stages, and stages by their number.

Neither model counts its stages from the input side. What speaks of the stage of some number takes variables of its own.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyomo.environ as pyo
from ortools.sat.python import cp_model

from formulations.stage_partitioning.models.assignment_data import Terms
from solvers.cpsat import backend as cpsat
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum

#: The degrees of a stage that a plan may have, a block or an arc, by their letters.
_DEGREES = {"t": attrgetter("tp_degree"), "d": attrgetter("dp_degree")}


class StageQuantities:
    """The quantities of a plan, from linear expressions that a model gives."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """The instance's."""

    @abstractmethod
    def _over_stages(self, factor: Callable[[Any], int]) -> Any:
        """A whole number of every stage of the plan, summed."""

    @abstractmethod
    def _of_stage_with(self, v: int, factor: Callable[[Any], int]) -> Any:
        """A whole number of the stage that holds node v."""

    @abstractmethod
    def _together(self, u: int, v: int) -> Any:
        """1 if a stage holds both nodes."""

    @abstractmethod
    def _stage_of(self, v: int) -> Any:
        """Stages in front of the one that holds node v."""

    @abstractmethod
    def _nodes_at(self, stage: int) -> list[Any]:
        """For every node 1 if the stage of that number holds it."""

    @abstractmethod
    def _degree_at(self, letter: str, stage: int) -> Any:
        """A degree of the stage of that number; 0 if there is none."""

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """By name the linear expressions."""
        index = self.terms.instance.index
        return {
            "num_stages": lambda: self._over_stages(lambda _: 1),
            "num_devices": lambda: self._over_stages(attrgetter("devices")),
            "same_stage": lambda node, other: self._together(*sorted((index[node], index[other]))),
            "stage_of": lambda node: self._stage_of(index[node]),
            "nodes": lambda stage: sum(self._nodes_at(stage)),
            "tp_degree": lambda stage: self._degree_at("t", stage),
            "dp_degree": lambda stage: self._degree_at("d", stage),
            "tp_degree_of": lambda node: self._of_stage_with(index[node], _DEGREES["t"]),
            "dp_degree_of": lambda node: self._of_stage_with(index[node], _DEGREES["d"]),
        }

    def measures(self) -> Mapping[str, Callable[..., Any]]:
        """By name what requirements do not speak of: expressions, a time with what 1 of it is in the instance's unit.

        ``choice``: 1 if a stage holds a node. ``stage_time``: no less than what a stage takes.
        """
        index, stages = self.terms.instance.index, self.terms.nodes
        found: dict[str, Callable[..., Any]] = {
            "choice": lambda node, stage: self._nodes_at(stages[stage])[index[node]]
        }
        if (unit := self.time_unit()) is not None:
            found["stage_time"] = lambda stage: (self._time_at(stages[stage]), unit)
        return found

    def time_unit(self) -> float | None:
        """The instance's unit of time for 1 of the model's; ``None``: times of stages are no expressions of it."""
        return None

    def _times_with(self, _v: int) -> Iterable[tuple[Any, Any]]:
        """Times that a stage with node v may take, each with what is 1, or the literals that are true; or none."""
        return ()

    @abstractmethod
    def _time_at(self, stage: int) -> Any:
        """No less than the time of the stage of that number."""

    @cached_property
    def most_degree(self) -> int:
        """The largest degree of a stage."""
        return max((max(config) for config in self.terms.configs), default=0)

    @cached_property
    def most_stages(self) -> int:
        """No plan has more stages."""
        return len(self.terms.stages)


class MilpQuantities(StageQuantities, milp.Runnable):
    """With variables of Pyomo's for stages by their number."""

    def _nodes_at(self, stage: int) -> list[Any]:
        model, nodes = self.model, self.terms.nodes
        if model.component("at") is None:
            for name, place in (("before", "before"), ("at", "in"), ("behind", "behind")):
                doc = f"{name}[j,v]: node v is {place} stage j, for a requirement"
                model.add_component(name, pyo.Var(pyo.Any, domain=pyo.Binary, dense=False, doc=doc))
            model.one_side = pyo.Constraint(
                pyo.Any, doc="a node is at one of them: before[j,v] + at[j,v] + behind[j,v] = 1"
            )
            model.from_side = pyo.Constraint(
                pyo.Any, doc="its stage has a number of that side: j at + (j + 1) behind <= stage_of(v)"
            )
            model.up_to_side = pyo.Constraint(
                pyo.Any, doc="and no larger one: stage_of(v) <= (j - 1) before + j at + (|V| - 1) behind"
            )
        for v in nodes:
            if (stage, v) not in model.one_side:
                before, at, behind = model.before[stage, v], model.at[stage, v], model.behind[stage, v]
                stage_of = self._stage_of(v)
                model.one_side[stage, v] = before + at + behind == 1
                model.from_side[stage, v] = stage * at + (stage + 1) * behind <= stage_of
                model.up_to_side[stage, v] = stage_of <= (stage - 1) * before + stage * at + (len(nodes) - 1) * behind
        return [model.at[stage, v] for v in nodes]

    def _degree_at(self, letter: str, stage: int) -> Any:
        model, held, most = self.model, self._nodes_at(stage), self.most_degree
        # fmt: off
        if model.component("degree") is None:
            model.degree = pyo.Var(pyo.Any, domain=pyo.NonNegativeReals, dense=False,
                doc="degree[j,.]: t or d of stage j, for a requirement")
            model.own_degree = pyo.Constraint(pyo.Any,
                doc="a stage has the degree of each of its nodes v; big-M: the largest degree of any stage")
            model.no_degree = pyo.Constraint(pyo.Any, doc="a stage without a node has none; big-M: as before")
        # fmt: on
        if (stage, letter) not in model.no_degree:
            found = model.degree[stage, letter]
            model.no_degree[stage, letter] = found <= most * pyo.quicksum(held)
            for v, at in enumerate(held):
                model.own_degree[stage, letter, v, 0] = found <= self._of_stage_with(v, _DEGREES[letter]) + most * (
                    1 - at
                )
                model.own_degree[stage, letter, v, 1] = found >= self._of_stage_with(v, _DEGREES[letter]) - most * (
                    1 - at
                )
        return weighted_sum([(1, model.degree[stage, letter])])

    def _time_at(self, stage: int) -> Any:
        model = self.model
        if model.component("time_at") is None:
            model.time_at = pyo.Var(pyo.Any, domain=pyo.NonNegativeReals, dense=False, doc="time_at[j]: stage j takes "
                                    "that at most")  # fmt: skip
            model.own_time = pyo.Constraint(pyo.Any, doc="a stage that holds node v takes as much; big-M: no "
                                            "stage of any plan takes more")  # fmt: skip
        most = self.terms.largest_time / (self.time_unit() or 1.0) * (1 + milp.ROOM)
        if (stage, 0, 0) not in model.own_time:
            for v, at in enumerate(self._nodes_at(stage)):
                for place, (here, time) in enumerate(self._times_with(v)):
                    model.own_time[stage, v, place] = model.time_at[stage] >= time - most * (2 - at - here)
        return model.time_at[stage]


class CpsatQuantities(StageQuantities, cpsat.Runnable):
    """With variables of CP-SAT's for stages by their number."""

    model: cpsat.SpokenModel

    @cached_property
    def derived_terms(self) -> dict[Any, Any]:
        """What was added for requirements."""
        return {}

    def _nodes_at(self, stage: int) -> list[Any]:
        if stage in self.derived_terms:
            return list(self.derived_terms[stage])
        model = self.model
        model.says("at", "at[j,v]: stage j holds node v, for a requirement")
        model.says("at_if", "then as many stages are in front of it: stage_of(v) = j")
        model.says("at_unless", "else there are not: stage_of(v) is not j")
        held = self.derived_terms[stage] = [model.new_bool_var(f"at[{stage},{v}]") for v in self.terms.nodes]
        for v, at in enumerate(held):
            model.add(self._stage_of(v) == stage).with_name(f"at_if[{stage},{v}]").only_enforce_if(at)
            model.add(self._stage_of(v) != stage).with_name(f"at_unless[{stage},{v}]").only_enforce_if(~at)
        return list(held)

    def _degree_at(self, letter: str, stage: int) -> Any:
        model, held, name = self.model, self._nodes_at(stage), f"degree_{letter}[{stage}]"
        if name not in self.derived_terms:
            model.says(f"degree_{letter}", f"degree_{letter}[j]: {letter} of stage j, for a requirement")
            model.says("own_degree", "a stage has the degree of each of its nodes v")
            model.says("no_degree", "a stage without a node has none")
            found = self.derived_terms[name] = model.new_int_var(0, self.most_degree, name)
            for v, at in enumerate(held):
                own = model.add(found == self._of_stage_with(v, _DEGREES[letter])).with_name(
                    f"own_degree[{letter},{stage},{v}]"
                )
                own.only_enforce_if(at)
            model.add(found == 0).with_name(f"no_degree[{letter},{stage}]").only_enforce_if(*(~at for at in held))
        return self.derived_terms[name]

    def _time_at(self, stage: int) -> Any:
        model, held, name = self.model, self._nodes_at(stage), f"time_at[{stage}]"
        if name not in self.derived_terms:
            model.says("time_at", "time_at[j]: stage j takes that at most")
            model.says("own_time", "a stage that holds node v at a sum s takes as much")
            most = math.ceil(2 * self.terms.largest_time / (self.time_unit() or 1.0)) + 1
            found = self.derived_terms[name] = model.new_int_var(0, most, name)
            for v, at in enumerate(held):
                for place, (here, time) in enumerate(self._times_with(v)):
                    row = model.add(found >= time).with_name(f"own_time[{stage},{v},{place}]")
                    row.only_enforce_if(at, *here)
        return self.derived_terms[name]


def total(variables: list[Any], factors: list[int]) -> Any:
    """CP-SAT's sum of factor times variable."""
    return cp_model.LinearExpr.weighted_sum(variables, factors)
