"""What requirements may speak of, in the column model (`columns`): sums over the arcs of the path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyomo.environ as pyo

from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.usable_arcs import Arc
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum

_SIDES = ("before", "at", "behind")


class FlowQuantities(milp.Runnable):
    """What is added to the model for a requirement, beside its own variables ``flow``."""

    prices: Prices
    arcs: list[Arc]

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its path.

        The path does not count its stages from the input side; what speaks of the stage of some number takes variables
        of its own, for the sides of that stage that the nodes are on.
        """
        index = self.prices.terms.instance.index

        def holding(factor: Callable[[Arc], int], *nodes: Any) -> Any:
            return self._taken(lambda arc: factor(arc) if all(index[v] in arc.block.nodes for v in nodes) else 0)

        return {
            "num_stages": lambda: holding(lambda _: 1),
            "num_devices": lambda: holding(lambda arc: arc.devices),
            "same_stage": lambda node, other: holding(lambda _: 1, node, other),
            "stage_of": lambda node: self._stage_of(index[node]),
            "nodes": lambda stage: weighted_sum((1, at) for at in self._held(stage)),
            "tp_degree": lambda stage: self._degree("t", lambda arc: arc.tp_degree, stage),
            "dp_degree": lambda stage: self._degree("d", lambda arc: arc.dp_degree, stage),
            "tp_degree_of": lambda node: holding(lambda arc: arc.tp_degree, node),
            "dp_degree_of": lambda node: holding(lambda arc: arc.dp_degree, node),
        }

    def _taken(self, factor: Callable[[Arc], int]) -> Any:
        """A whole number of every arc of the path, summed."""
        factors = ((factor(arc), a) for a, arc in enumerate(self.arcs))
        return weighted_sum((amount, self.model.flow[a]) for amount, a in factors if amount)

    def _stage_of(self, v: int) -> Any:
        """Stages in front of the one that holds node v: those that follow it on the path."""
        return self._taken(lambda arc: self.prices.downsets[arc.block.inner] >> v & 1)

    def _held(self, stage: int) -> list[Any]:
        """For every node 1 if the stage of that number holds it."""
        model, nodes = self.model, self.prices.terms.nodes
        if model.component("side") is None:
            model.side = pyo.Var(
                pyo.Any,
                domain=pyo.Binary,
                dense=False,
                doc="side[j,v,.]: node v is before stage j, at it, or behind it, for a requirement",
            )
            model.one_side = pyo.Constraint(pyo.Any, doc="a node is on one side: sum of side[j,v,.] = 1")
            model.from_side = pyo.Constraint(
                pyo.Any, doc="its stage has a number of that side: j at + (j + 1) behind <= stage_of(v)"
            )
            model.up_to_side = pyo.Constraint(
                pyo.Any, doc="and no larger one: stage_of(v) <= (j - 1) before + j at + (|V| - 1) behind"
            )
        for v in nodes:
            if (stage, v) not in model.one_side:
                before, at, behind = (model.side[stage, v, side] for side in _SIDES)
                stage_of = self._stage_of(v)
                model.one_side[stage, v] = before + at + behind == 1
                model.from_side[stage, v] = stage * at + (stage + 1) * behind <= stage_of
                model.up_to_side[stage, v] = stage_of <= (stage - 1) * before + stage * at + (len(nodes) - 1) * behind
        return [model.side[stage, v, "at"] for v in nodes]

    def _degree(self, letter: str, degree: Callable[[Arc], int], stage: int) -> Any:
        """A degree of the stage of that number; 0 if there is none."""
        model, held = self.model, self._held(stage)
        if model.component("degree") is None:
            model.degree = pyo.Var(
                pyo.Any,
                domain=pyo.NonNegativeReals,
                dense=False,
                doc="degree[j,.]: t or d of stage j, for a requirement",
            )
            model.own_degree = pyo.Constraint(
                pyo.Any, doc="a stage has the degree of each of its nodes v; big-M: the largest degree of any arc"
            )
            model.no_degree = pyo.Constraint(pyo.Any, doc="a stage without a node has none; big-M: as before")
        if (stage, letter) not in model.no_degree:
            most = max(map(degree, self.arcs), default=0)
            found = model.degree[stage, letter]
            model.no_degree[stage, letter] = found <= most * pyo.quicksum(held)
            for v, at in enumerate(held):
                of_node = self._taken(lambda arc, v=v: degree(arc) if v in arc.block.nodes else 0)  # type: ignore[misc]
                model.own_degree[stage, letter, v, 0] = found <= of_node + most * (1 - at)
                model.own_degree[stage, letter, v, 1] = found >= of_node - most * (1 - at)
        return weighted_sum([(1, model.degree[stage, letter])])
