"""Mined counter-examples: what they are, that they are small, files that every command reads, what is refused."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from paths import ROOT
from thinned import thinned

import formulations
import planner
from formulations import FAMILIES
from formulations.contract.family import Answer
from formulations.contract.instance_space import Domain, Genes, Genome
from planner.experiments.mining.files import files_of, writes
from planner.experiments.mining.mine import EVALUATION_S, Pair, _check_again, mine
from planner.experiments.mining.search import LossSearch, within_domains
from planner.files.load import validate
from planner.solving.certify import Verification
from solvers.outcome import Limits, Stop, Watch

MINABLE = [family for family in FAMILIES if family.mining is not None]
(LAYERS,) = (family for family in MINABLE if family.name == "layer_assignment")
#: What a search with this many evaluations finds does not depend on the machine.
COUNT = 400
#: One stage: what is left of the problem is to choose TMPCs.
KNAPSACK = {"nodes": 3, "tp": 1, "devices": 1, "microbatches": 1, "number": 24}


def drawn(name: str, domains: dict[str, Any], seed: int, **limits: int) -> tuple[Genes[Any], Genome | None]:
    """A random genome of a family in the domains (``None``: not in all of them)."""
    family = next(each for each in MINABLE if each.name == name)
    assert family.mining is not None
    room = family.mining()
    genes = room.genes({**room.limits, **limits})
    known = {domain: domains[domain.name] for domain in room.domains if domain.name in domains}
    rng = Random(seed)
    genome = genes.random(rng)
    for _ in range(seed % 4):
        genome = genes.moves(genome, rng)
    return genes, within_domains(genes, known, genome)


@thinned("name", [family.name for family in MINABLE])
def test_genomes_are_instances_and_shrink(name: str) -> None:
    for seed in range(15):
        genes, genome = drawn(name, {}, seed)
        assert genome is not None and 1 <= len(genome.nodes) <= genes.most_nodes
        instance = genes.build(genome)
        if instance is not None:
            family = next(each for each in MINABLE if each.name == name)
            content = family.to_json(validate(instance))
            assert family.to_json(planner.load(content)) == content
        size = tuple(genes.size(genome).values())
        for smaller in genes.smaller(genome):
            assert tuple(genes.size(smaller).values()) < size and genes.allows(smaller)


def test_links_of_devices_that_there_are_not_count_nothing() -> None:
    seen = 0
    for seed in range(40):
        _genes, genome = drawn("pipeline_placement", {}, seed)
        assert genome is not None
        devices = genome.whole[0] * genome.whole[1]
        unused = genome.whole[3 + devices * (devices - 1) // 2 :]
        assert set(unused) <= {1}
        seen += bool(unused) and len(genome.whole) > len(unused)
    assert seen


def test_moves_stay_within_limits() -> None:
    for seed in range(200):
        genes, genome = drawn("stage_partitioning", {}, seed, nodes=3, number=7)
        assert genome is not None and len(genome.nodes) <= 3
        for values, bounds in [(genome.whole, genes.whole), *((node, genes.node) for node in genome.nodes)]:
            assert all(gene.low <= value <= gene.high for value, gene in zip(values, bounds, strict=True))


def test_domains_of_stage_partitioning_hold() -> None:
    pairs = 0
    for seed in range(300):
        given = {"recompute": None} if seed % 2 else {"max-slowdown": Fraction(3, 2), "uniform-layers": None}
        genes, genome = drawn("stage_partitioning", given, seed)
        instance = None if genome is None else genes.build(genome)
        if instance is None:
            continue
        for layer in instance.layers:
            for tmpcs in layer.tmpcs.values():
                times = [each.time for each in tmpcs]
                assert max(times) <= (Fraction(4, 3) if seed % 2 else Fraction(3, 2)) * min(times)
                if seed % 2 and [each.id for each in tmpcs] == ["plain", "recompute"]:
                    assert 3 * tmpcs[1].time == 4 * tmpcs[0].time
                    pairs += 1
        if seed % 2 == 0:
            assert all(each.tmpcs == instance.layers[0].tmpcs for each in instance.layers)
    assert pairs > 50


@pytest.mark.parametrize(
    "name", ["layer_assignment", "stage_graph", "operator_partitioning", "amp_strategy", "pipeline_placement"]
)
def test_every_node_takes_time(name: str) -> None:
    for seed in range(30):
        genes, genome = drawn(name, {"positive-times": None}, seed)
        assert genome is not None and all(node[0] > 0 for node in genome.nodes)
        named = {gene.name for place, gene in enumerate(genes.node) if all(node[place] > 0 for node in genome.nodes)}
        assert {gene.name for gene in genes.node if gene.name.startswith("time")} <= named


@cache
def released() -> Any:
    return mine("amp-released", loss=1.0, limits=Limits(seed=1), count=COUNT)


@pytest.mark.parametrize(("domain", "sum_of_numbers"), [("", 10), ("even-cuts", 14)])
def test_no_smaller_step_loses_as_much(domain: str, sum_of_numbers: int) -> None:
    def score(_search: LossSearch, genome: Genome) -> tuple[float, Any]:
        """Chains whose times sum to 10 at least, on two stages or more."""
        return (sum(node[0] for node in genome.nodes) / 10 if genome.whole[0] >= 2 else 0.0), None

    def even_cuts(genome: Genome, _value: Any) -> Genome:
        """Two at least: a step to less is taken back."""
        return replace(genome, nodes=tuple((time, max(2, cut), *more) for time, cut, *more in genome.nodes))

    genes, _ = drawn("layer_assignment", {}, 0)
    domains = {Domain(domain, "", even_cuts): None} if domain else {}
    calls = 0

    def used() -> float:
        nonlocal calls
        calls += 1
        return calls / 3000

    search = LossSearch(genes, domains, score, used, Random(0), enough=1.0)
    search.run()
    assert search.best is not None
    smallest = {"nodes": 2, "stages": 2, "microbatches": 1, "numbers": sum_of_numbers}
    assert genes.size(search.best.genome) == smallest


def test_files_are_read_by_every_command(run: Callable[..., Any]) -> None:
    most = ",".join(f"{name}={value}" for name, value in KNAPSACK.items())
    given = ("--max", most, "--domain", "recompute", "--count", "60", "--seed", "8", "--out", "worst.json")
    code, out, _ = run("mine", "piper", *given, "--json")
    shown = json.loads(out)
    assert code == 0 and shown["out"] == "worst.json" and shown["certificate"]["kind"]
    assert {"method", "against", "loss", "size", "instance", "objective", "optimum", "evaluations", "seconds"} <= set(
        shown
    )
    assert shown["objective"] / shown["optimum"] - 1 == pytest.approx(shown["loss"])
    assert 1.1 <= 1 + shown["loss"] <= 4 / 3  # what the domain allows
    for name, objective in (("piper", shown["objective"]), ("exact", shown["optimum"])):
        code, out, _ = run("check", "worst.json", f"worst.{name}.json", "--json")
        assert code == 0 and json.loads(out)["objective"] == pytest.approx(objective)
    assert run("verify", "worst.json", "worst.certificate.json")[0] == 0
    code, out, _ = run("solve", "worst.json", "--method", "piper", "--json")
    assert code == 0 and json.loads(out)["objective"] == pytest.approx(shown["objective"])


SMALL = ("--problem", "layer_assignment", "--max", "nodes=3,stages=2", "--seed", "2", "--count", "6")


def test_methods_of_users(run: Callable[..., Any]) -> None:
    Path("mine.py").write_text(
        "def first(instance):\n"
        "    stages, layers = instance.num_stages, instance.num_layers\n"
        "    return {'lengths': [layers - stages + 1] + [1] * (stages - 1)} if stages <= layers else None\n"
    )
    code, out, _ = run("mine", "./mine.py:first", *SMALL, "--out", "first.json", "--json")
    assert code == 0 and json.loads(out)["loss"] > 0 and Path("first.mine-first.json").exists()


def test_no_plan_is_a_loss_that_can_be_looked_for(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = replace(LAYERS.method("uniform"), name="nothing", solve=lambda *_: Answer(stop=Stop.COMPLETED))
    monkeypatch.setattr(formulations, "FAMILIES", (replace(LAYERS, methods=(*LAYERS.methods, nothing)),))
    code, out, _ = run("mine", "nothing", *SMALL, "--loss", "no-plan", "--out", "none.json")
    assert code == 0 and "no plan, nodes 1" in out and not Path("none.nothing.json").exists()
    assert re.search(r"no plan on [1-6] instances", out)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ("piper", "--domain", "max-slowdown=0.5"),
            "--domain max-slowdown is '0.5'; expected a number from 1 to 1000000",
        ),
        (("piper", "--domain", "recompute=1"), "expected no value"),
        (("piper", "--domain", "thin"), "--domain is 'thin'; expected one of"),
        (("piper", "--max", "nodes=0"), "--max nodes is '0'; expected an integer from 1"),
        (("piper", "--max", "layers=3"), "--max is 'layers'; expected one of"),
        (("piper", "--max", "nodes"), "--max is 'nodes'; expected KEY=N"),
        (("piper", "--loss", "-5%"), "--loss is '-5%'; expected a share"),
        (("piper", "--loss", "nan"), "--loss is 'nan'; expected a share"),
        (("piper", "--against", "equi"), "--against is 'equi'; expected an exact method"),
        (("piper", "--against", "realizable"), "--against is 'realizable'; expected an exact method"),
        (("realizable",), "METHOD is 'realizable'; expected a method of all instances"),
        (("exact", "--against", "exact"), "--against is 'exact'; expected another method"),
        (("piper", "--against", "levels"), "--against is 'levels'; expected a method of stage_partitioning"),
        (("pipper",), "METHOD is 'pipper'; expected one of"),
        (("piper", "--problem", "mesh"), "problem is 'mesh'"),
        (("piper", "--time-limit", "inf"), "--time-limit is 'infinite'"),
        (("piper", "--clusters", "4"), "clusters"),
        (("piper", "--max", "tmpcs=3", "--knapsack", "sort-once"), "sort-once needs at most two TMPCs"),
        (("piper", "--out", "/dev/null"), "--out is '/dev/null'; expected a file, next to which"),
    ],
)
def test_refused(run: Callable[..., Any], given: tuple[str, ...], words: str) -> None:
    code, out, err = run("mine", *(("--out", "x.json") if "--out" not in given else ()), *given)
    assert code == 2 and not out and words in err and err.count("\n") == 1
    assert not Path("x.json").exists()


def test_domains_that_exclude_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Domain("one", "the first time is 1", lambda genome, _: _with_first_time(genome, 1))
    two = Domain("two", "the first time is 2", lambda genome, _: _with_first_time(genome, 2))
    assert LAYERS.mining is not None
    space = replace(LAYERS.mining(), domains=(one, two))
    own = replace(LAYERS, entries={**LAYERS.entries, "mining": lambda: space})
    monkeypatch.setattr(formulations, "FAMILIES", (own,))
    assert mine("amp-released", domains={"one": None}, count=10).evaluations > 0
    with pytest.raises(planner.UsageError, match="--max and --domain is 'nodes=3, one, two'; expected limits and"):
        mine("amp-released", domains={"one": None, "two": None}, most={"nodes": 3}, count=10)


def _with_first_time(genome: Genome, time: int) -> Genome:
    first, *others = genome.nodes
    return replace(genome, nodes=((time, *first[1:]), *others))


def test_a_result_that_a_limit_cut_short_is_no_loss() -> None:
    instance = planner.load("layers", layers=4, stages=2)

    def slow(_instance: Any, _limits: Limits, _watch: Watch) -> Answer[Any]:
        return Answer(plan=LAYERS.plan_from_json(instance, {"lengths": [3, 1]}), stop=Stop.TIME_LIMIT)

    method = replace(LAYERS.method("uniform"), name="slow", solve=slow)
    pair = Pair(LAYERS, method, LAYERS.method("exact"), {"slow": {}, "exact": {}})
    found = pair.evaluate(instance, Limits(time_s=5))
    assert found.loss is None and not found.is_without_plan and found.result is not None
    ended = replace(method, solve=lambda *given: replace(slow(*given), stop=Stop.COMPLETED))
    found = replace(pair, method=ended).evaluate(instance, Limits(time_s=5))
    assert found.loss is not None and found.loss >= 0
    bounded = replace(pair.reference, solve=lambda *given: replace(slow(*given), stop=Stop.COMPLETED, bound=0.001))
    unproved = replace(pair, method=ended, reference=bounded)
    assert unproved.evaluate(instance, Limits(time_s=5)).loss is None


def test_both_methods_share_the_time_that_is_left() -> None:
    instance = planner.load("layers", layers=4, stages=2)
    exact, uniform = LAYERS.method("exact"), LAYERS.method("uniform")
    given: list[float] = []

    def late(*arguments: Any) -> Answer[Any]:
        time.sleep(0.3)
        return exact.solve(*arguments)

    def noted(*arguments: Any) -> Answer[Any]:
        given.append(arguments[1].time_s)
        return uniform.solve(*arguments)

    reference, method = replace(exact, solve=late), replace(uniform, solve=noted)
    pair = Pair(LAYERS, method, reference, {"uniform": {}, "exact": {}})
    assert pair.evaluate(instance, Limits(), time.perf_counter() + 5).loss is not None
    assert pair.evaluate(instance, Limits(), time.perf_counter()).loss is None  # the reference proves nothing any more
    assert pair.evaluate(instance, Limits()).loss is not None
    assert len(given) == 2 and given[0] <= 4.7 and given[1] == EVALUATION_S


def test_plans_and_certificates_are_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("layers", layers=4, stages=2)
    pair = Pair(LAYERS, LAYERS.method("uniform"), LAYERS.method("exact"), {"uniform": {}, "exact": {}})
    found = pair.evaluate(instance, Limits(time_s=5))
    assert found.result is not None and found.result.objective is not None
    assert _check_again(LAYERS, found) == instance
    with pytest.raises(planner.CrosscheckError, match="uniform has a plan of"):
        _check_again(LAYERS, replace(found, result=replace(found.result, objective=2 * found.result.objective)))
    mined = released()
    files = files_of("worst.json.gz", "amp-released", "./a/mine.py:solve")
    assert files == (
        "worst.json.gz", "worst.amp-released.json", "worst.mine-solve.json", "worst.certificate.json"
    )  # fmt: skip
    made, certificate = writes(mined, files)
    assert len(made) == 4 and certificate is not None
    rejected = Verification(False, "layer_assignment", "", None, None, "it is false", 0.0)
    monkeypatch.setattr("planner.experiments.mining.files.verify", lambda *_: rejected)
    with pytest.raises(planner.CrosscheckError, match="the certificate of exact is rejected: it is false"):
        writes(mined, files)


@thinned(
    "given",
    [
        ("amp", "--problem", "layer_assignment"),  # exact without an all-reduce
        ("piper", "--domain", "max-slowdown=1"),  # a class without losses, as the theorem says
    ],
    2,
)
def test_nothing_to_be_found_is_said_with_the_count(run: Callable[..., Any], given: tuple[str, ...]) -> None:
    code, out, _ = run("mine", *given, "--count", "60", "--out", "x.json")
    assert code == 3 and re.search(r"nothing found in [1-9]\d* evaluations", out) and not Path("x.json").exists()


def test_the_page_has_all_limits_and_domains() -> None:
    page = (ROOT / "docs" / "mining.md").read_text()
    for family in MINABLE:
        assert family.mining is not None
        room = family.mining()
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{family.name}` |")]
        assert all(f"{name} {value}" in row for name, value in room.limits.items()), row
        for domain in room.domains:
            assert f"| `{domain.name}{'=V' if domain.parse else ''}` |" in page
