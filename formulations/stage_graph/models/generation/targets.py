"""Whether a target is possible, by columns: a bound by column generation, and a cover of all columns that are left.

If prices prove that no plan takes fewer than L devices, and D are there, the stages of a plan within the target are
worth their devices, but for D - L in all. Stages that are worth less are in none, and where those that are left are
few, all of them are listed, and the cover of them by HiGHS decides.

Source: this project; the enumeration is that of route relaxations in Baldacci, Christofides and Mingozzi (2008).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formulations.modelling.solve_model import Stopped, check_stop
from formulations.stage_graph.costs.costs import Costs, assemble, bits
from formulations.stage_graph.costs.tables import StageTables
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges
from formulations.stage_graph.kernels.levels import needed
from formulations.stage_graph.models.generation.master import Bound, Generation
from formulations.stage_graph.models.generation.pricing import Pricing, kinds
from instances.graph import find_cycle
from solvers.outcome import Limits, Stop, Watch

#: More columns are not listed, or not given to HiGHS.
MAX_SETS, MAX_COLUMNS = 10_000, 40_000
#: Devices are counted: a bound less than this above a number of them says no more than that number.
_PART_OF_A_DEVICE = 1e-6


@dataclass
class Targets:
    """The relaxation of `upsets.bounds.prove`.

    With ``covers_too`` `least` is exact, but where `unlisted` and `failure` say why it is not; else it is the bound.
    """

    costs: Costs
    limits: Limits
    watch: Watch
    #: What is known, for where a target is left undecided.
    known: StagePlan | None
    #: The model of a target: `milp_columns.cover`.
    cover: Callable[..., Any]
    covers_too: bool = False
    covers: int = 0
    search_nodes: int = 0
    solver: str = ""
    #: Why a target was left undecided, and the words of a solver that failed.
    unlisted: str = ""
    failure: str = ""
    _found: StagePlan | None = field(default=None)

    def __post_init__(self) -> None:
        self.pricing = Pricing(self.costs, self.watch)
        self.generation = Generation(self.costs, self.pricing, self.limits, self.watch)

    def least(self, target_s: float, sizes: Sequence[int]) -> int | None:
        """Fewest devices with any of these micro-batch sizes, or at least so many; ``None`` if stopped."""
        self._found = None
        num_devices = self.costs.instance.num_devices
        try:
            is_question = len(sizes) > 1 or not self.covers_too
            bound = self.generation.bound(target_s, sizes, is_question=is_question)
            fewest = max(1, math.ceil(bound.devices - _PART_OF_A_DEVICE))
            if fewest > num_devices or is_question:
                return fewest
            masks = self._remaining_sets(bound, sizes[0])
            return fewest if masks is None else self._cover(sorted(masks), sizes[0], target_s, fewest)
        except Stopped:
            return None

    def plan(self, _microbatch: int) -> StagePlan:
        """The plan behind the last answer, or the one that is known: for targets that are undecided."""
        found = self._found or self.known
        return found if found is not None else StagePlan((), ())

    def _remaining_sets(self, bound: Bound, size: int) -> set[int] | None:
        """All sets that the stages of a plan on all devices can have; ``None`` if they are too many."""
        num_devices, masks = self.costs.instance.num_devices, set[int]()
        prices, room = bound.prices, num_devices - bound.devices
        for kind in (kind for devices in range(1, num_devices + 1) for kind in kinds(self.costs, [size], devices)):
            found = self.pricing.sets(prices, kind, kind.devices - room, MAX_SETS)
            masks |= found or set()
            if found is None or len(masks) > MAX_SETS:
                self.unlisted = (
                    f"more than {MAX_SETS} stages may be better than the prices that the relaxation gives them"
                )
                return None
        if self.pricing.walk.is_relaxed:
            return {nodes for nodes in masks if self._is_convex(nodes)}
        return masks

    def _is_convex(self, nodes: int) -> bool:
        above = below = 0
        for v in bits(nodes):
            above, below = above | self.costs.above[v], below | self.costs.below[v]
        return above & below & ~nodes == 0

    def _cover(self, masks: Sequence[int], size: int, target_s: float, fewest: int) -> int | None:
        """Devices of the cover with these sets, ``D + 1`` if there is none; a bound where it is not found out."""
        instance = self.costs.instance
        if not masks:
            return instance.num_devices + 1
        degrees = np.arange(1, instance.num_devices + 1)
        need = np.empty((len(masks), min(instance.num_devices, instance.num_operators) + 1), np.int32)
        tps, room = StageTables(self.costs, masks, degrees).at(size)
        needed(tps, room, target_s, degrees, need)
        is_flat = bool((need[:, 1:] == need[:, 1:2]).all())
        columns = {
            (number, depth, devices, size): float(tps[number, devices - 1])
            for number in range(len(masks))
            for depth in range(1, 2 if is_flat else need.shape[1])
            if (devices := int(need[number, depth])) <= instance.num_devices
        }
        if len(columns) > MAX_COLUMNS:
            self.unlisted = f"{len(columns)} columns of stages at depths; expected at most {MAX_COLUMNS}"
            return fewest
        check_stop(self.watch)
        model = self.cover(instance, masks, columns, target_s, is_flat=is_flat)
        return instance.num_devices + 1 if model is None else self._run(model, size)

    def _run(self, model: Any, size: int) -> int | None:
        instance = self.costs.instance
        while True:
            self.covers += 1
            run = model.run(self.limits, self.watch)
            self.solver = run.solver or self.solver
            self.search_nodes += int(run.stats.get("search_nodes", 0))
            if run.infeasible:
                return instance.num_devices + 1
            if run.values is None:
                self.failure = run.reason
                self.watch.stop(run.stop if run.stop is not Stop.PROVED else Stop.COMPLETED)
                return None
            parts = model.parts(run.values)
            stages = [Stage(tuple(bits(nodes)), devices, size, size) for nodes, devices in parts]
            cycle = find_cycle(len(stages), data_edges(instance, stages))
            if not cycle:
                self._found = assemble(instance, parts, size)
                return sum(int(devices) for _, devices in parts)
            model.forbid({parts[stage][0] for stage in cycle})
