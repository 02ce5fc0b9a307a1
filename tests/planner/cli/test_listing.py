"""``planner list``: everything there is, one problem, and who takes an instance."""

import json
from collections.abc import Callable

import formulations
from planner.solving.predicted_runtime import seconds_per_step

Problem = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]


def test_list(run: Run) -> None:
    code, out, _ = run("list", "--json")
    found = json.loads(out)
    family = next(family for family in found["families"] if family["name"] == "counting")
    assert code == 0
    assert [method["supports"] for method in family["methods"][:2]] == ["at most 10 numbers", "every instance"]
    assert family["methods"][1]["options"][0]["name"] == "extra"
    assert "bert32" in {entry["name"] for entry in found["catalog"]}
    assert found["versions"]["highspy"] == "1.12.0"
    out = run("list")[1]
    assert "counting" in out and max(map(len, out.splitlines())) <= 80


def test_list_of_one_problem_has_its_methods_options_and_instances(run: Run) -> None:
    for family in formulations.FAMILIES:
        code, out, _ = run("list", family.name)
        assert code == 0 and max(map(len, out.splitlines())) <= 80 and "None" not in out
        shown = set(out.split())
        assert {method.name for method in family.methods} <= shown
        settings = [*family.overrides, *(option for method in family.methods for option in method.options)]
        assert {f"--{setting.name}" for setting in settings} <= shown
    text = " ".join(run("list", "flushed_partitioning")[1].split())
    assert "chain8-flushed chain8 with a flush after every batch." in text and "bert32" not in text
    found = json.loads(run("list", "flushed_partitioning", "--json")[1])
    assert [family["name"] for family in found["families"]] == ["flushed_partitioning"]
    assert [entry["name"] for entry in found["catalog"]] == ["chain8-flushed"]


def test_list_shows_the_limits_of_every_method(run: Run) -> None:
    for family in formulations.FAMILIES:
        text = " ".join(run("list", family.name)[1].split())
        shown = json.loads(run("list", family.name, "--json")[1])["families"][0]["methods"]
        assert [each["supports"] for each in shown] == [method.limits or "every instance" for method in family.methods]
        assert all(f"Takes {method.limits}." in text for method in family.methods if method.limits)


def test_list_of_an_instance_shows_who_takes_it_and_why_others_do_not(run: Run, problem: Problem) -> None:
    code, out, err = run("list", "chain8", "--devices", "3", "--microbatches", "5", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["problem"], found["instance"], found["figures"]["devices"]) == ("stage_partitioning", "chain8", 3)
    methods = {each["name"]: each for each in found["methods"]}
    steps = 9 * 2 * (3 + 9 / 2000)
    seconds = steps * seconds_per_step()["stage_partitioning/exact"]
    made = {"name": "exact", "claim": "exact", "refusal": None, "effort": steps, "predicted_s": seconds}
    assert methods["exact"] == made
    code, out, _ = run("list", problem(list(range(1, 12)), 3))
    text = " ".join(out.split())
    assert code == 0 and max(map(len, out.splitlines()[1:])) <= 80  # the first line is a path
    assert "exact* does not take it: 11 numbers are more than 10" in text and "greedy takes it" in text
    found = json.loads(run("list", problem(list(range(1, 12)), 3), "--json")[1])["methods"]
    assert {each["refusal"] is None for each in found} == {True, False}
    assert [each["effort"] for each in found if each["refusal"]] == [None] * sum(
        bool(each["refusal"]) for each in found
    )
    assert run("list", "bert32", "--problem", "flushed_partitioning")[0] == 0
    assert "6e+04 are built; named, it has a first plan" in " ".join(run("list", "gpt3-175b")[1].split())
    assert "--devices" in run("list", "chain8", "--help")[1]
