"""Formats of trainers: what is written is read back, whole; and keeps the rules of who reads it."""

import re
import sys
import types
from dataclasses import dataclass, replace

import pytest
from oracles import megatron as rules
from paths import ROOT
from random_layouts import random_layout
from thinned import thinned

from formulations.stage_partitioning.definition.trainers import TRAINERS
from planner.training.trainers import megatron
from planner.training.trainers.formats import FORMATS, capabilities
from planner.training.trainers.layout import DECODER, EMBEDDING, HEAD, Layer, Layout, Stage


def seen(layout: Layout, name: str) -> Layout:
    """As the format has it."""
    return layout.by_count() if FORMATS[name].trainer.counts else layout.by_module()


def round_trip(name: str, case: int) -> None:
    layout = random_layout(case, name)
    text = FORMATS[name].write(layout)
    back = FORMATS[name].read(text)
    assert back == seen(layout, name), (name, case, text)
    if FORMATS[name].trainer.counts:
        assert sum(map(len, back.decoders())) == sum(map(len, layout.decoders()))
    else:
        assert [x.modules for x in back.layers] == [(m,) for x in layout.layers for m in x.modules]
    if name == "megatron":
        assert faults(text) == []


def faults(text: str) -> list[str]:
    """What Megatron's own rules find in the arguments."""

    def number(option: str) -> int | None:
        found = re.search(rf"--{option} (\d+)", text)
        return None if found is None else int(found.group(1))

    layout = re.search(r'--pipeline-model-parallel-layout "([^"\s]*)"', text).group(1)
    size = number("pipeline-model-parallel-size")
    return rules.faults(layout, size, number("num-layers"), number("mtp-num-layers"))


@thinned("name", FORMATS, 2)
def test_round_trips_lose_no_layer(name: str, cases: int, many: int) -> None:
    for case in range(max(many, 10_000) if many else 3 * cases):
        round_trip(name, case)


def test_page_has_the_table_of_capabilities() -> None:
    page = (ROOT / "docs" / "which-trainer.md").read_text(encoding="utf-8")
    assert capabilities() in page
    assert set(TRAINERS) == set(FORMATS)
    for name, trainer in TRAINERS.items():
        assert replace(FORMATS[name].trainer, degrees=trainer.degrees) == trainer


@pytest.mark.parametrize("name", ["torchtitan", "torch", "deepspeed", "accelerate"])
@pytest.mark.parametrize(
    "module", ['a"""\nimport os\n"""', "WORLD_SIZE", "# What the plan says.", "{parts}", "\u202e'", "[x]"]
)
def test_names_are_data(name: str, module: str) -> None:
    layout = Layout((Stage((Layer(DECODER, (module,)), Layer(DECODER, ("b",)))),))
    text = FORMATS[name].write(layout)
    assert FORMATS[name].read(text) == layout.by_module()
    if name != "accelerate":
        compile(text, "plan.py", "exec")


def test_grammar_of_megatron() -> None:
    text = "Et*3|(tt|)*3,m|L"
    wanted = ["Ettt", "tt", "tt", "tt", "m", "L"]
    assert rules.unrolled(text) == wanted
    letters = {EMBEDDING: "E", DECODER: "t", "mtp": "m", HEAD: "L"}
    assert ["".join(letters[role] for role in row) for row in megatron.stages(text)] == wanted
    for wrong in ("Et |L", "Et|x|L", "(Et|*2"):
        with pytest.raises(ValueError, match="expected the letters"):
            megatron.stages(wrong)
    assert rules.faults("Ett|tL", 2, 3, None) == []
    assert rules.faults("E||t|L", 4, 1, None) == []


