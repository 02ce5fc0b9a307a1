"""`planner run`: a plan's processes compute what the whole model computes, and send what the plan says."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from runtime import captured_once

from instances.errors import InstanceError
from planner.cli.app import main
from planner.process.errors import UsageError
from planner.training.runtime.fidelity import fidelity

torch = pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)

MODELS = Path(__file__).parent / "small_models.py"
SAMPLES = 6
#: Bytes of the tensor between two blocks: 2 sequences of 5 words of width 8.
TENSOR = {"language": 2 * 5 * 8 * 8, "single": 2 * 5 * 8 * 4}
MODULES = ("words, places, drop", "blocks.0", "blocks.1", "blocks.2", "head")


def chain(modules: tuple[str, ...] = MODULES, edge: float = TENSOR["language"], **more: Any) -> dict[str, Any]:
    """A chain of layers named like modules, as JSON."""
    layers = [
        {
            "id": number,
            "name": f"layer {number}",
            "module": module,
            "tmpcs": {
                "1": [{"id": "keep", "time": 1.0, "weight_bytes": 1.0, "activation_bytes": 1.0, "static_bytes": 1.0}],
                "2": [{"id": "keep", "time": 0.5, "weight_bytes": 1.0, "activation_bytes": 1.0, "static_bytes": 1.0}],
            },
        }
        for number, module in enumerate(modules)
    ]
    edges = [{"source": number, "target": number + 1, "bytes": edge} for number in range(len(modules) - 1)]
    return {
        "problem": "stage_partitioning", "schema_version": 1, "name": "small", "num_devices": 8, "memory_bytes": 1e12,
        "bandwidth": 1e9, "num_microbatches": SAMPLES, "layers": layers, "edges": edges, **more,
    }  # fmt: skip


def plan(*stages: tuple[list[int], int], tp_degree: int = 1) -> dict[str, Any]:
    """Stages as (nodes, replicas)."""
    return {
        "stages": [
            {
                "nodes": nodes,
                "dp_degree": replicas,
                "tp_degree": tp_degree,
                "tmpcs": {str(node): "keep" for node in nodes},
            }
            for nodes, replicas in stages
        ]
    }


def as_known(instance: Any, model: str) -> Any:
    """Where several tests run a model, it is captured once."""
    several = ("language", "tied", "branches")
    return captured_once.known(f"{MODELS}:{model}", "minibatch" in instance) if model in several else nullcontext()


@pytest.fixture
def call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command with an instance and a plan; the exit code and what it printed."""

    def called(instance: Any, made: Any, model: str, *options: str) -> tuple[int, str, str]:
        files = [tmp_path / "plan.json", tmp_path / "instance.json"]
        for file, content in zip(files, (made, instance), strict=True):
            file.write_text(json.dumps(content))
        with as_known(instance, model):
            code = main(["run", *map(str, files), "--model", f"{MODELS}:{model}", *options])
        out, err = capfd.readouterr()
        return code, out, err

    return called


@pytest.mark.parametrize(
    "stages",
    [
        [([0, 1], 1), ([2, 3, 4], 1)], [([0, 1, 2], 3), ([3, 4], 1)], [([0], 1), ([1, 2, 3, 4], 2)],
        [([0, 1, 2, 3, 4], 2)],
    ],
)  # fmt: skip
def test_runs_compute_what_the_whole_model_does(call: Any, stages: Any) -> None:
    code, out, _ = call(chain(), plan(*stages), "language", "--check", "--json")
    found = json.loads(out)
    assert code == 0 and found["ok"]
    assert found["processes"] == sum(replicas for _, replicas in stages)
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"] == 45
    assert found["bytes_sent"] == found["bytes_planned"]


