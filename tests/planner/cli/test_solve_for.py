"""`planner solve --for TRAINER`: the best strategy of a trainer, its step in parts, and the command that exports it."""

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from thinned import thinned

import planner
from planner.analysis.explain import Other
from planner.analysis.trainer_answer import answer, as_settings
from planner.display.terminal import console
from planner.display.trainer_answer import show_others, strategies
from planner.files.load import family_of, validate
from planner.training.trainers.formats import FORMATS

Run = Callable[..., tuple[int, str, str]]
FACTS = {"microbatch": 2, "seq-len": 64, "forward-flops": 4e9, "hardware": "h100", "dtype": "bf16"}
TRAINED = sorted(name for name, each in FORMATS.items() if each.trainer.schedules)


@pytest.fixture
def run(run: Run) -> Run:
    """Run a command in a folder that has ``model.json``: chain8, as if it had been imported."""
    chain = planner.load("chain8", devices=4, memory="60MB", microbatches=8)
    known = replace(chain, options={**chain.options, **FACTS})
    Path("model.json").write_text(json.dumps(family_of(known).to_json(known)))
    return run


@thinned("trainer", TRAINED, 2)
@pytest.mark.parametrize("rule", ["dp_degree == 1", "dp_degree == 2"])
def test_answer_is_the_best_that_the_trainer_can_run(run: Run, trainer: str, rule: str) -> None:
    code, out, _ = run("solve", "model.json", "--memory", "1GB", "--for", trainer, "--require", rule, "--json")
    found = json.loads(out)
    instance = planner.load("model.json", problem="training_strategy", realizable=trainer, memory="1GB", require=rule)
    other = planner.solve(instance, exact=True)
    assert code == 0 and found["status"] == "optimal" and found["objective"] == other.objective
    plan, stats = found["plan"], found["stats"]
    flat, m, p = instance.flat, 8 // found["plan"]["dp_degree"], found["plan"]["pp_degree"]
    tmpcs = {layer.id: layer.tmpcs[plan["tp_degree"]] for layer in flat.layers}
    fastest = math.fsum(min(x.time for x in own) for own in tmpcs.values())
    took = math.fsum(next(x.time for x in tmpcs[v] if x.id == plan["tmpcs"][str(v)]) for v in tmpcs)
    parts = stats["step_parts"]
    assert parts["compute"] == pytest.approx(m * fastest / p)
    assert parts["recomputation"] == pytest.approx(m * (took - fastest) / p)
    assert math.fsum(parts.values()) == pytest.approx(found["objective"]) and parts["bubble"] >= 0
    taken = {v: next(x for x in tmpcs[v] if x.id == plan["tmpcs"][str(v)]) for v in tmpcs}
    crossing = [
        edge for edge in flat.edges for chunk in plan["chunks"] if edge.source in chunk and edge.target not in chunk
    ]
    sent = [
        edge.bytes * 2
        + taken[edge.target].sync_forward_bytes.get(edge.source, 0.0)
        + taken[edge.source].sync_backward_bytes.get(edge.target, 0.0)
        for edge in crossing
    ]
    d = plan["dp_degree"]
    summed = 4 * (d - 1) / d * math.fsum(x.weight_bytes for x in taken.values())
    assert parts["communication"] == pytest.approx((m * 2 * math.fsum(sent) + summed) / flat.bandwidth / p)
    assert len(stats["peak_bytes"]) == p and max(stats["peak_bytes"]) <= flat.memory_bytes
    tokens = 8 * 2 * 64 / found["objective"] / 4
    assert stats["tokens_per_s_per_device"] == pytest.approx(tokens)
    assert stats["samples_per_s"] == pytest.approx(8 * 2 / found["objective"])
    assert stats["mfu"] == pytest.approx(3 * 4e9 * 8 / (found["objective"] * 4 * 989.4e12), rel=1e-2)


