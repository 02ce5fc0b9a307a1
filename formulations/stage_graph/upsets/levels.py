"""Exact search over all partitions of small models, level by level.

The stages of a plan have depths: 1 without successors, else one more than the deepest successor. Stages of one depth
have no tensor between them, so the operators of a depth are a set whose connected components (over the instance's
edges) each belong to one stage, and all operators up to a depth are an upset (closed under successors). With one
micro-batch size and 1F1B a stage of depth i keeps i micro-batches in flight. So a plan is a chain of upsets, each
difference packed into stages; fewest devices for a target follow by dynamic programming, and the least target from the
finite list of what stages can take. Nothing is left out: the result is the optimum of the declared instance.

Source: made for this project (Piper's downsets, with depths instead of a sequential pipeline).
"""

from collections.abc import Iterator

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.costs.series_parallel import components
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.kernels.levels import pack_levels
from formulations.stage_graph.upsets.chains import MAX_PAIRS, Array, Chains, TooManyError, best_of_sizes
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Stop, Watch

#: More ways to split sets into stages are not laid out.
MAX_OPTIONS = 1_000_000


class Levels(Chains):
    """Chains of upsets whose differences are levels: stages without a tensor between them.

    `TooManyError` if there are too many upsets, or ways to split a level into stages.
    """

    sequential = False

    def __init__(self, costs: Costs, watch: Watch, most_pairs: int = MAX_PAIRS) -> None:
        instance = costs.instance
        operators = [1 << node for node in range(instance.num_operators)]
        super().__init__(costs, watch, operators, range(1, instance.num_devices + 1), most_pairs)
        self._pack, self._choice = np.empty_like(self.need), np.empty_like(self.need)

    def lay_out_sets(self) -> None:
        """The ways to split each set into a group with its first component, and the rest."""
        costs, index = self.costs, {nodes: number for number, nodes in enumerate(self.masks)}
        neighbours = [after | before for after, before in zip(costs.successors, costs.predecessors, strict=True)]
        starts, groups, rests = [0], [], []
        for nodes in self.masks:
            for group in _groups(components(nodes, neighbours.__getitem__)):
                groups.append(index[group])
                rests.append(index[nodes ^ group])
            self.poll()
            starts.append(len(groups))
            if len(groups) > MAX_OPTIONS:
                raise TooManyError(f"more than {MAX_OPTIONS} ways to split sets")
        self._option_start = np.array(starts)
        self._group, self._rest = np.array(groups, dtype=np.int64), np.array(rests, dtype=np.int64)

    def pack(self) -> Array:
        """Fewest devices of each level, as one stage or several."""
        pack_levels(self._option_start, self._group, self._rest, self.need, self._pack, self._choice)
        return self._pack

    def stages(self, number: int, depth: int) -> Iterator[int]:
        """Stages of a level."""
        while (option := int(self._choice[number, depth])) >= 0:
            yield int(self._group[option])
            number = int(self._rest[option])
        yield number


def _groups(pieces: list[int]) -> Iterator[int]:
    """Unions of pieces with the first of them, all of them left out."""
    first, others = pieces[0], pieces[1:]
    for chosen in range((1 << len(others)) - 1):
        yield first | sum(others[number] for number in bits(chosen))


def fits(instance: StageGraph, watch: Watch) -> bool:
    """Whether the search can be laid out, found by doing so: a second or two at most, and not if that is stopped."""
    try:
        Levels(Costs(instance), watch)
    except TooManyError:
        return False
    return not watch.stopped()


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:  # noqa: ARG001
    """The optimum of a small instance with one micro-batch size for all stages, by levels of upsets."""
    try:
        search = Levels(Costs(instance), watch)
    except TooManyError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    with alarm(watch):
        return best_of_sizes(instance, search, watch)
