"""The orders that trainers run, where an instance is a chain of equal micro-batches on the devices of such an order.

Source: `formulations.simulation.orders`, which has the orders and theirs.
"""

from collections.abc import Callable

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.heuristics.orders import answer
from formulations.simulation.orders import SCHEDULES
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Watch

#: On chains with a stage on each device `orders.one_f_one_b` is 1F1B. DualPipe has two copies of the chain.
NAMES = tuple(name for name in SCHEDULES if name not in ("1f1b", "dualpipe"))


def refusal(instance: ScheduleInstance, name: str) -> str | None:
    """Why a schedule has no order for the instance."""
    schedule = SCHEDULES[name]
    p, n = len(instance.stages_on), len(instance.stages)
    if n % p:
        return f"{n} stages on {p} devices; expected as many on each"
    if len({stage.microbatch for stage in instance.stages}) > 1:
        return "micro-batches of several sizes; expected one"
    reason = schedule.refusal(p, instance.num_microbatches(0), n // p)
    if reason is not None:
        return reason
    if sorted((edge.source, edge.target) for edge in instance.edges) != sorted(schedule.edges(p, n // p)):
        return "the stages are no chain in the order of their numbers"
    if instance.device_of != schedule.devices(p, n // p):
        return f"expected the stages on devices {list(schedule.devices(p, n // p))}"
    if schedule.is_split and any(stage.weight_s is None for stage in instance.stages):
        return "expected split backward passes, with weight_s at every stage"
    return None


def orders_of(graph: PassGraph, name: str) -> list[list[int]]:
    """The order of every device; where the schedule does not split what the instance does, W follows B at once."""
    schedule, instance, found = SCHEDULES[name], graph.instance, []
    p = len(instance.stages_on)
    for order in schedule.orders(p, instance.num_microbatches(0), len(instance.stages) // p):
        numbers = []
        for action in order:
            numbers.append(graph.number(action.stage, action.kind, action.microbatch))
            if action.kind == "B" and not schedule.is_split and instance.stages[action.stage].weight_s is not None:
                numbers.append(graph.number(action.stage, "W", action.microbatch))
        found.append(numbers)
    return found


def _solver(name: str) -> Callable[[ScheduleInstance, Limits, Watch], Answer[SchedulePlan]]:
    def solve(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
        return answer(instance, watch, lambda graph: run(graph, orders_of(graph, name)))

    return solve


gpipe, interleaved, zb_h1, zb_h2 = map(_solver, ("gpipe", "interleaved", "zb-h1", "zb-h2"))
zb_v, dualpipe_v = map(_solver, ("zb-v", "dualpipe-v"))
