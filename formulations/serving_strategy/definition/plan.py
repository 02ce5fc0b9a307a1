"""What a plan decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from formulations.contract.plan_exchange import exchange
from instances.rules import Whole


@dataclass(frozen=True)
class ServingPlan:
    """``replicas`` of a pipeline whose stages have ``lengths`` layers, each on ``tp_degree`` devices.

    ``batch``: sequences of a decode step; a replica has ``pp_degree`` such batches under way.
    """

    replicas: Whole
    tp_degree: Whole
    batch: Whole
    lengths: tuple[Whole, ...]

    @property
    def pp_degree(self) -> int:
        """Stages of the pipeline."""
        return len(self.lengths)

    @property
    def sequences(self) -> int:
        """Sequences at once of a replica (vLLM's ``max_num_seqs``)."""
        return self.pp_degree * self.batch

    @property
    def stages(self) -> list[tuple[int, int]]:
        """For each stage its first layer, and the one behind its last."""
        return list(pairwise(accumulate(self.lengths, initial=0)))

    @property
    def cuts(self) -> tuple[int, ...]:
        """For each layer but the last whether a stage ends behind it: 1 or 0."""
        ends = {end for _, end in self.stages}
        return tuple(int(layer + 1 in ends) for layer in range(sum(self.lengths) - 1))


def plan_of_cuts(replicas: int, tp_degree: int, batch: int, cuts: Sequence[int]) -> ServingPlan:
    """The plan with these `cuts`."""
    ends = [place + 1 for place, cut in enumerate(cuts) if cut] + [len(cuts) + 1]
    lengths = (end - first for first, end in zip([0, *ends[:-1]], ends, strict=True))
    return ServingPlan(replicas, tp_degree, batch, tuple(lengths))


plan_from_json, plan_to_json = exchange(
    '``{"replicas": r, "tp_degree": t, "batch": b, "lengths": [layers, ...]}``.', ServingPlan
)
