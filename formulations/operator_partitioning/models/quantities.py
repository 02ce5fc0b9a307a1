"""What requirements may speak of, in the models of both solvers: sums of their variables, and variables for the rest.

A solver's model says how it takes variables and rows; expressions of both are written the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from formulations.operator_partitioning.models.assignment import Assignment
from instances.rules import NodeId


class Quantities(Assignment, ABC):
    """An assignment's quantities; what is added for one is added once."""

    _derived: dict[str, Any]

    @abstractmethod
    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""

    @abstractmethod
    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan; operators by their ids."""
        place = {operator.id: v for v, operator in enumerate(self.instance.operators)}

        def of_one(quantity: Callable[[int], Any]) -> Callable[[NodeId], Any]:
            return lambda operator: quantity(place[operator])

        return {
            "num_stages": self._num_stages,
            "stage_of": of_one(self._stage_of),
            "same_stage": lambda operator, other: self._together(*sorted((place[operator], place[other]))),
            "replicas_of": of_one(self._replicas_of),
        }

    def _once(self, name: str, index: tuple[int, ...], most: int) -> tuple[Any, bool]:
        """The variable of that name, and whether it is new."""
        key = f"{name}{index}"
        is_new = key not in self._derived
        if is_new:
            self._derived[key] = self.new_integer(name, index, most)
        return self._derived[key], is_new

    def _num_stages(self) -> Any:
        found = []
        for s in self.stages:
            used, is_new = self._once("used", (s,), 1)
            found.append(used)
            if is_new:
                self.hold("used_if", (s,), used <= sum(self.holds[v, s] for v in self.operators))
                for v in self.operators:
                    self.hold("used_by", (v, s), used >= self.holds[v, s])
        return sum(found)

    def _stage_of(self, v: int) -> Any:
        """Stages that are used and in front of it; where some are empty, these are the first."""
        position = sum(s * self.holds[v, s] for s in self.stages)
        return position - (len(self.stages) - self._num_stages()) if self.instance.at_most else position

    def _together(self, u: int, v: int) -> Any:
        found, is_new = self._once("together", (u, v), 1)
        for s in self.stages if is_new else ():
            here, there = self.holds[u, s], self.holds[v, s]
            self.hold("together_if", (u, v, s), found <= 1 - here + there)
            self.hold("together_unless", (u, v, s), found >= here + there - 1)
        return found

    def _replicas_of(self, v: int) -> Any:
        if not self.free:  # all have R, and an operator is in one stage
            return sum(self.instance.replicas * self.holds[v, s] for s in self.stages)
        devices = self.instance.num_devices or 0
        found, is_new = self._once("number", (v,), devices)
        for s in self.stages if is_new else ():
            own = sum(r * self.replicas[s, r] for r in self.numbers())
            elsewhere = devices * (1 - self.holds[v, s])
            self.hold("number_least", (v, s), found >= own - elsewhere)
            self.hold("number_most", (v, s), found <= own + elsewhere)
        return found