@pytest.mark.parametrize(
    ("text", "size", "layers", "wanted"),
    [
        ("tEt|tL", 2, 3, "embedding"), ("Ett|LtL", 2, 3, "loss"), ("Ett|tL", 2, 4, "decoder layers"),
        ("Ett|t|L", 2, 3, "stages on"), ("Et|t|t|tL", 2, 4, "virtual stages"), ("Etm|tL", 2, 2, "behind multi-token"),
        ("Etm|t|t|t|t|tL", 3, 6, "multi-token"),
    ],
)  # fmt: skip
def test_rules_of_megatron_can_fail(text: str, size: int, layers: int, wanted: str) -> None:
    assert wanted in "; ".join(rules.faults(text, size, layers, 1 if "m" in text else None))


@pytest.mark.parametrize("name", FORMATS)
def test_other_texts_are_refused(name: str) -> None:
    text = FORMATS[name].write(random_layout(1, name))
    for wrong in ("", "{}", "[1]", "x = (", text[: len(text) // 9]):
        with pytest.raises(ValueError, match=r".+"):
            FORMATS[name].read(wrong)


def test_layouts_between_ends() -> None:
    d = Layer(DECODER)
    bare = Layout((Stage((d, d)), Stage((d,))))
    assert [[x.role for x in stage.layers] for stage in bare.by_count().stages] == [
        [EMBEDDING, DECODER, DECODER],
        [DECODER, HEAD],
    ]
    ends = Layout((Stage((Layer(EMBEDDING, ("a",)), Layer(EMBEDDING, ("b",)), d)), Stage((Layer(HEAD, ("h",)),))))
    assert [len(stage.layers) for stage in ends.by_count().stages] == [2, 1]
    assert [x.modules for x in ends.by_module().layers] == [("a",), ("b",), ("h",)]
    with pytest.raises(ValueError, match="data-parallel degrees 1, 2"):
        assert replace(bare, stages=(bare.stages[0], replace(bare.stages[1], dp_degree=2))).dp_degree


class Topology:
    """What PipelineModule asks of its topology."""

    def __init__(self, stages: int, stage: int) -> None:
        self.stages, self.pipe = stages, stage

    def get_dim(self, name: str) -> int:
        assert name == "pipe"
        return self.stages

    def get_coord(self, _: int) -> "Topology":
        return self


class StandIn:
    """PipelineModule, as far as partitions and recomputation go (0.19.6)."""

    def __init__(self, layers, num_stages=1, stage=0, activation_checkpoint_interval=0):
        self._topo, self.global_rank, self._layer_specs = Topology(num_stages, stage), stage, list(layers)
        self._partition_layers()
        self.forward_funcs = self._layer_specs[self._local_start : self._local_stop]
        step = self.activation_checkpoint_interval = activation_checkpoint_interval
        groups = [self.forward_funcs[i : i + step] for i in range(0, len(self.forward_funcs), step)] if step else []
        self.recomputed = [self._is_checkpointable(group) for group in groups]

    def _set_bounds(self, start=None, stop=None):
        self._local_start, self._local_stop = start, stop


def test_deepspeed_cuts_and_recomputes_as_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("deepspeed.pipe")
    module.PipelineModule = StandIn
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", module)
    recomputing = 0
    for case in range(30):
        layout = random_layout(case, "deepspeed")
        file: dict = {}
        exec(compile(FORMATS["deepspeed"].write(layout), "plan.py", "exec"), file)
        layers = [object() for _ in layout.layers]
        for place, stage in enumerate(layout.stages):
            made = file["PlannedPipeline"](layers, num_stages=len(layout.stages), stage=place)
            flags = [layer.recompute for layer in stage.layers]
            assert len(made.forward_funcs) == len(stage.layers)
            assert made.recomputed == (flags if any(x.recompute for x in layout.layers) else [])
            recomputing += any(flags)
        with pytest.raises(ValueError, match="the plan has"):
            file["PlannedPipeline"](layers[1:], num_stages=len(layout.stages))
    assert recomputing


@dataclass(slots=True)
class Policy:
    """A policy of recomputation, which has no mode (0.3.0)."""

    preserve_rng_state: bool = True


@dataclass
class Mode:
    """Recomputation by the name of a mode (0.2.2)."""

    mode: str = "selective"


@dataclass(slots=True)
class Parallel:
    """What recipes set of torchtitan's ``Parallelism``, as both releases have it."""

    pipeline_parallel_degree: int = 1
    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = -1
    tensor_parallel_degree: int = 1
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1
    pipeline_parallel_schedule: str = "1F1B"
    pipeline_parallel_microbatch_size: int = 1
    module_fqns_per_model_part: list[list[str]] | None = None


@dataclass(slots=True)
class Parallel2(Parallel):
    """And in 0.2.2, which can split experts."""

    expert_tensor_parallel_degree: int = 1


@dataclass(slots=True)
class Training2:
    """The same of ``Training`` in 0.2.2."""

    local_batch_size: int = 8
    global_batch_size: int = -1
    seq_len: int = 2048


@dataclass(slots=True)
class Training3(Training2):
    """And in 0.3.0, which refuses CUDA graphs in a pipeline."""

    disable_cuda_graphs: bool = False


@dataclass
class Configuration:
    """What both have in common; it is checked when it is made."""

    parallelism: Parallel
    training: Training2
    activation_checkpoint: Policy | Mode | None

    def __post_init__(self) -> None:
        is_graph = isinstance(self.training, Training3) and not self.training.disable_cuda_graphs
        if self.parallelism.module_fqns_per_model_part and self.parallelism.pipeline_parallel_degree > 1 and is_graph:
            raise ValueError("CUDA graphs do not support pipeline parallelism yet")


@pytest.mark.parametrize("release", ["0.3.0", "0.2.2"])
def test_recipes_run_on_both_releases_of_torchtitan(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stand-ins with their fields; tests of real programs have the releases themselves."""
    new = release == "0.3.0"
    module = types.ModuleType("torchtitan.distributed.activation_checkpoint")
    if new:
        module.FullAC = types.SimpleNamespace(Config=Policy)
    for name in ("torchtitan", "torchtitan.distributed"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchtitan.distributed.activation_checkpoint", module)
    seen_heads = 0
    for case in range(30):
        layout = replace(random_layout(case, "torchtitan"), samples=2, tokens=64)
        layout = replace(
            layout,
            stages=(
                *layout.stages[:-1],
                replace(layout.stages[-1], layers=(*layout.stages[-1].layers, Layer(HEAD, ("lm_head",)))),
            ),
        )
        file: dict = {}
        exec(compile(FORMATS["torchtitan"].write(layout), "plan.py", "exec"), file)
        made = file["planned"](
            lambda: (
                Configuration(Parallel(), Training3(), Policy())
                if new
                else Configuration(Parallel2(), Training2(), Mode())
            )
        )
        is_full = any(x.recompute for x in layout.layers)
        if new:
            assert made.activation_checkpoint == (Policy() if is_full else None)
        else:
            assert made.activation_checkpoint == Mode("full" if is_full else "none")
        its, pp, tp, dp = made.parallelism, layout.pp_degree, layout.tp_degree, layout.dp_degree
        degrees = (its.pipeline_parallel_degree, its.tensor_parallel_degree)
        assert degrees == (pp, tp)
        parts = tp if layout.expert > 1 else 1  # of experts' weights, on as many devices in both releases
        its_experts = its.expert_parallel_degree, getattr(its, "expert_tensor_parallel_degree", None)
        assert its_experts == ((layout.expert * parts, None) if new else (layout.expert, parts))
        is_sharded = layout.sharding > 0 or pp * tp * layout.context * layout.expert > 1
        shards = (layout.groups, dp // layout.groups) if is_sharded else (dp, 1)
        assert (its.data_parallel_replicate_degree, its.data_parallel_shard_degree) == shards
        names = [module for row in its.module_fqns_per_model_part for module in row]
        assert ("lm_head" in names) == new and ("output" in names) != new
        seen_heads += names[-1] == ("lm_head" if new else "output")
        m = made.training.global_batch_size // (2 * dp)
        assert m >= layout.batch.microbatches and made.training.seq_len == 64
        assert made.training.local_batch_size == (2 * m if pp > 1 else 2)
    assert seen_heads == 30