@pytest.mark.parametrize("trainer", TRAINED)
def test_text_says_all_and_its_command_exports(run: Run, trainer: str) -> None:
    _, shown, _ = run("solve", "model.json", "--memory", "50MB", "--for", trainer, "--out", "p.json")
    plan = json.loads(Path("p.json").read_text())
    degrees = f"pipeline {plan['pp_degree']} x tensor {plan['tp_degree']} x data {plan['dp_degree']}, "
    first, *rest = shown.splitlines()
    assert first.startswith(f"{trainer} {degrees}") and "of 2 samples of 64 tokens on each replica" in first
    assert f", {plan['schedule']}, " in first and "recomputed" in first
    words = {line.split()[0]: line for line in rest if line.split()}
    assert list(words) == ["best", "next", "rates", "step", "memory", "export"]
    assert (
        "longer" in words["next"]
        and words["best"].split()[1] == "proved,"
        and "tokens/s per device, MFU" in words["rates"]
    )
    assert " = compute " in words["step"] and "MiB at most" in words["memory"]
    command = shlex.split(words["export"].removeprefix("export"))
    assert command[:4] == ["planner", "export", "p.json", "model.json"]
    code, text, err = run(*command[1:])
    layout = FORMATS[trainer].read(text)
    assert code == 0 and "when p.json was made" not in err
    assert (layout.pp_degree, layout.tp_degree, layout.dp_degree) == tuple(
        plan[f"{x}_degree"] for x in ("pp", "tp", "dp")
    )


@pytest.mark.parametrize("rule", ["tp_degree == 1", "pp_degree == 1 and tp_degree == 1 and dp_degree == 4"])
def test_next_best_is_the_best_of_other_degrees(run: Run, rule: str) -> None:
    asked = (
        "solve", "model.json", "--memory", "1GB", "--for", "torch", "--json",
        *(x for r in rule.split(" and ") for x in ("--require", r)),
    )  # fmt: skip
    found = json.loads(run(*asked)[1])
    others = {}
    for degrees in product((1, 2, 4), repeat=3):
        rules = [f"{name}_degree == {degree}" for name, degree in zip(("pp", "tp", "dp"), degrees, strict=True)]
        own = planner.solve(
            planner.load("model.json", problem="training_strategy", realizable="torch", memory="1GB",
                         require=[*rule.split(" and "), *rules])
        )  # fmt: skip
        if own.objective is not None:
            others[degrees] = own.objective
    best, *rest = sorted(others, key=lambda degrees: others[degrees])
    said = found["stats"]["next_best"]
    assert found["objective"] == others[best]
    if not rest:
        assert said == {"degrees": None, "behind": None, "behind_least": None}
        return
    assert tuple(said["degrees"][name] for name in ("pp", "tp", "dp")) == rest[0]
    assert said["behind"] == pytest.approx(others[rest[0]] / others[best] - 1)
    assert said["behind"] - 0.006 <= said["behind_least"] <= said["behind"]


def test_other_decisions_are_priced_with_the_best_of_all_else(run: Run) -> None:
    of = ("model.json", "--memory", "50MB", "--for", "megatron")
    code, out, _ = run("explain", *of, "--json")
    found, best = json.loads(out), json.loads(run("solve", *of, "--json")[1])
    plan = best["plan"]
    assert code == 0 and found["objective"] == best["objective"]
    assert found["answer"]["step_parts"] == best["stats"]["step_parts"]
    degrees = [("pp", 1), ("pp", 2), ("pp", 4), ("tp", 1), ("tp", 2), ("dp", 1), ("dp", 2), ("dp", 4)]
    wanted = {f"{name}_degree == {value}" for name, value in degrees if plan[f"{name}_degree"] != value}
    priced = {each["requirement"]: each for each in found["others"]}
    assert wanted == {each for each in priced if each[:3] in ("pp_", "tp_", "dp_")}  # 3 devices would have others
    assert all(priced[each]["status"] != "unknown" for each in wanted)
    for rule in sorted(wanted):
        own = planner.solve(planner.load("model.json", **as_settings("megatron", {"memory": "50MB"}), require=rule))
        each = priced[rule]
        assert (each["plan"] is None) == (own.objective is None), rule
        if own.objective is not None:
            assert own.objective <= each["objective"] * (1 + 1e-9) <= own.objective * 1.006, rule
            assert each["more"] == pytest.approx(each["objective"] / best["objective"] - 1)
            assert math.fsum(each["step_parts"].values()) == pytest.approx(each["objective"])
    assert any(each["plan"] for each in priced.values()) and any(each["plan"] is None for each in priced.values())
    shown = run("explain", *of)[1]
    assert all(f" {rule} " in shown for rule in wanted) and "one more GiB on each device" in shown


