"""The event model against processes that sleep for the planned times: is the order of plans the measured one?

``pytest tests/planner/training/runtime/test_event_model.py -m slow -s`` prints the table of docs/the-clock.md.
"""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from sleeping_seconds import DECLARED, SECONDS

import planner
from formulations.training_strategy import FAMILY
from formulations.training_strategy.definition.problem import iteration, orders
from instances.problems.training_strategy import StrategyInstance
from planner.process.errors import UsageError
from planner.training.runtime.fidelity import spearman
from planner.training.runtime.layout import layout, simulate
from planner.training.runtime.run import run_plan

MODEL = f"{Path(__file__).parent / 'sleeping_model.py'}:chain"
L, MICROBATCHES = len(SECONDS), 8


def sleeping(**changes: Any) -> StrategyInstance:
    """The chain of `sleeping_model`, in seconds; what is sent takes no time."""
    tmpc = {"weight_bytes": 0.0, "activation_bytes": 1.0, "static_bytes": 1.0}
    layers: list[dict[str, Any]] = [
        {"id": v, "module": f"layers.{v}", "tmpcs": {"1": [{"id": "keep", "time": seconds, **tmpc}]}}
        for v, seconds in enumerate(SECONDS)
    ]
    for v, seconds in DECLARED.items():
        layers[v]["weight_times"] = {"1": seconds}
    flat = {
        "problem": "stage_partitioning", "schema_version": 1, "name": "sleeping", "num_devices": 6, "memory_bytes": 1e9,
        "bandwidth": 1e12, "num_microbatches": MICROBATCHES, "layers": layers,
        "edges": [{"source": v, "target": v + 1, "bytes": 0} for v in range(L - 1)],
    }  # fmt: skip
    return planner.load({"problem": "training_strategy", "schema_version": 1, "flat": flat}, **changes)


def plan(sizes: tuple[int, ...], schedule: str = "1f1b", dp: int = 1, V: int = 1) -> dict[str, Any]:
    """Chunks of so many layers."""
    chunks = [list(range(x, y)) for x, y in pairwise((0, *accumulate(sizes)))]
    degrees = {"pp_degree": len(sizes) // V, "tp_degree": 1, "dp_degree": dp, "virtual_stages": V}
    return {**degrees, "schedule": schedule, "chunks": chunks, "tmpcs": dict.fromkeys(map(str, range(L)), "keep")}


_ALL = "1f1b,gpipe,interleaved,zb-h1,zb-v,dualpipe-v"
PLANS = (
    plan((8,)), plan((8,), dp=2), plan((8,), dp=4), plan((4, 4)), plan((6, 2)), plan((2, 6), "gpipe"),
    plan((4, 4), dp=2), plan((2, 6), dp=2), plan((3, 5), "gpipe", dp=2), plan((3, 3, 2)), plan((1, 1, 6)),
    plan((5, 2, 1), "gpipe"),
    plan((2, 2, 2, 2)), plan((3, 2, 2, 1)), plan((1, 1, 1, 5)), plan((4, 2, 1, 1), "gpipe"),
    plan((2, 2, 2, 2), "interleaved", V=2), plan((1, 3, 2, 2), "interleaved", dp=2, V=2),
    plan((1, 1, 1, 1, 2, 2), "interleaved", V=3), plan((4, 4), "zb-h1"), plan((3, 2, 2, 1), "zb-h1"),
    plan((2, 2, 2, 2), "zb-v", V=2), plan((3, 2, 1, 2), "dualpipe-v", V=2), plan((1, 1, 2, 1, 2, 1), "zb-v", dp=2, V=2),
)  # fmt: skip


@pytest.mark.parametrize("given", PLANS)
def test_processes_of_a_strategy_run_its_orders(given: dict[str, Any]) -> None:
    """What `planner run` simulates of them, replica by replica, is the definition's iteration."""
    instance = sleeping(schedule=_ALL, virtual_stages=3)
    own = FAMILY.plan_from_json(instance, given)
    made = layout(instance, own, "training_strategy")
    passes = [
        [(task.kind, made.duties[number].stage, task.index) for number, task in made.passes_of(rank)]
        for rank in range(made.num_processes)
    ]
    assert passes == [list(order) for order in orders(instance, own) for _ in range(own.dp_degree)]
    if own.schedule == "zb-h1":  # in an order without W, B has all that W had
        whole = layout(instance, own, "training_strategy", [duty.order.replace("W", "") for duty in made.duties])
        assert [x.backward_s for x in whole.duties] == [x.backward_s + x.weight_s for x in made.duties]
    timings = simulate(made)
    assert max(each.end_s for each in timings) == pytest.approx(iteration(instance, own).makespan_s, rel=1e-12)
    assert made.num_processes == own.pp_degree * own.dp_degree
    p, m = own.pp_degree, MICROBATCHES // own.dp_degree
    most = [{"gpipe": m, "zb-h1": min(p, m)}.get(own.schedule, min(p - device, m)) for device in range(p)]
    held = [len(chunk) * each for chunk, each in zip(own.chunks, most, strict=False)]
    assert own.virtual_stages > 1 or held == [duty.held_planned for duty in made.duties if not duty.replica]
    assert len({each.rank for each in timings}) == len(own.chunks) * own.dp_degree


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (plan((2, 2, 2, 2), "interleaved", V=2) | {"cp_degree": 2}, "cp_degree 2, ep_degree 1'; expected 1 of both"),
        (plan((4, 4), dp=2) | {"sharding": 2}, "sharding 2'; expected at most 1, or 2 in one stage"),
    ],
)
def test_other_strategies_are_not_run(given: dict[str, Any], words: str) -> None:
    instance = sleeping(schedule="interleaved,zb-h1", virtual_stages=2)
    with pytest.raises(UsageError, match=words):
        layout(instance, FAMILY.plan_from_json(instance, given), "training_strategy")


@pytest.mark.slow
def test_the_order_of_plans_is_the_measured_one() -> None:
    """No process wakes early, so a run is no shorter than its simulation; overhead is small beside the sleep."""
    pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)
    instance = sleeping(schedule=_ALL, virtual_stages=3)
    rows = []
    for given in PLANS:
        found = run_plan(given, instance, MODEL)
        modelled = iteration(instance, FAMILY.plan_from_json(instance, given)).makespan_s
        rows.append((modelled, found.seconds))
        sizes = ", ".join(str(len(chunk)) for chunk in given["chunks"])
        error = found.seconds / modelled - 1
        name = f"{sizes} | {given['dp_degree']} | `{given['schedule']}`"
        print(f"| {name} | {modelled:.3f} | {found.seconds:.3f} | {100 * error:+.1f} % |")
    modelled_s, measured_s = ([row[column] for row in rows] for column in (0, 1))
    errors = [b / a - 1 for a, b in rows]
    order = spearman(modelled_s, measured_s)
    print(f"Spearman {order:.3f}, error {sum(errors) / len(errors):.1%}, at most {max(errors):.1%}")
    assert all(b >= a * (1 - 1e-3) for a, b in rows)
    assert order >= 0.95
