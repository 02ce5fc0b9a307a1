"""How many operators a stage of so many devices can have within a known plan's time: for rows of the CP-SAT model.

Where work does not divide among devices, the row on the work of all devices is weak: with 28 equal operators on 8 of
them some device has four. In terms of columns this is a dual solution in which all operators (or all large ones)
have one price: the most that a stage can have is the pricing problem, which a small model solves for each degree.

Source: the usual bound of bin packing; made for this project.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.modelling.solve_model import check_stop
from instances.problems.stage_graph import StageGraph
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch

#: Models of fewer operators are proved faster than the rows are found.
FEWEST_OPERATORS = 20
#: An operator is large if it takes more than this part of the largest one's time.
_LARGE = 0.5
#: What all degrees may take: seconds, and the share of the time that is left; what is proved by then is used.
_SECONDS, _SHARE = 10.0, 0.3
#: The relaxation of these models is nearly exact; without all of it CP-SAT takes twenty times as long.
_LINEAR = {"linearization_level": 2}


@dataclass(frozen=True)
class Stage:
    """What a stage of some degree takes, in units: ``passes`` of each operator, ``sending`` of each edge cut."""

    passes: Sequence[int]
    sending: Sequence[int]
    waiting: int


def capacities(
    instance: StageGraph, stages: Mapping[int, Stage], high: int, watch: Watch
) -> list[tuple[list[int], dict[int, int]]]:
    """Operators that are counted, and how many of them a stage of r devices has at most within ``high`` units.

    ``stages[r]`` is what it takes. `formulations.modelling.solve_model.Stopped` once the watch is stopped.
    """
    if instance.num_operators < FEWEST_OPERATORS:
        return []
    left = watch.remaining_s()
    own = watch.part(_SECONDS if left is None else min(_SECONDS, _SHARE * left), silent=True)
    found = []
    for operators in _counts_of(stages[1].passes):
        rooms = {}
        for r, stage in stages.items():
            check_stop(watch)
            rooms[r] = most(instance, operators, stage, high, own)
        found.append((operators, rooms))
    return found


def _counts_of(passes: Sequence[float]) -> list[list[int]]:
    """Which operators to count: all of them, and the large ones alone."""
    everything = list(range(len(passes)))
    large = [v for v in everything if passes[v] > _LARGE * max(passes)]
    return [everything] if large == everything else [everything, large]


def most(instance: StageGraph, operators: Sequence[int], stage: Stage, high: int, watch: Watch) -> int:
    """The most of these operators that a stage can have within ``high`` units; any set of operators may be one."""
    if watch.stopped():
        return len(operators)
    model = cp_model.CpModel()
    within = [model.new_bool_var(f"within[{v}]") for v in range(instance.num_operators)]
    cut = [model.new_bool_var(f"cut[{e}]") for e in range(len(instance.edges))]
    for e, edge in enumerate(instance.edges):
        source, target = within[edge.source], within[edge.target]
        for end, (here, there) in enumerate(((source, target), (target, source))):
            model.add_bool_or(cut[e], here.negated(), there).with_name(f"cut_where_it_leaves[{e},{end}]")
    taken: Any = cp_model.LinearExpr.weighted_sum([*within, *cut], [*stage.passes, *stage.sending])
    model.add(taken + stage.waiting <= high).with_name("time")
    model.maximize(sum(within[v] for v in operators))
    run = cpsat.run(model, Limits(), watch, parameters=_LINEAR)
    if run.infeasible:  # not even without operators: the all-reduce waits too long
        return 0
    return len(operators) if run.bound is None else min(len(operators), -cpsat.whole(-run.bound))
