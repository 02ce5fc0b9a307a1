"""The cover of a target (Pyomo, HiGHS): each operator in one of some convex sets of operators, on the fewest devices.

Within a target every stage has its fewest devices (GraphPipe's EstimateTPS <= t_max, Algorithm 1, line 28, and Equation
2 at its depth), so Equation 1 is left out. Source: this project.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.stage_graph.costs.costs import bits
from instances.problems.stage_graph import StageGraph
from solvers.milp import backend as milp

#: The number of a convex set, and a depth.
Column = tuple[int, int]


@dataclass
class Model(milp.Runnable):
    """The cover of one target, ``model``; ``masks[n]`` is a set of operators, ``columns[n, d]`` its devices at depth d.

    It minimises devices, not what the instance does, so it gives no bound: that there is no cover is the proof.
    Without depths (``is_flat``) stages of a solution may wait for each other; then `forbid` them.
    """

    model: Any
    masks: Sequence[int]
    columns: Mapping[Column, int]

    def decode(self, values: Any) -> list[tuple[int, int]]:
        """The stages of a solution: a bitset of operators and the devices of each."""
        taken = self.model.taken
        return [(self.masks[column[0]], need) for column, need in self.columns.items() if values[taken[column]] > 0.5]

    def forbid(self, stages: Collection[int]) -> None:
        """Not all of these stages together: they wait for each other."""
        taken = [each for column, each in self.model.taken.items() if self.masks[column[0]] in stages]
        self.model.forbidden.add(pyo.quicksum(taken) <= len(stages) - 1)


def build(instance: StageGraph, masks: Sequence[int], columns: Mapping[Column, int], *, is_flat: bool = False) -> Model:
    """The model; ``taken[n, d]``: set n is a stage, with d stages from it to the end, itself among them.

    ``is_flat``: every set has one column, whatever comes behind it, and nothing is said of depths.
    """
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(list(columns), domain=pyo.Binary, doc="taken[n,d]: set n is a stage at depth d")
    holding: list[list[Column]] = [[] for _ in range(instance.num_operators)]
    for column in columns:
        for v in bits(masks[column[0]]):
            holding[v].append(column)
    if not all(holding):
        # Some operator keeps the target in no column: its row has no variable, and Pyomo takes none without.
        model.nowhere = pyo.Var(bounds=(0, 0))
        model.one_stage = pyo.Constraint(expr=model.nowhere == 1)
        return Model(model, masks, columns)

    model.one_stage = pyo.Constraint(
        range(instance.num_operators),
        rule=lambda m, v: pyo.quicksum(m.taken[column] for column in holding[v]) == 1,
        doc="the stages are a partition: sum over columns with v of taken[n,d] = 1 [GraphPipe, section 3, C1]",
    )
    devices = pyo.quicksum(need * model.taken[column] for column, need in columns.items())
    model.enough_devices = pyo.Constraint(
        expr=devices <= instance.num_devices,
        doc="the devices of stages are disjoint: sum of need[n,d] taken[n,d] <= D [GraphPipe, section 3, C3]",
    )

    model.devices = pyo.Objective(expr=devices)
    if is_flat:
        model.forbidden = pyo.ConstraintList(doc="stages that wait for each other [GraphPipe, section 3]")
        return Model(model, masks, columns)

    # A depth that is larger than it need be costs memory and nothing else (Appendix A.1, i_x = i_y + b).
    def falling(m: Any, e: int) -> Any:
        source, target = instance.edges[e].source, instance.edges[e].target
        ends = 1 << source | 1 << target
        falls = pyo.quicksum(depth * m.taken[number, depth] for number, depth in holding[source])
        falls -= pyo.quicksum(depth * m.taken[number, depth] for number, depth in holding[target])
        inner = [column for column in holding[source] if masks[column[0]] & ends == ends]
        return falls + pyo.quicksum(m.taken[column] for column in inner) >= 1

    model.falling_depth = pyo.Constraint(
        range(len(instance.edges)),
        rule=falling,
        doc="along an edge the depth falls by 1, unless a column has both ends [GraphPipe, section 3, C2]",
    )
    return Model(model, masks, columns)
