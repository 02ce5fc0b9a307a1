"""All exact methods on random instances of every family: no two claims exclude each other, and brute force agrees.

The command line of `random_instances` does the same by the hundred thousand.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_instances
from random_instances import NAMES, Tally, against, chunks, examine, examine_chunk, main
from small_instances import family_named, known_optimum, random_case

import planner
from formulations.contract.family import Answer, Family, Method
from solvers.outcome import Status, Stop

EVERY_FAMILY = pytest.mark.parametrize("name", NAMES)


@EVERY_FAMILY
def test_no_claims_exclude_each_other(name: str, cases: int, many: int) -> None:
    count = {"pipeline_placement": max(2, cases // 5), "operator_partitioning": max(20, cases)}.get(
        name, max(1, cases // 3)
    )
    found = examine_chunk(name, 2 if many else 1, 0, many or count, None)
    assert found.wrong == []
    proofs = Counter[str]()
    for proof, number in found.proofs.items():
        proofs[proof.partition(" by ")[0]] += number
    proved = all(proofs[method] >= 0.9 * runs for method, runs in found.runs.items())
    assert found.runs and (proved or many), found.proofs


@EVERY_FAMILY
def test_instances_follow_from_their_numbers_and_differ(name: str) -> None:
    family = family_named(name)
    made = [json.dumps(family.to_json(random_case(name, 0, number))) for number in range(40)]
    assert made == [json.dumps(family.to_json(random_case(name, 0, number))) for number in range(40)]
    assert len(set(made)) > 20
    assert any(known_optimum(name, random_case(name, 0, number))[0] for number in range(40))


def _with(monkeypatch: pytest.MonkeyPatch, name: str, method: str, change: Any) -> None:
    """Let a method return ``change(instance, its answer)``."""
    family: Family[Any, Any] = random_instances.warmed(name)

    def lying(honest: Method[Any, Any]) -> Method[Any, Any]:
        return replace(honest, solve=lambda *given, **options: change(given[0], honest.solve(*given, **options)))

    methods = tuple(lying(each) if each.name == method else each for each in family.methods)
    monkeypatch.setattr(random_instances, "warmed", lambda _: replace(family, methods=methods))


def _bound_too_high(_: Any, answer: Answer[Any]) -> Answer[Any]:
    return replace(answer, plan=None, bound=1.001 * (answer.bound or 0.0))


def _no_plan(_: Any, answer: Answer[Any]) -> Answer[Any]:
    return replace(answer, plan=None, bound=None, infeasible=True)


def _failing(instance: Any, _: Answer[Any]) -> Answer[Any]:
    raise RuntimeError(f"no solution for {instance.name}")


@pytest.mark.parametrize(
    ("change", "said"),
    [(_bound_too_high, "claims the"), (_no_plan, "calls the instance infeasible"), (_failing, "exact fails")],
)
def test_a_false_claim_is_found_and_kept(monkeypatch: Any, tmp_path: Path, change: Any, said: str) -> None:
    _with(monkeypatch, "tmpc_knapsack", "exact", change)
    found = examine_chunk("tmpc_knapsack", 0, 0, 8, str(tmp_path))
    assert found.instances == 8 and any(said in sentence for sentence in found.wrong)
    kept = sorted(tmp_path.glob("tmpc_knapsack-*.json"))
    assert kept and planner.load(str(kept[0])).nodes is not None


def test_brute_force_is_a_witness_of_its_own() -> None:
    result = planner.solve(planner.load("diamond"), method="exact")
    assert result.objective is not None
    assert against(result.objective, [result]) == []
    assert against(None, [result]) and against(1.01 * result.objective, [result])
    assert against(0.99 * result.objective, [result])
    assert against(1.0, [replace(result, status=Status.INFEASIBLE, stop=Stop.PROVED, objective=None, bound=None)])


def test_a_run_that_was_killed_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    given = ["--count", "40", "--families", "tmpc_knapsack", "--out", str(tmp_path)]
    assert main(given) == 0
    first = capsys.readouterr().out
    rows = (tmp_path / "seed-0.jsonl").read_text().splitlines()
    (tmp_path / "seed-0.jsonl").write_text("\n".join(rows[:-1]) + "\n" + rows[-1][:40])
    done: list[int] = []
    honest = examine

    def counting(*given: Any) -> Tally:
        done.append(given[2])
        return honest(*given)

    monkeypatch.setattr(random_instances, "examine", counting)
    assert main(given) == 0
    assert done == list(range(20, 40))
    assert _without_seconds(capsys.readouterr().out) == _without_seconds(first)


def _without_seconds(shown: str) -> list[list[str]]:
    return [line.split()[:6] for line in shown.splitlines()]


def test_families_go_on_together() -> None:
    found = chunks(["a", "b"], 90)
    assert found[:4] == [("a", 0, 20), ("b", 0, 20), ("a", 20, 20), ("b", 20, 20)]
    assert found[-1] == ("b", 40, 5) and sum(count for *_, count in found) == 90
