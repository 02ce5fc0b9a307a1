"""Files of models, of one family after the other: solved by HiGHS and by SCIP, judged, and in the instance's unit."""

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import highspy
import pytest
from ortools.linear_solver.python import model_builder
from small_instances import random_case
from solved_by_highs import solved_by_highs
from thinned import thinned

import planner
from formulations import FAMILIES
from planner.analysis.model_view import OpenModel, declarative
from planner.cli.app import main
from planner.process.errors import UsageError
from solvers.outcome import Status

MODELS = [(family.name, method) for family in FAMILIES for method in declarative(family)]
MILPS = [(family, method) for family, method in MODELS if method.startswith("milp")]


#: Random instances of a family that are tried until one has a plan and a model of it.
_TRIED = 20
#: Smaller optima are left out.
_SMALLEST = 1e-3


@cache
def opened(family: str, method: str) -> tuple[OpenModel, float]:
    """The complete model of a small instance that has a plan, and the optimum."""
    for number in range(_TRIED):
        instance = random_case(family, 3, number)
        try:
            model = planner.model(instance, method, complete=True)
        except UsageError:
            continue
        found = planner.solve(instance, exact=True, limits=planner.Limits(time_s=20))
        # Complete models are in parts of their largest numbers: far smaller optima lie below solvers' tolerances.
        if (found.objective or 0) > _SMALLEST and found.status is Status.OPTIMAL and model.sizes().variables < 2_000:
            return model, found.objective
    raise AssertionError(f"no small instance of {family} for {method}")


@thinned(("family", "method"), MODELS)
def test_a_model_held_to_the_optimum_has_it_and_held_to_less_has_no_plan(family: str, method: str) -> None:
    """In the problem's own unit, whatever the model's is."""
    instance, optimum = opened(family, method)[0].instance, opened(family, method)[1]
    limits = planner.Limits(time_s=60)
    if opened(family, method)[0].sidecar()["scale"] is None:
        with pytest.raises(UsageError, match="a model that minimises the problem's objective itself"):
            planner.model(instance, method, complete=True).at_most(optimum)
        return
    found = planner.model(instance, method, complete=True).at_most(optimum).solve(limits)
    assert found.own is not None and found.own["status"] == "optimal" and found.bound is None, found.reason
    assert found.own["objective"] == found.objective == pytest.approx(optimum, rel=1e-6)
    less = planner.model(instance, method, complete=True).at_most(0.99 * optimum).solve(limits)
    assert less.own == {"objective": None, "bound": None, "unit": found.unit, "status": "infeasible"}, less.reason
    assert less.status is Status.UNKNOWN and "infeasible with what was added" in less.reason


def by_highs(path: Path) -> tuple[float, str]:
    highs, solution = solved_by_highs(path)
    return float(highs.getInfo().objective_function_value), str(solution)


def by_ortools_scip(path: Path) -> tuple[float, str]:
    model = model_builder.Model()
    assert model.import_from_mps_file(str(path))
    solver = model_builder.Solver("scip")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    solution = path.with_suffix(".scip.sol")
    variables = [model.var_from_index(place) for place in range(model.num_variables)]
    solution.write_text("".join(f"{each.name} {solver.value(each)!r}\n" for each in variables))
    return float(solver.objective_value), str(solution)