def test_rows_that_would_read_the_same_say_what_differs_or_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    chain = planner.load("chain8", devices=4, memory="60MB", microbatches=8, **as_settings("megatron", {}))
    result = planner.solve(instance := validate(chain))
    plan = result.own_plan
    one = answer(plan, instance, "megatron")
    chunk = len(plan.chunks) - 1
    other = replace(one, plan=replace(plan, tmpcs={**plan.tmpcs, plan.chunks[chunk][0]: "another"}))
    console().print(strategies([one, one]))
    assert "chunk" not in capsys.readouterr().out
    console().print(strategies([one, other]))
    shown = capsys.readouterr().out
    assert shown.count(f"chunk {chunk}: ") == 2 and shown.count("another") == 1
    costs = [Other(f"{name} == 1", result, one) for name in ("pp_degree", "dp_degree")]
    show_others(SimpleNamespace(answer=one, others=costs))
    assert " pp_degree == 1 or dp_degree == 1 " in capsys.readouterr().out


def test_alternatives_of_a_trainer_are_those_of_its_settings(run: Run) -> None:
    code, out, _ = run("solve", "model.json", "--for", "megatron", "--alternatives", "3", "--json")
    found, settings = json.loads(out), as_settings("megatron", {})
    long = [x for name, value in settings.items() for x in (f"--{name.replace('_', '-')}", str(value))]
    other = json.loads(run("alternatives", "model.json", *long, "--count", "3", "--json")[1])
    assert code == 0 and found["complete"] and found["alternatives"] == other["alternatives"]
    steps = [sum(each["step_parts"].values()) for each in found["strategies"]]
    assert steps == pytest.approx([each["objective"] for each in found["alternatives"]])
    shown = run("alternatives", "model.json", "--for", "megatron", "--count", "3")[1]
    words = ("plans that differ in degrees", "pp 2, tp 2, dp 1", " 3 ", "no other plan is below")
    assert all(each in shown for each in words)
    front = run("alternatives", "model.json", "--for", "megatron", "--pareto", "time,memory")[1]
    assert front.startswith("megatron pipeline") and "pp 2, tp 2, dp 1" in front and "no plan beats" in front


def test_a_trainer_holds_weights_in_its_own_way_unless_that_is_said(run: Run) -> None:
    held = [as_settings("megatron", given)["shard_optimizer"] for given in ({}, {"shard_optimizer": 3.0})]
    assert held == ["megatron", 3.0] and "shard_optimizer" not in as_settings("torch", {})


def test_torchtitan_shares_weights_in_a_pipeline_or_in_each_machine_or_has_one_replica(run: Run) -> None:
    titan = "solve", "llama3-8b", "--devices", "16", "--memory", "66GiB", "--for", "torchtitan", "--json"
    for more, took, sharing in (
        (("--require", "pp_degree == 2"), 5.962, (3, 8, 1)),
        (("--require", "tp_degree == 1", "--inner-bandwidth", "3TB/s"), 5.360, (3, 16, 2)),
        (("--sharding", "1"), 7.945, (1, 1, 1)),
    ):
        found = json.loads(run(*titan, "--shard-optimizer", "torchtitan", *more)[1])
        assert found["objective"] == pytest.approx(took, abs=1e-3) and found["status"] == "optimal"
        assert tuple(found["plan"][name] for name in ("sharding", "dp_degree", "shard_groups")) == sharing
    assert "shard_groups" not in as_settings("deepspeed", {})


def test_devices_that_share_tokens_take_their_part_of_the_time(run: Run) -> None:
    code, shown, _ = run("solve", "llama3-8b", "--devices", "16", "--cp", "2", "--for", "megatron", "--json")
    found = json.loads(shown)
    parts = found["stats"]["step_parts"].values()
    assert code == 0 and min(parts) >= 0 and math.fsum(parts) == pytest.approx(found["objective"])


def test_a_graph_without_one_order_gets_one(run: Run) -> None:
    """Imported models have layers without an edge between them; a trainer runs them one after the other."""
    code, out, _ = run("solve", "diamond", "--devices", "2", "--for", "torch", "--json")
    found = json.loads(out)
    assert code == 0 and found["options"]["linearize"] == "id"
    assert "--linearize id" in found["stats"]["export"]


def test_what_is_not_known_is_said(run: Run) -> None:
    code, out, _ = run("solve", "chain8", "--for", "megatron")
    assert code == 0 and "of unknown size on each replica" in out and "MFU unknown" in out
    stats = json.loads(run("solve", "chain8", "--for", "megatron", "--json")[1])["stats"]
    assert stats["mfu"] is stats["tokens_per_s_per_device"] is stats["samples_per_s"] is None


