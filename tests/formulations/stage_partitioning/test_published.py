"""The authors' inputs: the released program's results, and the optimum that is never worse."""

import json
from pathlib import Path

import pytest

import planner
from planner import Limits

pytestmark = pytest.mark.paper

#: Instance, devices, memory, micro-batches (None: the file's), proved optimum under the released cost model.
OPTIMA = [
    ("bert32a100", 512, "8GiB", 1920, 0.00256112785),
    ("bert32a100", 2048, "8GiB", 1920, 0.000703591184),
    ("resnet", 32, "2GiB", None, 24.0314),
    ("gnmt", 8, "1.2GiB", None, 68.565564),
    ("gnmt", 2, "2.5GiB", None, 263.354289),
]

#: The same where the published heuristic was run. GNMT takes minutes on eight devices, seconds on two.
PIPER = [
    # Of 8 devices reproduction/test_piper.py has these by default.
    pytest.param("resnet", 32, "2GiB", None, 24.6259, marks=pytest.mark.slow),
    pytest.param("gnmt", 8, "1.2GiB", None, 68.565564, marks=pytest.mark.slow),
    pytest.param("gnmt", 2, "2.5GiB", None, 263.354289, marks=pytest.mark.slow),
]


def load(published: Path, name: str, devices: int, memory: str, microbatches: int | None, **more: object):
    overrides = {"devices": devices, "memory": memory, "bandwidth": "25GiB/s", "cost_model": "released", **more}
    if microbatches is not None:
        overrides["microbatches"] = microbatches
    return planner.load(published / "piper" / f"{name}.json", **overrides)


def printed(value: float) -> float:
    """Half a unit of the last printed digit, relatively, is below this."""
    return value * 2e-6


@pytest.mark.parametrize(("name", "devices", "memory", "microbatches", "optimum"), OPTIMA)
def test_optimum(
    published: Path, name: str, devices: int, memory: str, microbatches: int | None, optimum: float
) -> None:
    result = planner.solve(load(published, name, devices, memory, microbatches), exact=True)
    assert result.status == "optimal" and result.verified
    assert result.objective == pytest.approx(optimum, abs=printed(optimum))


@pytest.mark.parametrize(("name", "devices", "memory", "microbatches", "found"), PIPER)
def test_published_heuristic(
    published: Path, name: str, devices: int, memory: str, microbatches: int | None, found: float
) -> None:
    result = planner.solve(load(published, name, devices, memory, microbatches), method="piper")
    assert result.objective == pytest.approx(found, abs=printed(found)) and result.verified


@pytest.mark.parametrize(("devices", "least"), [(8, 4), pytest.param(512, 30, marks=pytest.mark.slow)])
def test_released_results(published: Path, devices: int, least: int) -> None:
    """Every full setting up to so many devices: the published program's time, and an optimum that is never worse."""
    rows = [json.loads(line) for line in (published / "piper" / "released_results.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["mode"] == "full" and row["num_devices"] <= devices]
    assert len(rows) > least
    for row in rows:
        more = {"layers": row["transformer_layers"]} if row["transformer_layers"] else {}
        instance = load(
            published, row["instance"], row["num_devices"], f"{row['memory_gib']}GiB", row["num_microbatches"], **more
        )
        piper = planner.solve(instance, method="piper", limits=Limits())
        exact = planner.solve(instance, exact=True)
        if row["tps"] is None:
            assert piper.status == exact.status == "infeasible", row
            continue
        assert piper.objective == pytest.approx(row["tps"], rel=3e-9, abs=1e-9), row
        assert exact.status == "optimal" and exact.objective <= piper.objective * (1 + 1e-9), row
