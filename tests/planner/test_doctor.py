"""The doctor: a healthy installation passes, and each illness it knows is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import formulations
from formulations.family import Claim, Family, Method
from planner.cli.app import main
from planner.doctor import examine, warming
from solvers import Backend
from solvers.canary import Canary
from solvers.outcome import Run, Stop


def ill(findings: Any) -> list[str]:
    return [found.name for found in findings if not found.healthy]


def test_this_installation_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [found["name"] for found in told["findings"]]
    assert told["healthy"] is True
    assert {"versions", "solver pair", "origin", "owners", "solver cpsat", "solver highs", "kernel cache"} <= set(names)


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [("highspy", "1.14.0", ["solver pair"]), ("ortools", "9.14.0", ["solver pair"]), ("numba", "absent", ["versions"])],
)
def test_wrong_versions(monkeypatch: pytest.MonkeyPatch, name: str, version: str, told: list[str]) -> None:
    found = {**examine.versions(), name: version}
    monkeypatch.setattr(examine, "versions", lambda: found)
    assert ill(examine._versions()) == told


def test_a_package_of_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine.metadata, "packages_distributions", lambda: {"solvers": ["dnn-planner", "solvers"]})
    assert ill(examine._origins()) == ["owners"]
    monkeypatch.setattr(examine, "PACKAGES", (*examine.PACKAGES, "json.decoder"))
    assert ill(examine._origins()) == ["origin", "owners"]


def test_a_library_that_dies_on_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "_IMPORT_ORDERS", ("import os; os._exit(3)", "import no_such_library"))
    findings = list(examine._import_orders())
    assert [found.healthy for found in findings] == [False, False]
    assert findings[0].detail == "exit 3" and "no_such_library" in findings[1].detail


class _Backend(Backend):
    answer: Any = None

    def version(self) -> str:
        return "solver 1.0"

    def canaries(self) -> tuple[Canary, ...]:
        return (Canary("one", 1.0, self.answer),)


@pytest.mark.parametrize(("objective", "healthy"), [(1.0, True), (1.1, False), (None, False)])
def test_a_canary_that_sings_wrongly(monkeypatch: pytest.MonkeyPatch, objective: float | None, healthy: bool) -> None:
    def answer(_: Any) -> Run:
        if objective is None:
            raise OSError("no library")
        return Run(Stop.PROVED, objective=objective, bound=objective)

    monkeypatch.setattr(_Backend, "answer", answer)
    monkeypatch.setattr(examine, "BACKENDS", {"x": _Backend("x", "m", "d", "k", integer_only=False)})
    assert [found.healthy for found in examine._backends()] == [healthy]


def test_kernels_that_do_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no compiler")

    family: Family[Any, Any] = formulations.FAMILIES[-1]
    method: Method[Any, Any] = Method("x", Claim.EXACT, "", lambda *_: None, prepare=broken)
    monkeypatch.setattr(formulations, "FAMILIES", (replace(family, methods=(method,)),))
    assert "kernels counting/x" in ill(examine._kernels())


@pytest.mark.parametrize(("cached", "times"), [([], 1), ([Path("kernel.nbi")], 0)])
def test_an_empty_cache_is_filled_on_all_cores_first(
    monkeypatch: pytest.MonkeyPatch, cached: list[Path], times: int
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(examine, "compile_all", lambda: asked.append("all"))
    monkeypatch.setattr(examine, "_cached", lambda: cached)
    list(examine._kernels())
    assert len(asked) == times


def test_warming_prepares_every_family_also_after_one_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def family(name: str) -> Any:
        def prepare() -> None:
            asked.append(name)
            raise RuntimeError("no compiler")

        method = Method(name="x", claim=Claim.EXACT, source="", solve=lambda *_: None, prepare=prepare)  # type: ignore[arg-type,return-value]
        return replace(formulations.FAMILIES[0], name=name, methods=(method,))

    monkeypatch.setattr(formulations, "FAMILIES", (family("a"), family("b"), family("c")))
    monkeypatch.setattr(warming.os, "cpu_count", lambda: 1)
    warming.compile_all()
    assert asked == ["a", "c", "b"]
