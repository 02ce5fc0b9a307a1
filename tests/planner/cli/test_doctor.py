"""The doctor: a healthy installation passes, and each defect it knows is reported."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import formulations
from formulations.contract.family import Claim, Family, Method
from planner.cli.app import main
from planner.process import installation, kernels
from solvers import Backend
from solvers.outcome import Run, Stop
from solvers.trust.known_models import Canary


def failing(findings: Any) -> list[str]:
    return [found.name for found in findings if not found.healthy]


@pytest.mark.parametrize("rooms", ["layer_assignment", pytest.param("", marks=pytest.mark.slow)], ids=["one", "all"])
@pytest.mark.slow
def test_this_installation_is_well(rooms: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A process looks at each room's kernels; all of them are looked at before the tests, by ``doctor --compile``."""
    installed = [family for family in formulations.FAMILIES if family.name != "counting" and rooms in family.name]
    monkeypatch.setattr(formulations, "FAMILIES", tuple(installed))
    assert main(["doctor", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    names = [found["name"] for found in output["findings"]]
    assert output["healthy"] is True
    assert {"versions", "solver pair", "origin", "owners", "solver cpsat", "solver highs", "kernel cache"} <= set(names)


@pytest.mark.parametrize(
    ("name", "version", "failed"),
    [("highspy", "1.14.0", ["solver pair"]), ("ortools", "9.14.0", ["solver pair"]), ("numba", "absent", ["versions"])],
)
def test_wrong_versions(monkeypatch: pytest.MonkeyPatch, name: str, version: str, failed: list[str]) -> None:
    found = {**installation.versions(), name: version}
    monkeypatch.setattr(installation, "versions", lambda: found)
    assert failing(installation._versions()) == failed


def test_a_package_of_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installation.metadata, "packages_distributions", lambda: {"solvers": ["dnn-planner", "solvers"]}
    )
    assert failing(installation._origins()) == ["owners"]
    monkeypatch.setattr(installation, "PACKAGES", (*installation.PACKAGES, "json.decoder"))
    assert failing(installation._origins()) == ["origin", "owners"]


def test_a_library_that_dies_on_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_IMPORT_ORDERS", ("import os; os._exit(3)", "import no_such_library"))
    findings = list(installation._import_orders())
    assert [found.healthy for found in findings] == [False, False]
    assert findings[0].detail == "exit 3" and "no_such_library" in findings[1].detail


class _Backend(Backend):
    answer: Any = None

    def version(self) -> str:
        return "solver 1.0"

    def canaries(self) -> tuple[Canary, ...]:
        return (Canary("one", 1.0, lambda _: self.answer()),)


@pytest.mark.parametrize(("objective", "healthy"), [(1.0, True), (1.1, False), (None, False)])
def test_a_canary_with_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, objective: float | None, healthy: bool) -> None:
    def answer(_: Any) -> Run:
        if objective is None:
            raise OSError("no library")
        return Run(Stop.PROVED, objective=objective, bound=objective)

    monkeypatch.setattr(_Backend, "answer", answer)
    monkeypatch.setattr(installation, "BACKENDS", {"x": _Backend("x", "m", "d", "k", process="x")})
    assert [found.healthy for found in installation._backends()] == [healthy]


def test_methods_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no compiler")

    family: Family[Any, Any] = formulations.FAMILIES[0]
    method: Method[Any, Any] = Method("x", Claim.EXACT, "", lambda *_: None, prepare=broken)
    monkeypatch.setattr(formulations, "FAMILIES", (replace(family, methods=(method,)),))
    monkeypatch.setattr(kernels, "modules", lambda _: [])  # what this process imports uncompiled would stay so
    look = kernels.look(family.name)
    assert look.broken == (("x", "RuntimeError: no compiler"),)
    monkeypatch.setattr(installation, "look_at_all", lambda: {family.name: look})
    assert failing(installation._kernels())[:2] == [f"kernels {family.name}/x", f"kernels {family.name}"]


def test_kernels_in_folders_of_a_room_are_among_its_modules() -> None:
    assert "formulations.stage_partitioning.kernels.labels" in kernels.modules("stage_partitioning")


def test_all_kernels_are_compiled_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(installation, "compile_all", lambda: asked.append("all"))
    for name in ("_versions", "_origins", "_import_orders", "_backends", "_kernels"):
        monkeypatch.setattr(installation, name, lambda: iter(()))
    installation.examine()
    assert asked == []
    installation.examine(compiling=True)
    assert asked == ["all"]


@pytest.mark.slow
def test_looking_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty cache: every kernel is named, no process writes one, and the way to compile them is shown."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    family = next(each for each in formulations.FAMILIES if each.name == "layer_assignment")
    monkeypatch.setattr(formulations, "FAMILIES", (family,))
    monkeypatch.setattr(kernels, "compile_all", lambda: pytest.fail("compiles"))
    look = kernels.look_at_all()[family.name]
    assert look.broken == () and len(look.missing) == len(look.kernels) > 1
    assert not list(tmp_path.rglob("*.nb?"))
    monkeypatch.setattr(installation, "look_at_all", lambda: {family.name: look})
    room, cache = installation._kernels()
    assert room.healthy and room.detail.startswith(f"0 of {len(look.kernels)} compiled; not ")
    assert cache.healthy and "planner doctor --compile" in cache.detail


def test_no_folder_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    look = kernels.Look(kernels=("formulations.x.k",), missing=("formulations.x.k",), folders=frozenset({None}))
    monkeypatch.setattr(installation, "look_at_all", lambda: {"x": look})
    assert failing(installation._kernels()) == ["kernel cache"]


def test_compiling_prepares_every_family_also_after_one_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def family(name: str) -> Any:
        def prepare() -> None:
            asked.append(name)
            raise RuntimeError("no compiler")

        method = Method(name="x", claim=Claim.EXACT, source="", solve=lambda *_: None, prepare=prepare)  # type: ignore[arg-type,return-value]
        return replace(formulations.FAMILIES[0], name=name, methods=(method,))

    monkeypatch.setattr(formulations, "FAMILIES", (family("a"), family("b"), family("c")))
    monkeypatch.setattr(kernels.os, "cpu_count", lambda: 1)
    kernels.compile_all()
    assert asked == ["a", "c", "b"]
