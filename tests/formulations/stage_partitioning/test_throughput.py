"""What plans of imported models do in a second, counted by hand."""

from dataclasses import replace
from typing import Any

import pytest

import planner
from formulations.contract.figures.throughput import throughput
from formulations.flushed_partitioning.definition.plan_figures import breakdown as flushed_breakdown
from formulations.stage_partitioning.definition.plan import plan_from_json
from formulations.stage_partitioning.definition.plan_figures import breakdown
from instances.exchange import to_json

#: Two samples of 512 tokens in a micro-batch, 1e12 operations each time.
FACTS: dict[str, Any] = {
    "microbatch": 2, "seq-len": 512, "forward-flops": 1e12, "hardware": "h100", "dtype": "bf16"
}  # fmt: skip


def chain(**facts: Any) -> Any:
    return replace(planner.load("chain8", devices=4, microbatches=8), options=facts)


def test_a_batch_in_samples_tokens_and_operations() -> None:
    found = throughput(chain(**FACTS), 0.01)
    assert (found["batch_samples"], found["batch_tokens"]) == (16, 8192)
    assert found["tokens_per_s"] == pytest.approx(102_400)
    assert found["mfu_share"] == pytest.approx(3e12 / (0.01 * 4 * 989.4e12))
    in_ms = throughput(replace(chain(**FACTS), time_unit="ms"), 10.0)
    assert in_ms == pytest.approx(found)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"seq-len": None}, {"batch_samples", "samples_per_s", "mfu_share"}),
        ({"hardware": "cpu"}, {"batch_samples", "batch_tokens", "tokens_per_s"}),
        ({"dtype": "float64"}, {"batch_samples", "batch_tokens", "tokens_per_s"}),
        ({"microbatch": None}, set()),
        ({"first": 3}, set()),  # a part of the model
    ],
)
def test_what_the_instance_does_not_say_is_left_out(changed: dict[str, Any], names: set[str]) -> None:
    facts = {name: value for name, value in (FACTS | changed).items() if value is not None}
    assert throughput(chain(**facts), 0.01).keys() == names


def test_figures_of_plans_have_them() -> None:
    instance = chain(**FACTS)
    result = planner.solve(instance, exact=True)
    figures = breakdown(instance, plan_from_json(instance, result.plan)).figures
    assert figures["batch_time"] == pytest.approx(8 * result.objective)
    assert figures["tokens_per_s"] == pytest.approx(1024 / result.objective)
    assert "batch_time" not in breakdown(chain(), plan_from_json(instance, result.plan)).figures
    flushed = planner.load(to_json(instance), problem="flushed_partitioning")
    found = planner.solve(flushed, exact=True)
    shown = flushed_breakdown(flushed, plan_from_json(flushed.flat, found.plan)).figures
    assert shown["tokens_per_s"] == pytest.approx(8192 / shown["batch_time"])
