"""The small examples of docs/findings.md show what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner

FINDINGS = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text()


@pytest.mark.parametrize(("cost_model", "time", "d"), [("paper", 1.0, 1), ("released", 0.75, 2)])
def test_a_second_replica_pays_under_one_formula_only(cost_model: str, time: float, d: int, tmp_path: Path) -> None:
    example = re.search(r"```json\n(.*?)```", FINDINGS, flags=re.DOTALL)
    assert example is not None
    file = tmp_path / "one.json"
    file.write_text(json.dumps(json.loads(example[1])))
    found = planner.solve(planner.load(file, cost_model=cost_model), exact=True)
    assert found.objective == time and found.plan is not None and found.plan["stages"][0]["dp_degree"] == d


@pytest.mark.parametrize(("order", "time"), [({}, 0.020), ({"linearize": "lifo"}, 0.024)])
def test_a_chain_can_hide_the_best_plan(order: dict[str, Any], time: float) -> None:
    found = planner.solve(planner.load("diamond", devices=2, memory="30MB", **order), exact=True)
    assert found.objective == pytest.approx(time, rel=1e-9)


@pytest.mark.parametrize(("fix", "time", "stages"), [(False, 0.048, 2), (True, 0.0484, 1)])
def test_cuts_look_cheap_in_the_wrong_unit(fix: bool, time: float, stages: int) -> None:
    given: dict[str, Any] = {"devices": 2, "memory": "1GB", "time_unit": "ms"}
    found = planner.solve(planner.load("chain8", fix_units=fix, **given), exact=True)
    assert found.objective == pytest.approx(time, rel=1e-9) and f"{time} ms" in FINDINGS
    assert found.plan is not None and len(found.plan["stages"]) == stages


@pytest.mark.paper
def test_a_layer_fits_a_gigabyte_without_recomputation(published: Path) -> None:
    """Figure 1's caption has it otherwise; the whole model needs tensor parallelism, but no recomputation either."""

    def best(devices: int, memory: str, **restriction: str) -> str:
        given = {"devices": devices, "memory": memory, "microbatches": 512, "bandwidth": "25GiB/s"}
        instance = planner.load(published / "piper" / "bert32a100.json", **given, **restriction)
        return str(planner.solve(instance, exact=True).status)

    layer = next(v for v in planner.load(published / "piper" / "bert32a100.json").layers if "Transformer" in v.name)
    plain = next(x for x in layer.tmpcs[1] if x.id == "vanilla")
    assert round((plain.static_bytes + plain.activation_bytes) / 1e6, 1) == 960.5
    for memory, least in (("1GB", 1922), ("1GiB", 1285)):
        assert best(least, memory, forbid_tmpc="activation recomp") == "optimal"
        assert best(least - 1, memory, forbid_tmpc="activation recomp") == "infeasible"
        assert f"{least:,} " in FINDINGS and best(2048, memory, tp="1") == "infeasible"


@pytest.mark.paper
@pytest.mark.parametrize(("fix", "time"), [(False, "63.44"), (True, "82.40")])
def test_the_unit_of_resnet(published: Path, fix: bool, time: str) -> None:
    instance = planner.load(
        published / "piper" / "resnet.json", devices=8, memory="8GiB", bandwidth="25GiB/s", fix_units=fix
    )
    assert f"{planner.solve(instance, exact=True).objective:.2f}" == time and time in FINDINGS
