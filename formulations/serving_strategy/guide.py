"""vLLM's guide: the fewest devices for a replica: tensor parallelism in a machine, then a machine for each stage.

Source: vLLM, "Parallelism and Scaling" (one device if the model fits; else as many as a machine has by tensor
parallelism; else machines by pipeline parallelism). The largest batch that keeps the rules: reconstructed.
"""

from formulations.contract.family import Answer
from formulations.serving_strategy.definition.plan import ServingPlan
from formulations.serving_strategy.definition.problem import degrees, evaluate, violations
from formulations.serving_strategy.shapes import even
from instances.problems.serving_strategy import ServingInstance
from solvers.outcome import Limits, Stop, Watch


def solve(instance: ServingInstance, _limits: Limits, watch: Watch) -> Answer[ServingPlan]:
    """The first degrees with a batch that keeps the rules; layers are spread evenly, as vLLM does by itself."""
    inside = [t for t in degrees(instance) if t <= instance.devices_per_machine]
    count, most = len(instance.layers), inside[-1]
    for t, p in [*((t, 1) for t in inside), *((most, p) for p in range(2, count + 1))]:
        replicas = instance.num_devices // (t * p)
        for batch in reversed(instance.batches) if replicas else ():
            plan = ServingPlan(replicas, t, batch, tuple(even(count, p)))
            if watch.stopped():
                return Answer(stop=watch.why())
            if not violations(instance, plan):
                watch.plan(plan, evaluate(instance, plan))
                return Answer(plan, stop=Stop.COMPLETED)
    return Answer(stop=Stop.COMPLETED, reason="with layers spread evenly, none of vLLM's steps keeps the rules")
