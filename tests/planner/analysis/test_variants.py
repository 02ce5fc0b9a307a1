"""Models with constraints and objectives of a user's own: answers in the user's terms, by brute force."""

import math
import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
import pytest
from paths import ROOT
from solved_by_highs import solved_by_highs

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.problem import stage_time
from instances.errors import InstanceError
from planner.analysis.model_view import OpenModel
from planner.cli.app import main
from planner.process.errors import UsageError

PAGE = ROOT / "docs" / "your-own-variant.md"
LIMITS = planner.Limits(time_s=600)
BOTH = pytest.mark.parametrize("method", ["milp", "cpsat"])


def chain(method: str) -> OpenModel:
    return planner.model(planner.load("chain8", memory="60MB", devices=4), method, complete=True)


def own(model: OpenModel) -> tuple[str, float | None]:
    found = model.solve(LIMITS)
    assert found.own is not None and found.bound is None, "nothing is proved of the instance"
    status, objective, bound = found.own["status"], found.own["objective"], found.own["bound"]
    assert (found.verified, found.plan is not None) == (objective is not None, objective is not None)
    assert objective is None or bound is None or bound <= objective + 1e-6 * abs(objective)
    return status, objective


def devices(plan: Any) -> int:
    return sum(stage["dp_degree"] * stage["tp_degree"] for stage in plan["stages"])


@BOTH
def test_fewest_devices_for_a_time_are_those_of_the_definition(method: str) -> None:
    """The same by requirements on the number of devices, each solved by the exact search."""
    instance = planner.load("chain8", memory="60MB", devices=4)
    times = {}
    for count in (1, 2, 3, 4):
        found = planner.solve(planner.load("chain8", memory="60MB", devices=4, require=f"num_devices <= {count}"))
        times[count] = found.objective
    assert times[4] == planner.solve(instance, exact=True).objective
    for time_s in {time for time in times.values() if time is not None}:
        wanted = min(count for count, time in times.items() if time is not None and time <= time_s)
        model = chain(method).at_most(time_s)
        model.minimise(model.expression("num_devices"), unit="devices")
        found = model.solve(LIMITS)
        assert found.own == {"objective": wanted, "bound": wanted, "unit": "devices", "status": "optimal"}
        assert found.plan is not None and devices(found.plan) == wanted
        assert found.objective is not None and found.objective <= time_s * (1 + 1e-9)
        assert f"optimal for this model: {wanted} devices" in found.reason


@BOTH
def test_a_constraint_that_the_vocabulary_lacks(method: str) -> None:
    """The lengths of two stages sum to at most three: by hand, over all lengths."""
    layers = planner.load("layers", layers=8, stages=3)
    every = [each for each in product(range(1, 9), repeat=3) if sum(each) == 8]
    values = {each: planner.check(layers, {"lengths": list(each)}).objective for each in every}
    wanted = min(value for each, value in values.items() if value is not None and each[0] + each[1] <= 3)
    model = planner.model(layers, method, complete=True)
    row = model.expression("layers", 0) + model.expression("layers", stage=1) <= 3
    if method == "milp":
        model.model.few = pyo.Constraint(expr=row)
    else:
        model.model.add(row)
    status, objective = own(model)
    assert status == "optimal" and objective == pytest.approx(wanted, rel=1e-6)
    assert wanted > min(value for value in values.values() if value is not None)


@BOTH
def test_an_objective_of_any_sign_is_bounded_on_the_safe_side(method: str) -> None:
    """The most stages: minus their number, of which every bound is a whole number; half of it is none."""
    model = chain(method)
    model.minimise(-1 * model.expression("num_stages"), unit="stages")
    assert own(model) == ("optimal", -4.0)
    status, objective = own(model.minimise(model.expression("num_devices"), unit="pairs", scale=0.5))
    assert (status, objective) == ("optimal", 1.5), "an objective may be replaced"
    if method == "milp":
        third = model.minimise(model.expression("num_devices") / 3).solve(LIMITS).own
        assert third is not None and third["bound"] < 1.0 and third["objective"] == pytest.approx(1.0)


