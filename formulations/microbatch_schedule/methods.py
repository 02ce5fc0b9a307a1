"""The methods of microbatch schedule: what they claim, where they come from, when they apply, and the choice."""

from functools import partial

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.heuristics.known_orders import refusal
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits

#: Of the orders that trainers run.
_SOURCES = {
    "gpipe": "Huang et al. 2019; all forward passes, then all backward passes",
    "interleaved": "Narayanan et al. 2021, section 2.2; 1F1B on several chunks a device",
    "zb-h1": "Qi et al. 2024; PyTorch's order",
    "zb-h2": "Qi et al. 2024; the order is reconstructed from its picture",
    "zb-v": "Qi et al. 2024; PyTorch's order, two chunks a device",
    "dualpipe-v": "DeepSeek's DualPipe on two chunks a device; PyTorch's order",
}

_code = lazy("formulations.microbatch_schedule")

#: Beyond these a model takes too long to build: passes, and pairs of passes to order.
_CPSAT_PASSES, _MILP_PAIRS = 20_000, 20_000


def choose(instance: ScheduleInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """Bounds, heuristics and CP-SAT, unless its model is too large to build: `exact` then ends without it."""
    then = "then CP-SAT" if _cpsat_fits(instance) is None else "no model, which is too large"
    return "exact", f"{instance.num_passes} passes: bounds, heuristics, {then}"


def _cpsat_fits(instance: ScheduleInstance) -> str | None:
    if instance.num_passes > _CPSAT_PASSES:
        return f"{instance.num_passes} passes; expected at most {_CPSAT_PASSES}"
    return None


def _pairs(instance: ScheduleInstance) -> int:
    return sum(instance.num_microbatches(stage) ** 2 for stage in range(len(instance.stages)))


def _milp_fits(instance: ScheduleInstance) -> str | None:
    if _pairs(instance) > _MILP_PAIRS:
        return f"{_pairs(instance)} pairs of passes to order; expected at most {_MILP_PAIRS}"
    return None


def _one_stage_each(instance: ScheduleInstance) -> str | None:
    return "several stages on a device; expected one" if instance.shares_devices else None


METHODS: tuple[Method[ScheduleInstance, SchedulePlan], ...] = (
    exact(
        "exact",
        "bounds, best-of, then CP-SAT for what they leave open; made for this project",
        _code.exact.solve,
        effort=lambda instance: 1e4 * instance.num_passes,
        threads=True,
    ),
    declarative(
        _code.models.cpsat,
        "intervals on stages, CP-SAT",
        VOCABULARY,
        supports=_cpsat_fits,
        limits=f"at most {_CPSAT_PASSES:,} passes",
        effort=lambda instance: 1e4 * instance.num_passes,
    ),
    declarative(
        _code.models.milp,
        "starts and an order for each pair of passes, Pyomo and HiGHS",
        VOCABULARY,
        supports=_milp_fits,
        limits=f"at most {_MILP_PAIRS:,} pairs of passes to order",
        effort=lambda instance: 1e6 * _pairs(instance),
    ),
    heuristic(
        "greedy",
        "GraphPipe, section 6, ScheduleTask",
        _code.heuristics.orders.greedy,
        effort=lambda instance: 10 * instance.num_passes,
    ),
    heuristic(
        "1f1b",
        "GraphPipe, section 6, synchronous 1F1B on graphs",
        _code.heuristics.orders.one_f_one_b,
        supports=_one_stage_each,
        limits="one stage on each device",
        effort=lambda instance: 10 * instance.num_passes,
    ),
    heuristic(
        "kfkb",
        "GraphPipe, Appendix A.1",
        _code.heuristics.orders.own_kfkb,
        supports=_one_stage_each,
        limits="one stage on each device",
        effort=lambda instance: 10 * instance.num_passes,
    ),
    heuristic(
        "best-of",
        "the published schedules, repaired, and exchanges along critical paths; made for this project",
        _code.heuristics.best_of.solve,
        effort=lambda instance: 1e3 * instance.num_passes,
    ),
    *(
        heuristic(
            name,
            source,
            getattr(_code.heuristics.known_orders, name.replace("-", "_")),
            supports=partial(refusal, name=name),
            limits="chains of one micro-batch size, on the devices of the schedule",
            effort=lambda instance: 10 * instance.num_passes,
        )
        for name, source in _SOURCES.items()
    ),
    heuristic(
        "zb-auto",
        "Qi et al. 2024, section 3.1: the automatic scheduler of zero-bubble pipelines, eight settings tried",
        _code.heuristics.automatic.zb_auto,
        supports=partial(refusal, name="zb-h1"),
        limits="chains of one micro-batch size with split backward passes, a device for each stage",
        effort=lambda instance: 100 * instance.num_passes,
    ),
)
