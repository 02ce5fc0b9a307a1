"""A partition in a model of either solver: how its plan is read, what requirements speak of, and what is cut off."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import stage_of
from formulations.operator_partitioning.models.assignment_data import Data
from instances.rules import NodeId


class Partition(ABC):
    """The variables of a model by name and index: ``holds[v, s]`` and ``replicas[s, r]`` decide, others follow."""

    data: Data
    var: Any  # these are the solver's (`ByName`)
    new_integer: Any
    new_row: Any

    @abstractmethod
    def cut_off(self, plan: OperatorPlan, values: Any) -> None:
        """Forbid a partition with too many bytes, and any that is no smaller."""

    def decode(self, values: Any) -> OperatorPlan:
        """The plan of a solution."""
        stages: list[list[int]] = [[] for _ in self.data.stages]
        for v, s in self._ones("holds", values):
            stages[s].append(v)
        numbers = dict(self._ones("replicas", values))
        used = [s for s in self.data.stages if stages[s]]
        replicas = (numbers[s] if self.data.is_free else self.data.instance.replicas for s in used)
        return OperatorPlan(tuple(tuple(sorted(stages[s])) for s in used), tuple(replicas))

    def values_of(self, plan: OperatorPlan) -> Iterator[tuple[Any, int]]:
        """The values of all binary variables in a feasible plan, as pairs of a variable and its value."""
        home, empty = stage_of(plan), len(self.data.stages) - len(plan.stages)
        at = [home[v] + empty for v in self.data.operators]
        number, after, tensors = [0] * empty + list(plan.replicas), self.data.after, self.data.instance.tensors

        def takes(t: int, s: int) -> bool:
            return at[tensors[t].source] != s and any(at[target] == s for target in tensors[t].targets)

        meanings: dict[str, Callable[..., bool]] = {
            "holds": lambda v, s: at[v] == s,
            "done": lambda v, s: at[v] <= s,
            "replicas": lambda s, r: number[s] == r,
            "takes": takes,
            "leaves": lambda t, s: at[tensors[t].source] == s != at[tensors[t].targets[0]],
            "sends": lambda t, s, q: at[tensors[t].source] == s and takes(t, q),
            "feeds": lambda s, q: any((at[u], at[v]) == (s, q) for u, v in self.data.instance.edges),
            "keeps": lambda v, s: at[v] != s and any(at[w] == s for w in after[v]),
            "awaited": lambda v, k, s: at[v] == s and any(at[w] == s for w in after[v][k:]),
        }
        for name, holds in meanings.items():
            yield from ((variable, int(holds(*index))) for index, variable in self.var(name).items())

    def no_smaller(self, values: Any) -> tuple[list[Any], int]:
        """Variables of which so many are 1 in a solution that is too large; any with as many is no smaller.

        Some operator must move, or where replicas pool their memory a stage must have more of them. Replicas of empty
        stages, which no plan shows, do not make it another one.
        """
        places = self._ones("holds", values)
        found, parts = [self.var("holds")[place] for place in places], len(places)
        if self.data.is_free and self.data.instance.pooled_memory:
            number = dict(self._ones("replicas", values))
            for s in {s for _, s in places}:
                found += [self.var("replicas")[s, r] for r in self.data.numbers if 0 < r <= number[s]]
                parts += 1
        return found, parts

    def _ones(self, name: str, values: Any) -> list[Any]:
        """The indices of the variables that are 1."""
        return [index for index, variable in self.var(name).items() if values[variable] > 0.5]

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan; operators by their ids."""
        place = {operator.id: v for v, operator in enumerate(self.data.instance.operators)}

        def of_one(quantity: Callable[[int], Any]) -> Callable[[NodeId], Any]:
            return lambda operator: quantity(place[operator])

        return {
            "num_stages": self._num_stages,
            "stage_of": of_one(self._stage_of),
            "same_stage": lambda operator, other: self._together(*sorted((place[operator], place[other]))),
            "replicas_of": of_one(self._replicas_of),
        }

    def _num_stages(self) -> Any:
        holds, operators = self.var("holds"), self.data.operators
        for s in self.data.stages if not self.var("used") else ():
            used = self.new_integer("used", (s,), 1, "used[s]: stage s has an operator, for a requirement")
            self.new_row(
                "used_if", (s,), used <= sum(holds[v, s] for v in operators),
                "a stage that is used has an operator: used[s] <= sum over v of holds[v,s]")  # fmt: skip
            for v in operators:
                self.new_row("used_by", (v, s), used >= holds[v, s],
                             "a stage with an operator is used: used[s] >= holds[v,s]")  # fmt: skip
        return sum(self.var("used").values())

    def _stage_of(self, v: int) -> Any:
        """Stages that are used and in front of it; where some are empty, these are the first."""
        stages = self.data.stages
        position = sum(s * self.var("holds")[v, s] for s in stages)
        return position - (len(stages) - self._num_stages()) if self.data.instance.at_most else position

    def _together(self, u: int, v: int) -> Any:
        holds = self.var("holds")
        if (u, v) not in self.var("together"):
            found = self.new_integer(
                "together", (u, v), 1, "together[u,v]: operators u and v are in one stage, for a requirement"
            )
            for s in self.data.stages:
                self.new_row(
                    "together_if",
                    (u, v, s),
                    found <= 1 - holds[u, s] + holds[v, s],
                    "then every stage holds both or none: together[u,v] <= 1 - holds[u,s] + holds[v,s]",
                )
                self.new_row("together_unless", (u, v, s), found >= holds[u, s] + holds[v, s] - 1,
                    "else none holds both: together[u,v] >= holds[u,s] + holds[v,s] - 1")  # fmt: skip
        return self.var("together")[u, v]

    def _replicas_of(self, v: int) -> Any:
        holds, stages = self.var("holds"), self.data.stages
        if not self.data.is_free:  # all have R, and an operator is in one stage
            return sum(self.data.instance.replicas * holds[v, s] for s in stages)
        if (v,) not in self.var("number"):
            devices = self.data.instance.num_devices or 0
            found = self.new_integer("number", (v,), devices,
                "number[v]: replicas of the stage that holds operator v, for a requirement")  # fmt: skip
            for s in stages:
                own = sum(r * self.var("replicas")[s, r] for r in self.data.numbers)
                elsewhere = devices * (1 - holds[v, s])
                self.new_row(
                    "number_least",
                    (v, s),
                    found >= own - elsewhere,
                    "no fewer than that stage has: number[v] >= sum of r replicas[s,r] - D (1 - holds[v,s]); big-M: D "
                    "devices",
                )
                self.new_row("number_most", (v, s), found <= own + elsewhere,
                    "no more than that stage has: number[v] <= sum of r replicas[s,r] + D (1 - holds[v,s]); big-M: D "
                    "devices")  # fmt: skip
        return self.var("number")[v,]