def by_pyscipopt(path: Path) -> tuple[float, str]:
    """In a process of its own, beside no other solver's library."""
    solution = path.with_suffix(".pyscipopt.sol")
    script = (
        "import sys, pyscipopt\n"
        "model = pyscipopt.Model()\n"
        "model.hideOutput()\n"
        f"model.readProblem({str(path)!r})\n"
        "model.optimize()\n"
        f"model.writeBestSol({str(solution)!r})\n"
        "print(model.getObjVal())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout.split()[-1]), str(solution)


@pytest.mark.parametrize(("family", "method"), MILPS)
@pytest.mark.slow
def test_scip_and_highs_agree_on_the_file_of_a_milp(family: str, method: str, tmp_path: Path) -> None:
    model, optimum = opened(family, method)
    solvers: list[Any] = [(by_highs, ".lp"), (by_ortools_scip, ".mps")]
    solvers += [(by_pyscipopt, ".lp")] if find_spec("pyscipopt") else []
    for solved, suffix in solvers:
        path = tmp_path / f"model{suffix}"
        model.write(str(path))
        objective, solution = solved(path)
        judged = model.read_solution(solution)
        assert judged.verified and judged.objective == pytest.approx(optimum, rel=1e-5), (solved, suffix)
        beside = json.loads(Path(f"{path}.json").read_text())
        if beside["scale"] is not None:
            assert objective * beside["scale"] + beside["offset"] == pytest.approx(optimum, rel=1e-5), (solved, suffix)


def told_by_highs(model: OpenModel, path: Path) -> float | None:
    """The objective of the plan that HiGHS calls optimal with both gaps 0, on the file."""
    highs, solution = solved_by_highs(path, mip_rel_gap=0.0, mip_abs_gap=0.0)
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return model.read_solution(str(solution)).objective


@pytest.mark.parametrize(("suffix", "comment"), [(".lp", "\\"), (".mps", "*")])
def test_a_file_about_which_highs_is_wrong_warns(suffix: str, comment: str, tmp_path: Path) -> None:
    instance = random_case("hierarchical_partitioning", 21, 0)
    model, path = planner.model(instance, "cpsat"), tmp_path / f"m{suffix}"
    warning = model.write(str(path))
    assert warning.startswith("coefficients range from 1 to 4.") and "may be wrong about this model" in warning
    assert path.read_text().splitlines()[0] == f"{comment} warning: {warning}"
    assert json.loads(Path(f"{path}.json").read_text())["warning"] == warning
    told, best = told_by_highs(model, path), planner.solve(instance, exact=True).objective
    assert told is not None and best is not None and told > 1.4 * best  # once it is right, this file shows nothing


def test_the_warning_of_a_file_is_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["model", "layers", "--layers", "8", "--stages", "3", "--json", "--write", str(tmp_path / "m.lp")]
    assert main([*given, "--method", "milp"]) == 0
    assert capsys.readouterr().err == "" and "warning" not in (tmp_path / "m.lp").read_text()
    assert json.loads((tmp_path / "m.lp.json").read_text())["warning"] == ""
    assert main([*given, "--method", "cpsat"]) == 0
    said = f"warning: {tmp_path / 'm.lp'}: coefficients range from "
    assert capsys.readouterr().err.startswith(said)
    assert main([*given[:-1], str(tmp_path / "m.pb.txt"), "--method", "cpsat"]) == 0  # CP-SAT works in whole numbers
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(("family", "method"), MODELS)
def test_highs_is_wrong_about_no_file_without_a_warning(family: str, method: str, tmp_path: Path) -> None:
    path = tmp_path / "m.mps"
    for number in range(8):
        instance = random_case(family, 21, number)
        try:
            model = planner.model(instance, method)
            if model.write(str(path)) or model.sizes().variables > 2_000:
                continue
        except UsageError:
            continue
        best = planner.solve(instance, exact=True, limits=planner.Limits(time_s=20))
        if best.status is Status.OPTIMAL and best.objective:
            assert told_by_highs(model, path) == pytest.approx(best.objective, rel=1e-5)


@thinned(("family", "method"), MODELS)
def test_relaxations_are_below_the_optimum(family: str, method: str) -> None:
    model, optimum = opened(family, method)
    root = model.root(10)
    assert root.reason or root.bound is not None
    assert root.bound is None or root.bound <= optimum * (1 + 1e-6)
    groups = {group.name for group in model.sizes().groups}
    assert set(root.left_out) <= groups | {"row", "domain"}