def stage(nodes: list[int], d: int, t: int, ids: tuple[str, ...]) -> dict[str, Any]:
    tmpcs = {str(node): chosen for node, chosen in zip(nodes, ids, strict=True)}
    return {"nodes": nodes, "dp_degree": d, "tp_degree": t, "tmpcs": tmpcs}


def test_the_smallest_sum_of_stage_times_is_that_of_the_definition() -> None:
    """By all cuts of the chain into stages, with all degrees that fit, each judged and summed by the definition."""
    instance: Any = planner.load("chain8", memory="60MB", devices=2, first=5)
    sums = []
    for cuts in product((False, True), repeat=4):
        ends = [place for place, cut in enumerate(cuts, 1) if cut] + [5]
        stages = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        for degrees in product([(1, 1), (1, 2), (2, 1)], repeat=len(stages)):
            if sum(t * d for t, d in degrees) > 2:
                continue
            options = [
                [[c.id for c in instance.layers[v].tmpcs.get(t, ())] for v in nodes]
                for nodes, (t, _) in zip(stages, degrees, strict=True)
            ]
            for chosen in product(*(product(*each) for each in options)):
                parts = zip(stages, degrees, chosen, strict=True)
                plan = {"stages": [stage(list(nodes), d, t, ids) for nodes, (t, d), ids in parts]}
                if planner.check(instance, plan).feasible:
                    sums.append(
                        math.fsum(stage_time(instance, each) for each in FAMILY.plan_from_json(instance, plan).stages)
                    )
    model = planner.model(instance, "milp", complete=True)
    rows = [row.body + model.model.time for row in model.model.stage_time.values()]
    other = planner.model(instance, "cpsat", complete=True)
    times = (other.expression("stage_time", stage=number) for number in range(5))
    for changed in (model.minimise(sum(rows), unit="s", scale=model.scale), other.minimise(sum(times))):
        status, objective = own(changed)
        assert status == "optimal" and objective == pytest.approx(min(sums), rel=1e-5)


def test_what_is_refused() -> None:
    model = chain("milp")
    for call, words in (
        (lambda: model.expression("devices"), "devices is the name of constraints.*num_devices"),
        (lambda: model.expression("tp_degree_of", 99), "arguments is"),
        (lambda: model.expression("tp_degree_of"), r"tp_degree_of\(node\)"),
        (lambda: model.variable("takn", 0), "taken"),
        (lambda: model.variable("taken"), r"taken is several variables; .* keys"),
        (lambda: model.variable("taken", 10**6), "an index that the model has, such as 0"),
        (lambda: chain_pruned().minimise(1), "complete is False; expected True"),
        (lambda: chain_pruned().at_most(1.0), "complete is False; expected True"),
        (lambda: chain_pruned().expression("num_devices"), "complete is False; expected True"),
        (
            lambda: model.minimise(model.expression("num_stages"), scale=-1.0),
            "scale is -1.0; expected a number above 0",
        ),
        (lambda: model.require("num_stages <= 2"), "all requirements before that"),
    ):
        assert model.model is not None
        with pytest.raises(UsageError, match=words):
            call()
    assert model.variable("taken", 0) is model.model.taken[0]
    assert chain("cpsat").variable("time").name == "time"


def chain_pruned() -> OpenModel:
    return planner.model(planner.load("chain8", memory="60MB", devices=4), "milp")


def test_a_pruned_model_proves_nothing_of_what_is_added() -> None:
    model = chain_pruned()
    model.model.never = pyo.Constraint(expr=model.model.time <= 0)
    found = model.solve(LIMITS)
    assert found.own is not None and found.own["status"] == "unknown" and found.own["bound"] is None


def test_a_result_has_own_terms_only_where_a_model_was_changed() -> None:
    found = chain("cpsat").solve(LIMITS)
    assert found.own is None and "own" not in found.to_json() and found.status is planner.Status.OPTIMAL
    assert chain("cpsat").at_most(1.0).solve(LIMITS).to_json()["own"]["status"] == "optimal"  # type: ignore[index, call-overload]


