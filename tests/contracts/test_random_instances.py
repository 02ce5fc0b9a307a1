"""Random instances: no claims exclude each other."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_instances
from random_instances import NAMES, against, examine_chunk

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