@pytest.mark.parametrize(
    ("chunks", "schedule", "dp", "V"),
    [
        ([[0], [1], [2], [3, 4]], "interleaved", 1, 2),
        ([[0], [1], [2, 3], [4]], "interleaved", 3, 2),
        ([[0, 1], [2], [3, 4]], "zb-h1", 2, 1),
        ([[0], [1, 2], [3], [4]], "zb-v", 2, 2),
        ([[0], [1], [2, 3], [4]], "dualpipe-v", 1, 2),
    ],
)
def test_stages_of_a_process_and_split_passes_compute_what_the_whole_model_does(
    call: Any, chunks: list[list[int]], schedule: str, dp: int, V: int, tmp_path: Path
) -> None:
    instance = {"problem": "training_strategy", "schema_version": 1, "flat": chain(), "virtual_stages": 2}
    instance["schedules"] = ["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"]
    degrees = {"pp_degree": len(chunks) // V, "tp_degree": 1, "dp_degree": dp, "virtual_stages": V}
    tmpcs = dict.fromkeys(map(str, range(5)), "keep")
    made = {**degrees, "schedule": schedule, "chunks": chunks, "tmpcs": tmpcs}
    record = tmp_path / "run.json"
    code, out, _ = call(instance, made, "language", "--check", "--json", "--out", str(record))
    found = json.loads(out)
    assert code == 0 and found["ok"] and found["processes"] == degrees["pp_degree"] * dp
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"] == 45
    assert found["bytes_sent"] == found["bytes_planned"] and len(found["bytes_sent"]) == len(chunks) * dp
    passes = json.loads(record.read_text())["measured"]
    assert {row[1] for row in passes} == ({"F", "B"} if schedule == "interleaved" else {"F", "B", "W"})
    terms = {each.term: each.measured for each in fidelity(json.loads(record.read_text())).terms}
    assert terms["backward"] == pytest.approx(sum(row[4] - row[3] for row in passes if row[1] != "F"))


def test_another_schedule_is_kept(call: Any, tmp_path: Path) -> None:
    tasks: list[Any] = [[stage, "F", m, 10 * stage + m, 10 * stage + m + 1] for stage in (0, 1) for m in range(6)]
    tasks += [[stage, "B", m, 50 - 10 * stage + m, 51 - 10 * stage + m] for stage in (0, 1) for m in range(6)]
    file, trace = tmp_path / "schedule.json", tmp_path / "trace.json"
    file.write_text(json.dumps({"tasks": tasks}))
    options = ("--passes", str(file), "--trace", str(trace), "--check", "--json")
    code, out, _ = call(chain(), plan(([0, 1], 1), ([2, 3, 4], 1)), "language", *options)
    assert code == 0 and json.loads(out)["gradient_error"] <= 1e-12
    events = [each for each in json.loads(trace.read_text())["traceEvents"] if each["ph"] == "X"]
    for group in (0, 1):  # measured, simulated
        for row in (0, 1):
            own = [each["name"] for each in events if (each["pid"], each["tid"]) == (group, row)]
            assert own == [f"F{m}" for m in range(6)] + [f"B{m}" for m in range(6)]
    record = tmp_path / "run.json"
    code, _, _ = call(chain(), plan(([0, 1], 1), ([2, 3, 4], 1)), "language", "--out", str(record))
    assert code == 0 and main(["fidelity", str(record)]) == 0
    ends = [max(each["ts"] + each["dur"] for each in events if each["pid"] == group) for group in (0, 1)]
    assert ends[0] == pytest.approx(ends[1])
    code, _, err = call(chain(), plan(([0, 1], 2), ([2, 3, 4], 1)), "language", "--passes", str(file))
    assert code == 2 and "expected 3 forward and backward passes" in err


def test_json_has_the_fields_of_the_interface(call: Any) -> None:
    _, out, _ = call(chain(edge=TENSOR["single"]), plan(([0, 1], 1), ([2, 3, 4], 2)), "single", "--json")
    found = json.loads(out)
    assert list(found) == [
        "ok", "processes", "loss_error", "gradient_error", "parameters", "parameters_compared",
        "bytes_sent", "bytes_planned", "held_bytes", "held_planned", "seconds", "step_seconds",
    ]  # fmt: skip
    assert found["loss_error"] is None and found["gradient_error"] is None and found["parameters_compared"] == 0
    # one stage sends each of 6 micro-batches forwards, the two replicas of the other 3 gradients each back
    assert found["bytes_sent"] == [6 * 320, 3 * 320, 3 * 320]
    assert found["held_planned"] == [2 * 3, 3 * 1, 3 * 1]  # s / d micro-batches of one byte a layer


def test_recomputed_layers_keep_their_inputs_alone(call: Any) -> None:
    stages = plan(([0, 1, 2], 1), ([3, 4], 1))
    _, out, _ = call(chain(), stages, "language", "--json")
    instance = chain()
    for layer in instance["layers"][1:4]:
        for tmpc in layer["tmpcs"]["1"]:
            tmpc["id"] = "recompute"
    for stage in stages["stages"]:
        stage["tmpcs"] = {node: "recompute" if node in "123" else "keep" for node in stage["tmpcs"]}
    code, again, _ = call(instance, stages, "language", "--check", "--json")
    kept, found = json.loads(out)["held_bytes"], json.loads(again)
    assert code == 0 and found["gradient_error"] <= 1e-12
    # the last stage keeps the inputs of its block and of the head, 2 x 5 x 8 numbers each; the mask is made again
    assert found["held_bytes"][1] == 2 * TENSOR["language"] < kept[1] / 5
    assert found["held_bytes"][0] < kept[0] / 5


GRAPH = ("words", "pictures", "sounds", "join", "head")


def graph() -> dict[str, Any]:
    """A stage graph whose operators are named like the modules of `Branches`; each gives n x 8 numbers of a sample."""
    seconds = {"fixed_s": 0.0, "per_sample_s": 1.0}
    operators = [
        {
            "id": each, "name": each, "forward": seconds, "backward": seconds, "weight_bytes": 1.0,
            "activation_bytes": 1.0,
        }
        for each in GRAPH
    ]  # fmt: skip
    rows = {("words", "join"): 5, ("pictures", "join"): 8, ("sounds", "join"): 1, ("join", "head"): 1}
    edges = [{"source": a, "target": b, "bytes_per_sample": 1.0 * n * 8 * 8} for (a, b), n in rows.items()]
    return {
        "problem": "stage_graph", "schema_version": 1, "name": "branches", "operators": operators, "edges": edges,
        "num_devices": 8, "memory_bytes": 1e9, "bandwidth_bytes_per_s": 1e9, "latency_s": 0.0, "minibatch": 12,
        "schedule": "per-stage",
    }  # fmt: skip


def branching_plan(*stages: tuple[list[str], int, int, int], edges: list[list[int]]) -> dict[str, Any]:
    """Stages as (nodes, devices, samples of a micro-batch, samples in flight)."""
    made = [dict(zip(("nodes", "devices", "microbatch", "in_flight"), each, strict=True)) for each in stages]
    return {"stages": made, "edges": edges, "idle_devices": 8 - sum(each[1] for each in stages)}


BRANCHING = [
    # a stage for each branch, micro-batches of one size, unequal devices
    branching_plan((["words"], 1, 3, 6), (["pictures"], 2, 3, 6), (["sounds"], 1, 3, 6), (["join", "head"], 2, 3, 3),
                   edges=[[0, 3], [1, 3], [2, 3]]),
    # micro-batches of different sizes
    branching_plan((["words"], 1, 2, 8), (["pictures"], 1, 1, 8), (["sounds"], 2, 2, 8), (["join", "head"], 2, 4, 4),
                   edges=[[0, 3], [1, 3], [2, 3]]),
    # a stage that straddles two branches
    branching_plan((["words", "sounds"], 1, 3, 9), (["pictures"], 1, 3, 9), (["join"], 1, 3, 6), (["head"], 2, 3, 3),
                   edges=[[0, 2], [1, 2], [2, 3]]),
]  # fmt: skip


@pytest.mark.parametrize("made", BRANCHING[:1])  # of others: test_emulated
def test_graphs_of_stages_compute_what_the_whole_model_does(call: Any, made: Any) -> None:
    code, out, err = call(graph(), made, "branches", "--check", "--json")
    assert code == 0, (out, err)
    found = json.loads(out)
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"]
    assert found["bytes_sent"] == found["bytes_planned"]


def test_whole_numbers_are_sent_and_nothing_comes_back_for_them(call: Any) -> None:
    tensor = 5 * 2 * 8  # values and whole numbers have the same size; an edge counts half of what has no gradient
    instance, stages = chain(("first", "second"), tensor * 1.5), plan(([0], 2), ([1], 1))
    code, out, err = call(instance, stages, "routed", "--check", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["gradient_error"] <= 1e-12
    assert found["bytes_sent"] == [3 * 2 * tensor, 3 * 2 * tensor, 6 * tensor]
    assert sum(found["bytes_sent"]) == sum(found["bytes_planned"])


def test_stages_do_not_write_into_tensors_of_others(call: Any) -> None:
    instance, stages = chain(("first", "second"), 5 * 4 * 8), plan(([0], 1), ([1], 2))
    code, out, err = call(instance, stages, "writing", "--check", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["gradient_error"] <= 1e-12 and found["bytes_sent"] == found["bytes_planned"]
    code, _, err = call(instance, stages, "writing_flat")
    assert code == 2 and "writing into a view" in err


def test_dropout_is_switched_off_in_both(call: Any) -> None:
    code, out, _ = call(chain(), plan(([0, 1], 2), ([2, 3, 4], 1)), "dropping", "--check", "--json")
    assert code == 0 and json.loads(out)["gradient_error"] <= 1e-12


def test_nothing_listens_beyond_the_loopback(call: Any) -> None:
    modules = tuple(f"inner.{name.strip()}" for name in ("words, inner.places, inner.drop", *MODULES[1:]))
    code, out, err = call(chain(modules), plan(([0, 1], 1), ([2, 3, 4], 2)), "listens", "--check", "--json")
    assert code == 0 and json.loads(out)["ok"], err


@pytest.mark.parametrize(
    ("model", "limit", "words"),
    [
        ("dies", "300", "process 1 (stage 1, replica 0) was ended by signal 9 (SIGKILL)"),
        ("raises", "300", "process 1 (stage 1, replica 0) failed: ValueError: out of paper"),
        ("hangs", "8", "process 0 (stage 0, replica 0) is not done after {} s; expected an end within --time-limit"),
    ],
)
def test_a_process_that_fails_ends_the_run_with_one_line(call: Any, model: str, limit: str, words: str) -> None:
    modules = tuple(f"inner.{name.strip()}" for name in ("words, inner.places, inner.drop", *MODULES[1:]))
    stages, before = [([0, 1], 1), ([2, 3, 4], 1)], _children()  # a solver's process may wait for its next model
    code, out, err = call(chain(modules), plan(*stages), model, "--time-limit", limit)
    if code == 2 and limit == "8":  # a busy machine was not done with the trace: no process had begun
        code, out, err = call(chain(modules), plan(*stages), model, "--time-limit", limit := "90")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == words.format(limit)
    assert {*_children()} <= {*before}


def _children() -> list[int]:
    """Processes whose parent this one is."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path("/proc", name, "stat").read_text()
        except OSError:  # it has just ended
            continue
        if int(text.rpartition(")")[2].split()[1]) == os.getpid():
            found.append(int(name))
    return found


BAD = [
    ("language", plan(([0, 1], 1), ([2, 3], 1)), {}, "cover (node 4 is in 0 stages"),
    ("language", plan(([0, 1, 2, 3, 4], 1), tp_degree=2), {}, "tp_degree 2 of stage 0"),
    ("language", plan(*[([node], 1) for node in range(5)]), {"modules": ("words", "blocks.0", "x", "y", "head")},
     "the model that small was made of"),
    ("branches", plan(([0], 1), ([1], 1), ([2, 3, 4], 1)), {"modules": GRAPH},
     "from stage 0 to stage 2, which no edge"),
    ("untraceable", plan(([0], 1)), {"modules": ("",)}, "expected a model that torch.export can trace"),
    ("unrunnable", plan(([0], 1)), {"modules": ("0",)}, "expected a model that runs with its inputs"),
    ("failing", plan(([0], 1)), {"modules": ("",)}, "RuntimeError: no weights (line"),
    ("number", plan(([0], 1)), {"modules": ("",)}, "result is of type int"),
    ("nothing", plan(([0], 1)), {"modules": ("",)}, "function is 'nothing'; expected one of"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "made", "changed", "words"), BAD)
def test_bad_input_is_one_line(call: Any, model: str, made: Any, changed: dict[str, Any], words: str) -> None:
    code, out, err = call(chain(**changed), made, model)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert words in err and "expected" in err


def test_the_loss_is_the_model_s_own_where_it_has_one() -> None:
    from planner.training.runtime.objective import objective_of

    with_gradient, number = torch.ones(2, requires_grad=True), torch.ones((), requires_grad=True)
    assert objective_of({"joined": with_gradient, "loss": number}).loss == 1
    assert objective_of(number).loss == 0
    assert objective_of((number, with_gradient)).loss is None  # one of several numbers, and not called a loss
    assert objective_of({"loss": torch.ones(())}).loss is None  # without a gradient
    own = objective_of({"joined": with_gradient, "loss": number})
    assert own.part(with_gradient, 0, 3) is None and own.part(number, 1, 3) is number
    drawn = objective_of(with_gradient)
    assert drawn.of([with_gradient, 5], 3) == drawn.part(with_gradient, 0, 3) != drawn.part(with_gradient, 0, 4)


def test_a_run_minimises_the_model_s_own_loss() -> None:
    from planner.files.load import load
    from planner.training.capture.models import example_in
    from planner.training.runtime.run import run_plan

    torch.manual_seed(0)
    example = example_in(f"{MODELS}:branches", meta=False)
    one = {name: each[:1] for name, each in example.kwargs.items()}
    single = graph() | {"minibatch": 1, "num_devices": 1}
    stage = {"nodes": list(GRAPH), "devices": 1, "microbatch": 1, "in_flight": 1}
    found = run_plan({"stages": [stage], "edges": []}, load(single), f"{MODELS}:branches", check=True)
    assert found.ok and found.loss == pytest.approx(float(example.model(**one)["loss"].detach()), rel=1e-12)


def test_a_gradient_that_differs_fails_the_check() -> None:
    from planner.training.runtime.run import compare

    whole = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([1e-9]), "c": None}
    assert compare([{"a": whole["a"], "c": None}, {"b": torch.tensor([0.0])}], whole) == (pytest.approx(5e-7), 3)
    assert compare([{"a": whole["a"]}, {"a": torch.tensor([1.0, 2.2])}], whole) == (pytest.approx(0.1), 2)
    assert compare([{"a": torch.tensor([1.0, float("nan")])}], whole)[0] == float("inf")
    assert compare([{"a": whole["a"], "c": torch.tensor([0.02])}], whole)[0] == pytest.approx(10.0)


def test_alternatives_are_run_by_number(tmp_path: Path) -> None:
    from planner.training.runtime.run import read_alternative

    first, second = plan(([0, 1, 2, 3, 4], 1)), plan(([0, 1], 1), ([2, 3, 4], 1))
    content = {"status": "optimal", "plan": first, "alternatives": [{"plan": first}, {"plan": second}]}
    file = tmp_path / "plans.json"
    file.write_text(json.dumps(content))
    assert read_alternative(str(file), 2) == {**content, "plan": second}
    with pytest.raises(UsageError, match="--alternative is 3; expected at most 2, the plans of"):
        read_alternative(str(file), 3)
    file.write_text(json.dumps(first))
    with pytest.raises(UsageError, match="--alternative is 1; expected none: it has no alternatives"):
        read_alternative(str(file), 1)


def test_of_several_plans_the_fastest_is_kept(call: Any, tmp_path: Path) -> None:
    shared, whole, halves = (
        plan(([0, 1, 2, 3, 4], 1), tp_degree=2),
        plan(([0, 1, 2, 3, 4], 1)),
        plan(([0, 1, 2, 3, 4], 2)),
    )
    record, out = {"alternatives": [{"plan": each} for each in (shared, whole, halves, whole)]}, tmp_path / "run.json"
    code, printed, err = call(chain(), record, "language", "--budget", "2", "--check", "--json", "--out", str(out))
    assert not err, err
    found = json.loads(printed)
    assert code == 0 and [(each["plan"], each["is_run"]) for each in found["tried"]] == [
        (1, False),
        (2, True),
        (3, True),
    ]
    assert "tp_degree 2" in found["tried"][0]["reason"]
    steps = {each["plan"]: each["seconds"] for each in found["tried"][1:]}
    assert found["fastest"] == min(steps, key=steps.__getitem__)
    assert steps[found["fastest"]] == found["step_seconds"] > found["seconds"] > 0
    assert len(json.loads(out.read_text())["rows"]) == found["processes"] == found["fastest"] - 1


def test_without_torch_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from planner.files.load import load
    from planner.training.runtime.run import run_plan

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"planner run needs torch: pip install '\.\[torch\]'"):
        run_plan(plan(([0, 1, 2, 3, 4], 1)), load(chain()), f"{MODELS}:language")
    with pytest.raises(InstanceError, match="stages"):
        run_plan({}, load(chain()), f"{MODELS}:language")
