"""What is decided beside the layers of stages, degrees and batch, each with what does not depend on these layers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from formulations.serving_strategy.definition.plan import ServingPlan
from formulations.serving_strategy.definition.problem import alone_s, degrees, first_token_s, head_work_s, layer_work_s
from instances.problems.serving_strategy import ServingInstance
from solvers.outcome import Watch

#: What sums and quotients of floats are off at most, relatively.
ROUNDED = 1e-12


@dataclass(frozen=True)
class Shape:
    """Degrees and a batch.

    ``most_replicas`` fit on the devices, ``least_replicas`` serve the requests. ``work_s`` and ``head_s``: what a
    request takes of each layer and of the head. From one request of a replica to the next it takes ``apart_s`` at
    least, whatever the stages, and may take ``limit_s``.
    """

    tp_degree: int
    pp_degree: int
    batch: int
    most_replicas: int
    least_replicas: int
    work_s: Sequence[float]
    head_s: float
    apart_s: float
    limit_s: float

    @property
    def mean_s(self) -> float:
        """What a request takes of a stage in the mean: no slowest stage takes less."""
        return math.fsum([*self.work_s, self.head_s]) / self.pp_degree

    def plan(self, lengths: Sequence[int]) -> ServingPlan:
        """The plan with these layers by stage, and most replicas."""
        return ServingPlan(self.most_replicas, self.tp_degree, self.batch, tuple(lengths))

    def objective(self, instance: ServingInstance, replica_s: float) -> float:
        """What `replica_s` makes of most replicas; fewer are no better."""
        if instance.objective == "latency":
            return self.pp_degree * self.batch * replica_s
        return replica_s / (self.most_replicas * instance.generated_tokens)


def shapes(instance: ServingInstance, watch: Watch) -> Iterator[Shape]:
    """The shapes that keep the rules on devices, heads, requests and the first token; ends where the watch stops."""
    steps, limit = instance.generated_tokens - 1, instance.token_limit_s
    for t in degrees(instance):
        work: dict[int, list[float]] = {}
        for p in range(1, min(len(instance.layers), instance.num_devices // t) + 1):
            first, most = first_token_s(instance, t, p), instance.num_devices // (t * p)
            if instance.first_token_limit_s is not None and first > instance.first_token_limit_s:
                continue
            for batch in instance.batches:
                if watch.stopped():
                    return
                least = -(-instance.requests // (p * batch))
                if least > most:
                    continue
                if batch not in work:
                    of_kind = {layer: layer_work_s(instance, layer, t, batch) for layer in set(instance.layers)}
                    work[batch] = [of_kind[layer] for layer in instance.layers]
                apart = alone_s(instance, t, p, batch) / (p * batch)
                cap = math.inf if limit is None or not steps else (limit * steps + first) / (p * batch)
                yield Shape(t, p, batch, most, least, work[batch], head_work_s(instance, t, batch), apart, cap)


def even(layers: int, stages: int) -> list[int]:
    """As many layers for each stage, one more for those before the last (vLLM's ``get_pp_indices``)."""
    each, more = divmod(layers, stages)
    return [each + (stages - 1 - more <= stage < stages - 1) for stage in range(stages)]
