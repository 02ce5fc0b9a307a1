"""The fewest devices that stages within a target take, in fractions of stages: column generation.

The master program covers each class of operators that look the same (`classes_of`) as often as it has members, with the
stages found so far, on the fewest devices. Its duals are prices; `pricing` finds stages that are worth more than their
devices, until there are none. Whatever the prices are, they prove a bound: if no stage on r devices is worth more than
z(r), all operators' prices together, times the least r / z(r), are devices that no plan goes below (Farley). So the
solver's tolerances are in no bound, nor does it matter whether the operators of a class can really be exchanged: their
rows are added up, which only adds covers.

Source: Farley, "A note on bounding a class of linear programming problems, including cutting stock problems" (1990);
the rows are those of `models.milp_columns`, without depths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import check_stop
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.models.generation.pricing import Kind, Pricing, kinds
from solvers.milp.column_generation_lp import Growing
from solvers.outcome import Limits, Watch

Floats = NDArray[np.float64]

#: A stage has to be worth so much more than its devices to be a column.
_GAIN = 1e-7
#: Share of the best prices in those that are tried, but each fourth time; and the most rounds.
_SMOOTH, _ROUNDS = 0.5, 500


@dataclass(frozen=True)
class Bound:
    """``devices`` that no plan goes below (with the devices there are), and ``prices`` of operators that prove it.

    With these no stage is worth more than its devices.
    """

    devices: float
    prices: Floats


@dataclass
class Generation:
    """Column generation for an instance; the columns of a target are not kept for the next one."""

    costs: Costs
    pricing: Pricing
    limits: Limits
    watch: Watch
    #: Of all targets together.
    columns: int = 0
    rounds: int = 0
    solver: str = field(default="")

    def __post_init__(self) -> None:
        self.classes = classes_of(self.costs)
        self.members = np.bincount(self.classes).astype(np.float64)

    def bound(self, target_s: float, sizes: Sequence[int], *, is_question: bool = False) -> Bound:
        """The best bound for stages within a target, with micro-batches of any of these sizes.

        It ends once the bound is beyond the devices there are, and, if that alone ``is_question``, once it will not
        be. `formulations.modelling.solve_model.Stopped` if the watch is.
        """
        self.pricing.target_s = target_s
        num_devices = self.costs.instance.num_devices
        master = Growing(self.members.tolist(), num_devices + 1.0, self.limits, self.watch)
        self.solver = master.solver
        each = [kind for devices in range(1, num_devices + 1) for kind in kinds(self.costs, sizes, devices)]
        best, known = Bound(0.0, np.zeros(len(self.classes))), set[tuple[int, bytes]]()
        for number in range(_ROUNDS):
            check_stop(self.watch)
            found = master.prices()
            if found is None:
                break
            duals, is_exact = found[1], number % 4 == 3 or best.devices == 0.0
            tried = duals[self.classes]
            if not is_exact:
                tried = _SMOOTH * best.prices + (1 - _SMOOTH) * tried
            before, self.rounds = len(known), self.rounds + 1
            best = max(best, self._round(tried, duals, each, master, known), key=lambda found: found.devices)
            if best.devices > num_devices + _GAIN or found[0] <= best.devices + _GAIN:
                break
            if is_question and found[0] <= num_devices:
                break
            if is_exact and len(known) == before:
                break
        return best

    def _round(
        self, tried: Floats, duals: Floats, each: Sequence[Kind], master: Growing, known: set[tuple[int, bytes]]
    ) -> Bound:
        """What these prices prove; stages that are worth more than their devices become columns."""
        dearest = 1.0
        for kind in each:
            priced = self.pricing.best(tried, kind)
            dearest = max(dearest, priced.worth / kind.devices)
            for nodes in priced.sets:
                counts = np.bincount(self.classes[list(bits(nodes))], minlength=len(self.members)).astype(np.float64)
                column = kind.devices, counts.tobytes()
                if counts @ duals > kind.devices + _GAIN and column not in known:
                    known.add(column)
                    master.add(float(kind.devices), counts)
                    self.columns += 1
        prices = tried / dearest
        return Bound(float(prices.sum()), prices)


def classes_of(costs: Costs) -> NDArray[np.int64]:
    """The class of each operator: those of a class have equal costs, and equal edges with operators of the same."""
    operators = costs.instance.operators
    each = [repr((o.forward, o.backward, o.weight_bytes, o.activation_bytes)) for o in operators]
    number = {key: index for index, key in enumerate(sorted(set(each)))}
    found = [number[key] for key in each]
    while True:
        keys = [
            (found[v], tuple(sorted((way, size, found[u]) for way, u, size in costs.edges_of(v))))
            for v in range(len(operators))
        ]
        refined = {key: index for index, key in enumerate(sorted(set(keys)))}
        if len(refined) == len(set(found)):
            return np.array(found, np.int64)
        found = [refined[key] for key in keys]
