"""Certificates of all problems: accepted for what exact methods prove, and no mutant of one for what is false.

The `test_certificates.py` of each problem declares its `SPOILING`: instances, faults, and brute force in fractions.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from certificate_cases import checker_of, claimed, judged, parsed, proves, writer_of
from certificate_counts import NAMES, SLOW, spoiling_of
from random_instances import warmed
from requirement_cases import required
from small_instances import random_case
from thinned import thinned

import planner
from formulations.contract.family import UncertifiedError
from planner.cli.app import main
from solvers.outcome import Stop, Watch

EVERY, SOME, OTHERS = (thinned("name", names, every) for names, every in ((NAMES, 1), (NAMES, 3), (NAMES[::-1], 3)))
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
    "mesh_tiling": lambda instance, _: ["ordered"] * instance.ordered,
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
    "mesh_tiling": {"ordered"},
}
ALWAYS_FEASIBLE = {"device_mapping", "pipeline_placement"}
#: Checkers that search by themselves: a bound is all of a proof.
SEARCHED = ("hierarchical_partitioning", "stage_graph", "mesh_tiling", "pipeline_placement")
#: Their proofs do not meet every bound below the optimum.
HEADS_AND_TAILS = ("microbatch_schedule",)
#: Their writers are done at once on instances that small.
AT_ONCE = ("microbatch_schedule", "tmpc_knapsack", "stage_partitioning", "device_mapping")
#: Why there is no certificate: a schedule's passes may be in each other's way, which heads and tails do not see.
UNCERTIFIED = ("heads and tails", "deadline: without one", "short: a pass takes no more")


@SOME
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
        elif found.content is None and name == "stage_graph" and any(op.tensor_parallel for op in instance.operators):
            assert "only" in found.uncertified
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


@SOME
def test_what_is_written_proves_any_bound_below_the_optimum(name: str, cases: int) -> None:
    """At the optimum and above nothing is written."""
    if name == "device_mapping":
        pytest.importorskip("pysat", reason=NEEDS_SAT)
    spoiling, write = spoiling_of(name), writer_of(name).write
    for number in range(0 if name in HEADS_AND_TAILS else cases // SHARE.get(name, 1)):
        instance = spoiling.case(number)
        best = spoiling.optimum(instance)
        if best in (0, math.inf):
            continue
        for share in (1 - Fraction(1, 10**9), Fraction(9, 10), Fraction(1, 7)):
            made = json.loads(json.dumps(write(instance, None, float(best * share), Watch())))
            assert checker_of(name).verify(parsed(instance), made)["accepted"], (number, share)
            assert Fraction(made["bound"]) >= best * share * (1 - Fraction(1, 10**10)), (number, share)
        with pytest.raises(UncertifiedError, match=r"does not confirm the bound|no named bound meets it"):
            write(instance, None, float(best) * (1 + 1e-9), Watch())


@pytest.mark.parametrize("name", SEARCHED)
def test_every_bound_below_the_optimum_is_accepted_and_no_other(name: str, cases: int) -> None:
    """And that there is no plan, where there is none."""
    spoiling, outcomes, tiny = spoiling_of(name), {True: 0, False: 0}, Fraction(1, 10**12)
    for number in range(cases // SHARE.get(name, 1)):
        instance = spoiling.case(number)
        best = spoiling.optimum(instance)
        assert proves(instance, None) is (best == math.inf), number
        for share in (tiny, Fraction(1, 2), 1 - tiny, 1, 1 + tiny, 2) if best else ():
            bound = share if best == math.inf else Fraction(best) * share
            assert proves(instance, bound) is (best > bound), (number, share)
            outcomes[best > bound] += 1
    assert min(outcomes.values()) >= cases // SHARE.get(name, 1), outcomes


@EVERY
def test_a_writer_that_is_stopped_says_so(name: str) -> None:
    instance, content = example(name)
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    if name not in AT_ONCE:
        with pytest.raises(UncertifiedError, match="stopped"):
            writer_of(name).write(instance, None, float(Fraction(content["bound"])), watch)


@OTHERS
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


#: A proof, parts that are none in their place, and the rule that they break.
FORGED: dict[str, tuple[dict, list[tuple[dict, str]]]] = {
    "amp_strategy": ({"kind": "caps"}, [
        ({"chains": [[99, [[None, []]]]]}, "numbers of chains"), ({"chains": [[0, [["1", []]]]]}, "end with null"),
        ({"chains": [[0, [["2", []], ["1", []], [None, []]]]]}, "caps that rise"),
        ({"chains": [[0, [[None, []]]]] * 2}, "no chain twice"), ({"chains": [[0, [[None, [1]]]]]}, "as text"),
    ]),
    "flushed_partitioning": ({"kind": "caps"}, [
        ({"caps": ["2", "1"]}, "caps that rise"), ({"caps": ["9"]}, "the bound"), ({"caps": ["0"]}, "between 0 and"),
        ({"caps": ["-1"]}, "fractions as text"), ({"caps": [2]}, "TypeError"),
    ]),
    "layer_assignment": ({"kind": "caps", "caps": []}, [
        ({"caps": ["2", "1"]}, "caps that rise"), ({"rows": [["2", []], ["1", []]]}, "caps that rise"),
        ({"rows": [[None, []]]}, "as text"), ({"rows": [["1"]]}, "not enough values"),
    ]),
    "operator_partitioning": ({"kind": "labels", "caps": []}, [
        ({"counted": [99]}, "indices"), ({"counted": [True]}, "indices"), ({"counted": [0, 0]}, "none twice"),
    ]),
    "tmpc_knapsack": ({"kind": "multiplier"}, [
        ({"multiplier": "-1"}, "fractions as text"), ({"multiplier": None}, "a multiplier"),
    ]),
}  # fmt: skip


@EVERY
def test_what_is_no_certificate_is_bad_input(name: str) -> None:
    instance, content = example(name)
    proof, parts = FORGED.get(name, ({}, []))
    for part, rule in parts:
        with pytest.raises(ValueError, match=rule):
            checker_of(name).verify(parsed(instance), claimed(instance, Fraction(1, 10**9), proof | part))
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
        instance = next(
            each for each in drawn if each.requirements and getattr(each, "objective", "tps") != "iteration"
        )
        found = planner.certify(planner.load(parsed(instance)))
        assert found.content is None and "uncertified: what is required of a plan" in found.result.reason