def test_without_a_plan_there_is_the_usual_answer(run: Run) -> None:
    code, out, _ = run("solve", "model.json", "--memory", "1KB", "--for", "megatron")
    assert code == 4 and "infeasible" in out


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "; published runs: 0.53 to 1.89 of predictions"),
        ({"efficiency": 0.5}, "; published runs: 0.99 to 2.43 of predictions; products at 50 % of the peak"),
        ({"efficiency": 0.625}, "; products at 62.5 % of the peak"),
        ({"efficiency": 0.5, "hardware": "a100-80g"}, "; products at 50 % of the peak"),
        ({"efficiency": 0.5, "rates": "mine.json"}, "; rates of mine.json"),
        ({"hardware": "a100-80g"}, ""),
    ],
)
def test_rates_say_where_they_are_from_and_how_far_off(run: Run, facts: dict[str, object], words: str) -> None:
    content = json.loads(Path("model.json").read_text())
    Path("model.json").write_text(json.dumps(content | {"options": content["options"] | facts}))
    shown = run("solve", "model.json", "--for", "megatron")[1]
    line = next(line for line in shown.splitlines() if line.startswith("rates"))
    assert line.partition("MFU ")[2].partition(" %")[2] == words


def test_no_published_run_had_states_on_hosts(run: Run) -> None:
    given = ("solve", "llama3-8b", "--devices", "8", "--for", "megatron")
    shown = [run(*given, *more)[1] for more in ((), ("--offload-optimizer", "50GB/s"))]
    assert ["published runs" in text for text in shown] == [True, False] and all("rates " in text for text in shown)


def test_other_commands_take_a_trainer(run: Run) -> None:
    run("solve", "model.json", "--for", "torch", "--out", "p.json")
    code, _, err = run("check", "model.json", "p.json", "--for", "torch")
    assert code == 0 and "note" not in err
    code, _, err = run("explain", "mmt", "--for", "megatron")
    assert code == 2 and "--for is 'megatron'; expected none with mmt: trainers run chains" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mmt", "--for", "megatron"), "--for is 'megatron'; expected none with mmt: trainers run chains"),
        (("--for", "vllm"), "; plans for what trains nothing: planner export --to vllm"),
        (("--for", "megatrn"), "--for is 'megatrn'"),
        (("--for", "torch", "--realizable", "megatron"), "--realizable is 'megatron'; expected none with --for"),
        (("--for", "torch", "--problem", "stage_partitioning"), "--problem is 'stage_partitioning'; expected none"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    of = () if arguments[0] == "mmt" else ("model.json",)
    code, out, err = run("solve", *of, *arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1 and words in err


def test_help_has_trainers_and_sizes(run: Run) -> None:
    _, out, _ = run("solve", "--help")
    assert "--for" in out and "--realizable" in out and "--microbatch-sizes" in out


@pytest.mark.parametrize("sizes", ["1,2,4", "1", "4,1"])
def test_sizes_that_a_model_was_not_imported_with_are_quoted(run: Run, sizes: str) -> None:
    code, out, err = run("sweep", "model.json", "--batch-size", "16", "--microbatch-sizes", sizes, "--exact")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert f"--microbatch-sizes is '{sizes}'; expected " in err
    code, out, _ = run("sweep", "model.json", "--batch-size", "16", "--microbatch-sizes", "2", "--exact", "--json")
    assert code == 0 and [row["microbatch_size"] for row in json.loads(out)["stats"]["sweep"]] == [2]


def test_profiles_at_each_size_are_swept(run: Run) -> None:
    """Files of models imported at each size; one that holds another size than its name says is refused."""
    content = json.loads(Path("model.json").read_text())
    for size in (1, 2):
        content["options"]["microbatch"] = size
        Path(f"at{size}.json").write_text(json.dumps(content))
    Path("at4.json").write_text(json.dumps(content))
    sweep = ("sweep", "at{b}.json", "--batch-size", "16", "--exact", "--json", "--microbatch-sizes")
    code, out, _ = run(*sweep, "1,2")
    assert code == 0 and json.loads(out)["options"]["microbatch-sizes"] == 2
    code, out, err = run(*sweep, "1,4")
    assert (code, out) == (2, "") and "--microbatch-sizes is '1,4'; expected 2 for " in err
