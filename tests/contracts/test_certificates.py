"""Certificates of all problems: accepted for what exact methods prove, and no mutant of one for what is false.

The `test_certificates.py` of each problem declares its `SPOILING`: instances, faults, and brute force in fractions.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from certificate_cases import checker_of, judged, parsed
from certificate_counts import NAMES, SLOW, spoiling_of
from random_instances import warmed
from requirement_cases import required
from small_instances import random_case

import planner
from instances.problems.stage_graph import StageGraph
from planner.cli.app import main

EVERY = pytest.mark.parametrize("name", NAMES)
#: Tried one in so many: their instances take their exact methods long, or their mutants brute force.
SHARE = {"device_mapping": 2, "pipeline_placement": 4, "mesh_tiling": 3}
NEEDS_SAT = "python-sat is not installed (extra proofs)"

#: Of an instance and its certificate, what must occur now and then beside optima.
KINDS: dict[str, Callable[[Any, dict], Iterable[object]]] = {
    "amp_strategy": lambda instance, found: (instance.placement, *["named"] * bool(found["proof"].get("chains"))),
    "flushed_partitioning": lambda instance, found: (
        instance.schedule.value,
        instance.objective.value,
        *["caps"] * (len(found["proof"].get("caps", [])) > 1),
    ),
    "hierarchical_partitioning": lambda instance, _: (instance.memory_model.value,),
    "layer_assignment": lambda _, found: ["rows"] * bool(found["proof"].get("rows")),
    "microbatch_schedule": lambda instance, _: (instance.objective,),
    "operator_partitioning": lambda instance, _: (
        "step" if instance.num_stages is None else "shared" if instance.num_devices else "fixed",
    ),
    "stage_partitioning": lambda instance, _: (
        instance.cost_model.value,
        f"exactly {instance.exactly}",
        f"limited {instance.max_dp_degree is not None}",
    ),
    "device_mapping": lambda _, found: (found["proof"].get("name", "drup"),),
}
WANTED = {
    "amp_strategy": {"megatron", "tiling", "oriented", "named"},
    "flushed_partitioning": {"gpipe", "caps", "iteration"},
    "hierarchical_partitioning": {"none", "crude", "precise"},
    "layer_assignment": {"rows"},
    "microbatch_schedule": {"time", "memory"},
    "operator_partitioning": {"step", "shared", "fixed"},
    "stage_partitioning": {"released", "exactly True", "limited True"},
    "device_mapping": {"assignment"},
}
ALWAYS_FEASIBLE = {"device_mapping", "pipeline_placement"}
#: Why there is no certificate: a schedule's passes may be in each other's way, which heads and tails do not see.
UNCERTIFIED = ("heads and tails", "deadline: without one", "short: a pass takes no more")


def honoured(instance: Any) -> bool:
    """Whether exact methods take requirements of any kind."""
    return not isinstance(instance, StageGraph) or instance.objective == "tps"


@EVERY
def test_certificates_of_random_instances_are_accepted(name: str, cases: int) -> None:
    if name == "device_mapping":
        pytest.importorskip("pysat", reason=NEEDS_SAT)
    make = spoiling_of(name).case if name in SLOW else lambda number: random_case(name, 16, number)
    seen, tried = Counter[object](), max(14, cases) // SHARE.get(name, 1)  # 13 is the first with caps
    for number in range(tried):
        instance = make(number)
        found = judged(instance)
        if found.content is None and name in ("operator_partitioning", "pipeline_placement"):
            assert instance.objective == "step" and "flushed pipeline" in found.uncertified
        elif found.content is None and name in ("stage_graph", "flushed_partitioning"):
            assert instance.objective == "iteration"
            assert "tps only" in found.uncertified or "no formula" in found.uncertified
        elif found.content is None:
            assert name == "microbatch_schedule" and any(map(found.uncertified.__contains__, UNCERTIFIED)), number
            assert "deadline" not in found.uncertified or instance.deadline_s is None
            seen["uncertified"] += 1
        else:
            seen.update([found.result.status.value, *KINDS.get(name, lambda *_: ())(instance, found.content)])
    assert all(seen[each] for each in WANTED.get(name, set()) | {"optimal"}), seen
    assert seen["infeasible"] >= (0 if name in ALWAYS_FEASIBLE else tried // 100) and seen["uncertified"] <= max(
        3, tried // 5
    )


@EVERY
def test_no_mutant_that_claims_what_is_false_is_accepted(name: str, cases: int) -> None:
    if name == "device_mapping":
        pytest.importorskip("pysat", reason=NEEDS_SAT)
    spoiling_of(name).check(cases // SHARE.get(name, 1))


@cache
def example(name: str) -> tuple[Any, dict]:
    """An instance with an optimum above 0, and its certificate."""
    for number in count():
        found = planner.certify(instance := random_case(name, 5, number))
        if found.content is not None and found.content["bound"] not in (None, "0"):
            return instance, json.loads(found.text)
    raise AssertionError


@EVERY
def test_commands(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, content = example(name)
    files = [str(tmp_path / "instance.json"), str(tmp_path / "certificate.json")]
    planner.save(instance, files[0])
    assert main(["certify", files[0], "--out", files[1], "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["kind"] == content["proof"]["kind"]
    assert main(["verify", *files]) == 0
    assert "accepted: every plan takes more than " in capsys.readouterr().out


@EVERY
def test_what_is_no_certificate_is_bad_input(name: str) -> None:
    instance, content = example(name)
    plan = content["plan"]
    changes = [{"bound": "1e9"}, {"bound": 7}, {"plan": None}, {"proof": None}, {"proof": {}}, {"plan": {}}]
    changes += [{"plan": plan | {key: value}} for key in plan for value in ("x", None, -1.5) if key != "idle_devices"]
    for change in changes:
        with pytest.raises(ValueError, match=r"\w"):
            checker_of(name).verify(parsed(instance), content | change)


@EVERY
def test_what_is_required_of_a_plan_is_uncertified(name: str) -> None:
    if warmed(name).vocabulary:
        cases = (random_case(name, 7, number) for number in count(2))
        drawn = (required(random.Random(name), warmed(name), each, []) for each in cases)
        instance = next(each for each in drawn if each.requirements and honoured(each))
        found = planner.certify(planner.load(parsed(instance)))
        assert found.content is None and "uncertified: what is required of a plan" in found.result.reason
