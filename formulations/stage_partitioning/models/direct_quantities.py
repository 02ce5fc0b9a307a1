"""What requirements may speak of, in the direct assignment model for HiGHS (`stage_partitioning.milp`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyomo.environ as pyo

from formulations.stage_partitioning.models.assignment_data import Terms
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum


class DirectQuantities(milp.Runnable):
    """What is added to the model for a requirement, beside its own variables ``degrees`` and ``choice``."""

    terms: Terms
    #: Positions of stages, from the input side on.
    stages: list[int]
    #: Positions in ``terms.options``.
    all_options: range

    def _devices(self, variables: Any) -> Any:
        """t d times the variable of every position and degrees, summed."""
        return weighted_sum((t * d, variables[j, t, d]) for j in self.stages for t, d in self.terms.configs)

    def _chosen(self, options: Iterable[int], j: int) -> Any:
        """How many of these options run at position j."""
        return weighted_sum((1.0, self.model.choice[o, j]) for o in options)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its decisions."""
        terms, model, index = self.terms, self.model, self.terms.instance.index

        def of_stage(factor: Callable[[int, int], int], stage: int) -> Any:
            return weighted_sum((factor(t, d), var) for (j, t, d), var in model.degrees.items() if j == stage)

        def of_node(factor: Callable[[int, int], int], node: Any) -> Any:
            own = terms.of_node[index[node]]
            return weighted_sum((factor(o, j), model.choice[o, j]) for o in own for j in self.stages)

        return {
            "num_stages": lambda: weighted_sum((1, var) for var in model.degrees.values()),
            "num_devices": lambda: self._devices(model.degrees),
            "same_stage": lambda node, other: self._together(*sorted((index[node], index[other]))),
            "stage_of": lambda node: of_node(lambda _, j: j, node),
            "nodes": lambda stage: self._chosen(self.all_options if stage in self.stages else (), stage),
            "tp_degree": lambda stage: of_stage(lambda t, _: t, stage),
            "dp_degree": lambda stage: of_stage(lambda _, d: d, stage),
            "tp_degree_of": lambda node: of_node(lambda o, _: terms.options[o].tp_degree, node),
            "dp_degree_of": lambda node: self._dp_degree_of(index[node]),
        }

    def _together(self, u: int, v: int) -> Any:
        """1 if nodes u and v are at one position."""
        model = self.model
        if model.component("together") is None:
            model.together = pyo.Var(
                pyo.Any,
                bounds=(0, 1),
                dense=False,
                doc="together[u,v,j]: position j holds nodes u and v, for a requirement",
            )
            model.holds_each = pyo.Constraint(
                pyo.Any, doc="it holds both of them: together[u,v,j] <= sum over o of u, and of v, of choice[o,j]"
            )
            model.holds_both = pyo.Constraint(
                pyo.Any, doc="what holds both holds them together: together[u,v,j] >= holds(u,j) + holds(v,j) - 1"
            )
        for j in self.stages:
            if (u, v, j) not in model.together:
                first, second = (self._chosen(self.terms.of_node[w], j) for w in (u, v))
                here = model.together[u, v, j]
                model.holds_each[u, v, j, 0] = here <= first
                model.holds_each[u, v, j, 1] = here <= second
                model.holds_both[u, v, j] = here >= first + second - 1
        return weighted_sum((1, model.together[u, v, j]) for j in self.stages)

    def _dp_degree_of(self, v: int) -> Any:
        """The data-parallel degree of the position that holds node v."""
        model, degrees = self.model, self.terms.dp_degrees
        if model.component("replicas") is None:
            model.replicas = pyo.Var(
                pyo.Any,
                bounds=(0, 1),
                dense=False,
                doc="replicas[v,d]: the stage that holds node v has data-parallel degree d, for a requirement",
            )
            model.one_of_replicas = pyo.Constraint(pyo.Any, doc="it has one: sum over d of replicas[v,d] = 1")
            model.own_replicas = pyo.Constraint(
                pyo.Any, doc="it is that of the position that holds v: replicas[v,d] <= has_d(j,d) + 1 - holds(v,j)"
            )
        if v not in model.one_of_replicas:
            model.one_of_replicas[v] = weighted_sum((1, model.replicas[v, d]) for d in degrees) == 1
            for j in self.stages:
                elsewhere = 1 - self._chosen(self.terms.of_node[v], j)
                for d in degrees:
                    has_d = weighted_sum((1, model.degrees[j, t, dp]) for t, dp in self.terms.configs if dp == d)
                    model.own_replicas[v, j, d] = model.replicas[v, d] <= has_d + elsewhere
        return weighted_sum((d, model.replicas[v, d]) for d in degrees)