@pytest.mark.slow
@BOTH
def test_every_handle_that_the_page_names_is_one(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands between backticks, each on a fresh model: it gives something, or a file that is read."""
    spans = dict.fromkeys(re.findall(r"`(m\.[^`]*|print\(m[^`]*)`", PAGE.read_text()))
    monkeypatch.chdir(tmp_path)
    assert len(spans) >= 12
    for span in spans:
        m = chain(method)
        expression = m.expression("num_devices")
        if "read_solution" in span:
            m.write("mine.lp")
            solved_by_highs("mine.lp", presolve="off")  # its presolve takes the CP-SAT model for infeasible
        row = expression <= 3
        if span == "m.model.add(row)" and method == "milp":  # of CP-SAT's models, as the page says
            continue
        found = eval(span, {"m": m, "expression": expression, "row": row})
        assert found is not None or span.startswith("print")


@pytest.mark.parametrize("method", ["milp", pytest.param("cpsat", marks=pytest.mark.slow)])
def test_a_solution_of_a_file_has_the_value_of_an_own_objective(method: str, tmp_path: Path) -> None:
    model = chain(method).at_most(0.041)
    model.minimise(2 * model.expression("num_devices"), unit="cost", scale=0.5)
    model.write(str(tmp_path / "a.lp"))
    solved_by_highs(tmp_path / "a.lp")
    found, wanted = model.read_solution(str(tmp_path / "a.sol")), model.solve(LIMITS)
    assert wanted.own is not None and wanted.own["objective"] is not None
    assert found.own == {"objective": wanted.own["objective"], "bound": None, "unit": "cost", "status": "feasible"}
    assert found.plan is not None and devices(found.plan) == wanted.own["objective"] and "cost" in str(found)
    with pytest.raises(InstanceError, match="of another model"):  # whose objective is not that of the file
        chain(method).read_solution(str(tmp_path / "a.sol"))


def test_roots_and_sizes_are_readable() -> None:
    model = chain("milp")
    assert re.fullmatch(
        r"bound 0\.0\d+ s, \d+ variables fractional, \d+ duals other than 0; solved in \S+ s", str(model.root())
    )
    assert str(model.sizes()).startswith(f"{model.sizes().variables} variables (") and str(model.sizes()) in str(model)
    model.minimise(model.expression("num_devices"), unit="devices")
    assert " devices, " in str(model.root())


def test_the_page_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """Its five variants one after the other; each prints the line that stands below it."""
    text = PAGE.read_text()
    blocks = re.findall(r"```(python|text)\n(.*?)```", text, flags=re.DOTALL)
    commands = [content for _, content in blocks if content.startswith("$ planner")]
    blocks = [block for block in blocks if block[1] not in commands]
    names: dict[str, Any] = {}
    shown = []
    for language, content in blocks:
        if language == "python":
            exec(compile(content, str(PAGE), "exec"), names)
        else:
            shown.append(content)
            assert capsys.readouterr().out == content
    assert len(shown) == 5 and len(commands) == 1
    for content in commands:
        command, _, printed = content.partition("\n")
        assert main(shlex.split(command.removeprefix("$ planner "))) == 0
        assert capsys.readouterr().out.startswith(printed)


@BOTH
def test_files_and_roots_of_an_own_objective_are_in_its_unit(method: str) -> None:
    model = chain(method).at_most(0.041)
    model.minimise(2 * model.expression("num_devices"), unit="cost", scale=0.5)
    bound = model.root().bound
    assert bound is not None and 2 < bound <= 3
    beside = model.sidecar()
    assert (beside["unit"], beside["scale"], beside["offset"]) == ("cost", 0.5, 0.0)
    with pytest.raises(UsageError, match=r"'41ms'; expected a number, in s"):
        model.at_most("41ms")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"expected an expression, such as m.expression\('num_devices'\)"):
        model.minimise("num_devices")
