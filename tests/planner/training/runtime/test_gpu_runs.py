"""The page of running plans says what the data of the runs on a GPU say."""

import json
from pathlib import Path
from statistics import median

from planner.training.runtime.fidelity import spearman

DOCS = Path(__file__).parents[4] / "docs"
DATA = json.loads((DOCS / "findings" / "gpu-runs.json").read_text())
PAGE = (DOCS / "running-plans.md").read_text()


def _columns(plan: dict[str, list[float]]) -> str:
    ratios = [peak / planned for peak, planned in zip(plan["peak_bytes"], plan["memory_planned"], strict=True)]
    return f"{plan['predicted_s']:.3f} | {plan['measured_s']:.3f} | {min(ratios):.3f} to {max(ratios):.3f}"


def test_the_table_is_of_the_data() -> None:
    first, second = (model["plans"] for model in DATA["models"])
    for a, b in zip(first, second, strict=True):
        assert f"| {a['plan']} | {_columns(a)} | {_columns(b)} |" in PAGE
    assert f"{DATA['models'][0]['unsplit_s']:.3f} s in A and {DATA['models'][1]['unsplit_s']:.3f} s in B" in PAGE


def test_order_and_errors_are_of_the_data() -> None:
    def figures(plans: list[dict[str, float]], predicted: str) -> tuple[str, float, float]:
        errors = [100 * abs(plan[predicted] / plan["measured_s"] - 1) for plan in plans]
        order = spearman([plan[predicted] for plan in plans], [plan["measured_s"] for plan in plans])
        return f"{order:.3f}", median(errors), max(errors)

    a, b = (figures(model["plans"], "predicted_s") for model in DATA["models"])
    assert f"Spearman {a[0]} (A) and {b[0]} (B)" in PAGE
    assert f"errors of {a[1]:.1f} % (median) and {a[2]:.1f} % at most in A, {b[1]:.1f} % and {b[2]:.1f} % in B" in PAGE
    a, b = (figures(model["plans"], "predicted_from_rates_s") for model in DATA["models"])
    assert f"errors of {a[1]:.1f} % and {a[2]:.1f} %\n  in A, {b[1]:.1f} % and {b[2]:.1f} % in B" in PAGE
    assert f"Spearman {a[0]} and {b[0]}" in PAGE
    c = figures(DATA["alternatives_of_A"], "predicted_s")
    assert f"Spearman {c[0]}, errors of {c[1]:.1f} % and {c[2]:.1f} %" in PAGE
    assert [f"{_regret(model['plans']):.1%}" for model in DATA["models"]] == ["2.2%", "0.0%"]
    assert "was 2.2 % slower than the fastest in A, and the fastest in B" in PAGE
    assert _regret(DATA["alternatives_of_A"]) == 0


def _regret(plans: list[dict[str, float]]) -> float:
    fastest = min(plans, key=lambda plan: plan["predicted_s"])
    return fastest["measured_s"] / min(plan["measured_s"] for plan in plans) - 1


def test_memory_is_never_much_more_than_planned() -> None:
    ratios = [
        peak / planned
        for model in DATA["models"]
        for plan in model["plans"]
        for peak, planned in zip(plan["peak_bytes"], plan["memory_planned"], strict=True)
    ]
    assert min(ratios) > 0.925 and max(ratios) < 1.0025
