"""What is written, read by the programs that it is for; each test runs where its program is installed.

The releases are those of `planner.training.trainers.checked`. Functions of packages whose imports need a GPU are taken
out of their files.
"""

import argparse
import ast
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_layouts import random_layout

import planner
from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy import heuristics
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.sharing import Members, shared_in
from formulations.training_strategy.degrees import Degrees
from instances.problems.training_strategy import Schedule
from planner.training.trainers.checked import CHECKED
from planner.training.trainers.formats import FORMATS
from planner.training.trainers.layout import DECODER, EMBEDDING, HEAD, MTP, VEE, Layout

PACKAGES = {
    "megatron": "megatron-core", "torchtitan": "torchtitan", "torch": "torch", "deepspeed": "deepspeed",
    "galvatron": "hetu-galvatron", "vllm": "vllm", "sglang": "sglang", "accelerate": "accelerate",
}  # fmt: skip


def installed(name: str, package: str = "") -> str:
    """The release that is installed; the test is skipped if it is none of those that texts name."""
    try:
        version = importlib.metadata.version(PACKAGES[name]).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    if importlib.util.find_spec(package or name) is None:
        pytest.skip(f"{PACKAGES[name]} {version} has no {package or name}")
    if version not in CHECKED[name].versions:
        pytest.skip(f"{PACKAGES[name]} is {version}; texts name {', '.join(CHECKED[name].versions)}")
    return version


def functions(package: str, file: str, *names: str, **given: Any) -> list[Any]:
    """Functions of a file of an installed package, with what they use of it ``given``."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    path = Path(next(iter(spec.submodule_search_locations)), file)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in wanted:
        node.returns = None
        for each in node.args.args:
            each.annotation = None
    exec(compile(ast.Module(wanted, []), str(path), "exec"), given)
    return [given[name] for name in names]


def layouts(name: str, count: int = 40) -> Iterator[tuple[Layout, str]]:
    for case in range(count):
        layout = random_layout(case, name)
        yield layout, FORMATS[name].write(layout)


def test_texts_name_the_releases_and_the_batch() -> None:
    assert PACKAGES.keys() == CHECKED.keys() == FORMATS.keys()
    pinned = re.findall(r"^([a-z-]+)==([0-9.]+)", Path(__file__).with_name("programs.txt").read_text(), re.MULTILINE)
    for name, checked in CHECKED.items():
        assert name == "torch" or checked.versions[0] in [version for each, version in pinned if each == PACKAGES[name]]
        for _, text in layouts(name, 3):
            is_map = name == "accelerate"  # which has no place for words
            assert (checked.says() in text) != is_map
            assert all(version in text for version in checked.versions) != is_map


def test_layouts_of_megatron_core() -> None:
    installed("megatron", "megatron.core")
    read = importlib.import_module("megatron.core.transformer.pipeline_parallel_layer_layout")
    letters = {"embedding": EMBEDDING, "decoder": DECODER, "mtp": MTP, "loss": HEAD}
    for layout, text in layouts("megatron"):
        found = re.search(r'layout "([^"]*)"', text)
        assert found is not None
        its = read.PipelineParallelLayerLayout(found.group(1), layout.pp_degree)
        counted = layout.by_count()
        its.validate_layer_layout(sum(map(len, counted.decoders())), sum(x.role == MTP for x in counted.layers) or None)
        for place, stage in enumerate(counted.stages):
            part = its.layout[place % layout.pp_degree][place // layout.pp_degree]
            assert [letters[each.name] for each in part] == [layer.role for layer in stage.layers]


#: What the parser wants besides, of the model and its data.
MODEL = (
    "--hidden-size 64 --num-attention-heads 8 --max-position-embeddings 128 --bf16 --transformer-impl local "
    "--mock-data --tokenizer-type NullTokenizer --vocab-size 512 --lr 1e-4 --train-iters 10 "
    "--position-embedding-type rope"
)


def test_arguments_of_megatron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parser, and its rules between arguments, on a machine that is said to have a GPU of generation 9."""
    installed("megatron", "megatron.training")
    arguments = importlib.import_module("megatron.training.arguments")
    monkeypatch.setattr(arguments, "get_device_arch_version", lambda: 9)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # which it wants beside tensor parallelism
    for layout, text in layouts("megatron"):
        world = re.search(r"WORLD_SIZE=(\d+)", text)
        array = re.search(r"ARGS=\(([^)]*)\n\)", text)
        assert world is not None and array is not None
        experts = f" --num-experts {2 * layout.expert}" * (layout.expert > 1)
        given = array.group(1).replace('"', "").split()
        monkeypatch.setenv("WORLD_SIZE", world.group(1))
        monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *given, *MODEL.split(), *experts.split()])
        found = arguments.parse_args()
        arguments.validate_args(found)
        capsys.readouterr()
        dp, batch = layout.dp_degree, layout.batch
        rows = [sum(layer.recompute for layer in row) for row in layout.decoders()]
        assert (found.world_size, found.data_parallel_size) == (layout.world_size, dp)
        assert (found.context_parallel_size, found.expert_model_parallel_size) == (layout.context, layout.expert)
        assert (found.micro_batch_size, found.global_batch_size, found.seq_length) == (2, batch.global_samples, 128)
        assert found.global_batch_size // (found.micro_batch_size * dp) == batch.microbatches
        assert (found.recompute_num_layers or 0) == max(rows)
        assert found.use_distributed_optimizer == (layout.sharding == 1)
        assert (found.recompute_granularity == "selective") == bool(layout.selective)
        assert found.num_distributed_optimizer_instances == layout.groups
        assert found.use_tp_pp_dp_mapping == layout.outermost
        assert (found.sequence_parallel, found.overlap_grad_reduce) == (layout.sequences, layout.overlaps)
        offloaded = found.optimizer_cpu_offload and found.optimizer_offload_fraction
        assert (offloaded, found.use_precision_aware_optimizer) == (layout.offloaded, layout.offloaded > 0)
        assert found.num_layers == sum(map(len, layout.decoders()))
        sizes = found.tensor_model_parallel_size, found.transformer_pipeline_model_parallel_size
        assert sizes == (layout.tp_degree, layout.pp_degree)
        assert (found.virtual_pipeline_model_parallel_size or 1) == layout.virtual
        assert found.recompute_modules == [layout.selective] or not layout.selective
        assert found.align_grad_reduce == (not layout.overlaps or layout.virtual == 1)
        assert (found.mtp_num_layers or 0) == sum(layer.role == MTP for layer in layout.layers)
        assert found.expert_tensor_parallel_size == layout.tp_degree


def neighbours(first: int, count: int, apart: int) -> list[int]:
    return list(range(first, first + count * apart, apart))


def on_machines(groups: Iterable[Sequence[int]], machine: int) -> Members:
    """The fewest devices that a machine has of a group on several ones (0: none is), and the most of any."""
    found = [Counter(rank // machine for rank in group).values() for group in groups]
    return Members(min((min(own) for own in found if len(own) > 1), default=0), max(max(own) for own in found))


def test_ranks_of_megatron() -> None:
    """Its own numbering is the order of plans: tp, cp, ep, dp, pp, innermost first; experts are beside tensors.

    So it is where replicas are outermost, and machines have as many devices of its groups as plans count.
    """
    installed("megatron", "megatron.core")
    kind = importlib.import_module("megatron.core.parallel_state").RankGenerator
    instance, outermost = planner.load("chain8-strategy", memory="1GB"), 0
    for case, (layout, _) in enumerate(layouts("megatron", 200)):
        t, p, c, e = layout.tp_degree, layout.pp_degree, layout.context, layout.expert
        d, last = layout.dp_degree, layout.outermost
        shared = {"sharding": layout.sharding, "shard_groups": layout.groups, "cp_degree": c, "ep_degree": e}
        plan = StrategyPlan(p, t, d, 1, Schedule.ONE_F_ONE_B, (), {}, dp_outermost=last, **shared)
        order, replicas = "tp-cp-ep-pp-dp" if last else "tp-cp-ep-dp-pp", c * d
        dense = kind(tp=t, ep=1, dp=d, pp=p, cp=c, order=order)
        sparse = kind(tp=t, ep=e, dp=replicas // e, pp=p, cp=1, order=order)
        assert dense.world_size == sparse.world_size == layout.world_size
        assert dense.get_ranks("tp")[0] == neighbours(0, t, 1) and dense.get_ranks("cp")[0] == neighbours(0, c, t)
        stage, replica = plan.apart
        assert dense.get_ranks("dp-cp")[0] == [i + j for i in neighbours(0, d, replica) for j in neighbours(0, c, t)]
        assert dense.get_ranks("pp")[0] == sparse.get_ranks("pp")[0] == neighbours(0, p, stage)
        assert sparse.get_ranks("ep")[0] == neighbours(0, e, t) and sparse.get_ranks("tp-ep")[0] == [*range(t * e)]
        machine, size = (2, 3, 4, 6, 8, 12, 16, 24, 40)[case % 9], replicas // layout.groups
        shares = [own[at : at + size] for own in dense.get_ranks("dp-cp") for at in range(0, replicas, size)]
        others = [own[at::size] for own in dense.get_ranks("dp-cp") for at in range(size)]
        pairs = [own[at : at + 2] for own in dense.get_ranks("pp") for at in range(max(1, p - 1))]
        by = shared_in(replace(instance, devices_per_machine=machine, inner_bandwidth=1e12), plan)
        assert by.groups == layout.groups
        for found, own in (
            (by.of_group, shares), (by.of_groups, others), (by.of_stages, pairs), (by.of_ring, dense.get_ranks("cp")),
            (by.of_tokens, sparse.get_ranks("ep")), (by.of_experts, sparse.get_ranks("dp")),
        ):  # fmt: skip
            assert found == on_machines(own, machine) or (found is by.of_experts and e == 1)
        outermost += last and p > 1 < d
    assert outermost > 5


def test_ranks_and_schedules_of_torchtitan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own meshes on processes that are none, the stages that its split gives each rank, and their schedule."""
    version = installed("torchtitan")
    torch, fake = (
        importlib.import_module("torch"),
        importlib.import_module("torch.testing._internal.distributed.fake_pg"),
    )
    meshes = importlib.import_module("torchtitan.distributed.parallel_dims")
    pipeline = importlib.import_module("torchtitan.distributed.pipeline_parallel")
    monkeypatch.setattr(meshes, "device_type", "cpu")
    drawn = [layout for layout, _ in layouts("torchtitan", 12)]
    drawn += [
        replace(layout, schedule=name) for layout in drawn if layout.virtual == 2 for name in sorted(VEE)
        if SCHEDULES[name].refusal(layout.pp_degree, layout.batch.microbatches, 2) is None
    ]  # fmt: skip
    for layout in drawn:
        text = FORMATS["torchtitan"].write(layout)
        file: dict[str, Any] = {}
        exec(compile(text, "plan.py", "exec"), file)
        found, world, t = file["planned"](configuration(version)), layout.world_size, layout.tp_degree
        torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=world)
        try:
            dims = dimensions(version, found, world)
            dims.build_mesh()
            ranks = {name: mesh.mesh.tolist() for name, mesh in dims.get_all_one_dimensional_meshes().items()}
            replicas = layout.context * layout.dp_degree
            wanted = {
                "tp": neighbours(0, t, 1), "cp": neighbours(0, layout.context, t),
                "pp": neighbours(0, layout.pp_degree, t * replicas),
            }  # fmt: skip
            assert all(ranks.get(name, [0]) == own for name, own in wanted.items())
            if layout.expert > 1:
                parts = getattr(dims, "etp", 1)
                assert ranks["ep"] == neighbours(0, layout.expert * t // parts, parts)
        finally:
            torch.distributed.destroy_process_group()
        its, training = found.parallelism, found.training
        if layout.pp_degree == 1 or version.startswith("0.2"):
            continue
        p, count = layout.pp_degree, len(layout.stages)
        is_vee = layout.schedule in VEE
        held = [[i, count - 1 - i] if is_vee else neighbours(i, layout.virtual, p) for i in range(p)]
        for rank in range(p):
            own = pipeline._get_pp_rank_to_stage_indices_mapping(
                rank, its.pipeline_parallel_degree, its.pipeline_parallel_schedule, len(layout.stages)
            )
            assert list(own) == held[rank]
        stages = [
            types.SimpleNamespace(
                group_size=layout.pp_degree, group_rank=0, group=None, num_stages=len(layout.stages), stage_index=place,
                is_first=place == 0, is_last=place == len(layout.stages) - 1, has_backward=True, submod=None,
            )
            for place in held[0]
        ]  # fmt: skip
        made = pipeline._build_pipeline_schedule(
            parallelism=its, local_batch_size=training.local_batch_size, stages=stages, loss_fn=lambda *_: (None, None)
        )
        assert type(made).__name__ == f"Schedule{its.pipeline_parallel_schedule}"
        assert made._n_microbatches * layout.dp_degree * 2 == training.global_batch_size


def configuration(version: str) -> Any:
    """One of torchtitan's own to begin with."""
    if version.startswith("0.2"):
        return importlib.import_module("torchtitan.config").JobConfig
    return importlib.import_module("torchtitan.models.llama3.config_registry").llama3_8b


def dimensions(version: str, config: Any, world: int) -> Any:
    kind, its = importlib.import_module("torchtitan.distributed").ParallelDims, config.parallelism
    if not version.startswith("0.2"):
        return kind.from_config(its, world)
    return kind(
        dp_replicate=its.data_parallel_replicate_degree, dp_shard=its.data_parallel_shard_degree,
        cp=its.context_parallel_degree, tp=its.tensor_parallel_degree, pp=its.pipeline_parallel_degree,
        ep=its.expert_parallel_degree, etp=its.expert_tensor_parallel_degree, world_size=world,
    )  # fmt: skip


def test_splits_of_torchtitan() -> None:
    """How many blocks each part of a model has in the method `torchtitan`, and in its own program."""
    hidden = "" if installed("torchtitan").startswith("0.2") else "_"
    (its,) = functions("torchtitan", "distributed/pipeline_parallel.py", f"{hidden}generate_llm_fqn_per_model_part")
    for layers in range(2, 14):
        instance = planner.load("gpt", problem="training_strategy", layers=layers)
        for stages in range(1, layers + 4):
            split = heuristics.titan_split(instance, Degrees(Schedule.ONE_F_ONE_B, stages, 1, 1, 1, 1))
            try:
                parts = its(stages, layers)
            except ValueError:
                assert split is None
                continue
            assert split is not None
            counts = [sum(each.startswith("layers.") for each in part) for part in parts]
            assert [len(blocks) for blocks in split[1]] == counts


def test_recipes_of_torchtitan() -> None:
    """Its configuration takes all that a recipe sets, and its degrees give as many devices."""
    version = installed("torchtitan")
    for layout, text in layouts("torchtitan"):
        file: dict[str, Any] = {}
        exec(compile(text, "plan.py", "exec"), file)
        found = file["planned"](configuration(version))
        dims = dimensions(version, found, layout.world_size)
        expert, tensor = layout.expert, layout.tp_degree if layout.expert > 1 else 1
        assert (dims.pp, dims.tp, dims.cp) == (layout.pp_degree, layout.tp_degree, layout.context)
        # A device has 1/(expert * tensor) of the experts: of 0.3.0 whole ones, of 0.2.2 parts of each.
        assert (dims.ep, getattr(dims, "etp", 1)) in [(expert * tensor, 1), (expert, tensor)]
        assert dims.dp_shard * dims.dp_replicate == layout.dp_degree
        assert layout.groups == 1 or dims.dp_replicate == layout.groups
        # "DDP has not supported > 1D parallelism", models/llama3/infra/parallelize.py of 0.2.2
        assert dims.dp_replicate == 1 or dims.pp == dims.tp == 1 or dims.fsdp_enabled
        is_full = any(layer.recompute for layer in layout.layers)
        checkpoint = found.activation_checkpoint
        if version.startswith("0.2"):
            assert checkpoint.mode == ("full" if is_full else "none")
        else:
            assert type(checkpoint).__qualname__ == ("FullAC.Config" if is_full else "NoneType")
        its, batch = found.training, layout.batch
        assert its.global_batch_size % (its.local_batch_size * layout.dp_degree) == 0
        steps = its.global_batch_size // (its.local_batch_size * layout.dp_degree)
        each = steps * its.local_batch_size // found.parallelism.pipeline_parallel_microbatch_size
        assert each >= batch.microbatches and (steps == 1 or layout.pp_degree == 1)


def test_stages_of_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own class and topology, without the processes that its constructor looks for."""
    installed("deepspeed")
    module = importlib.import_module("deepspeed.pipe").PipelineModule
    topology = importlib.import_module("deepspeed.runtime.pipe.topology")
    settings = importlib.import_module("deepspeed.runtime.config")
    recomputing = 0
    for layout, text in layouts("deepspeed"):
        file: dict[str, Any] = {}
        exec(compile(text, "plan.py", "exec"), file)
        kind, layers = file["PlannedPipeline"], [object() for _ in layout.layers]
        assert issubclass(kind, module)
        axes = topology.PipeModelDataParallelTopology(layout.pp_degree, layout.tp_degree, layout.dp_degree)
        for rank in range(layout.world_size):
            made = kind.__new__(kind)
            made.__dict__ |= {"_topo": axes, "global_rank": rank, "_layer_specs": layers}
            made._partition_layers()
            stage = layout.stages[axes.get_coord(rank).pipe]
            made.__dict__["forward_funcs"] = layers[made._local_start : made._local_stop]
            assert len(made.forward_funcs) == len(stage.layers)
            flags = [made._is_checkpointable([each]) for each in made.forward_funcs]
            assert flags == [layer.recompute for layer in stage.layers]
            recomputing += sum(flags)
        config = file["CONFIG"]
        each = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
        assert config["train_batch_size"] == each * layout.dp_degree
        processes = types.SimpleNamespace(get_data_parallel_world_size=lambda layout=layout: layout.dp_degree)
        monkeypatch.setattr(settings.dist, "get_rank", int)
        its = settings.DeepSpeedConfig(config, mpu=processes)
        assert (its.world_size, its.train_batch_size) == (layout.dp_degree, layout.batch.global_samples)
        assert (its.zero_optimization_stage, its.bfloat16_config.enabled) == (layout.sharding, layout.dtype == "bf16")
        assert its.grad_accum_dtype == layout.dtype
        apart = {"model": 1, "data": layout.tp_degree, "pipe": layout.tp_degree * layout.dp_degree}
        first = {axis: axes.get_axis_comm_lists(axis)[:1] for axis in apart}
        assert all(not own or own[0] == neighbours(0, axes.get_dim(axis), apart[axis]) for axis, own in first.items())
    assert recomputing


def test_strategies_of_galvatron() -> None:
    """Its own reading of the file, with a number of processes that is ours."""
    installed("galvatron")
    to_array, strategies = functions("galvatron", "utils/config_utils.py", "str2array", "config2strategy")
    strategies.__globals__["str2array"] = to_array
    file = "core/runtime/hybrid_parallel_config.py"
    ranks, check = functions("galvatron", file, "get_pp_ranks_enc", "check_hp_config")
    for layout, text in layouts("galvatron"):
        processes = types.SimpleNamespace(get_world_size=lambda world=layout.world_size: world)
        given = {"config2strategy": strategies, "str2array": to_array, "get_pp_ranks_enc": ranks}
        given["torch"] = types.SimpleNamespace(distributed=processes)
        (read,) = functions("galvatron", file, "get_hybrid_parallel_configs_api", **given)
        rows, batch = layout.decoders(), layout.batch
        args = types.SimpleNamespace(local_rank=1, galvatron_config_path=json.loads(text), distributed_checkpoint=None)
        model = types.SimpleNamespace(layernums=lambda rows=rows: [sum(map(len, rows))])
        found = read(None, args, lambda *_, model=model: model)
        assert found["pp_division"] == [len(row) for row in rows]
        degrees = [stage.tp_degree for stage, row in zip(layout.stages, rows, strict=True) for _ in row]
        assert found["tp_sizes_enc"] == degrees
        assert found["checkpoint_flags_enc"] == [layer.recompute for row in rows for layer in row]
        assert found["default_dp_type"] == ("zero2" if layout.sharding else "ddp")
        assert (args.global_train_batch_size, args.chunks) == (batch.global_samples, batch.microbatches)
        assert (args.pipeline_type, args.vocab_tp, args.vocab_sp) == ("pipedream_flush", degrees[0], 0)
        assert not any([args.embed_sdp, *found["use_sp"], *found["dp_types_enc"]]) and all(
            found["tp_consecutive_flags"]
        )
        check.__globals__["torch"] = types.SimpleNamespace(distributed=processes)
        check(found, [len(degrees)])
    parser = argparse.ArgumentParser()
    (add,) = functions("galvatron", "core/runtime/arguments.py", "galvatron_training_args")
    add(parser)  # whose option a note names, for gradients that are shared after each micro-batch
    assert (
        parser.parse_args([]).async_grad_reduce and not parser.parse_args(["--no_async_grad_reduce"]).async_grad_reduce
    )


def options(package: str, pattern: str) -> set[str]:
    """Those that files of an installed package declare: words that begin with dashes, and fields with their names."""
    folder = Path(next(iter(importlib.util.find_spec(package).submodule_search_locations)))  # type: ignore[union-attr, arg-type]
    nodes = [node for path in folder.glob(pattern) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and str(node.value).startswith("--")}
    fields = [node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return words | {f"--{field.replace('_', '-')}" for field in fields}


@pytest.mark.parametrize(
    ("name", "file", "declared"),
    [
        ("vllm", "distributed/utils.py", "engine/arg_utils.py"),
        ("sglang", "srt/distributed/utils.py", "srt/arg_groups/fields/*.py"),
    ],
)
def test_partitions_and_options_of_servers(
    name: str, file: str, declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    known, used = options(name, declared), set()
    variable = f"{name.upper()}_PP_LAYER_PARTITION"
    for layout, text in layouts(name):
        match = re.search(rf"{variable}=(\S+)", text)
        assert match is not None
        monkeypatch.setenv(variable, match.group(1))
        given = {"os": os, "envs": types.SimpleNamespace(**{variable: match.group(1)})}
        (its,) = functions(name, file, "get_pp_indices", **given)
        lengths = [len(row) for row in layout.decoders()]
        found = [its(sum(lengths), rank, layout.pp_degree) for rank in range(layout.pp_degree)]
        assert found == [(sum(lengths[:rank]), sum(lengths[: rank + 1])) for rank in range(layout.pp_degree)]
        used |= set(re.findall(r"--[a-z][a-z-]+", text))
    assert len(used) > 5 and used <= known


def test_maps_of_accelerate(recwarn: pytest.WarningsRecorder) -> None:
    installed("accelerate")
    torch = importlib.import_module("torch")
    check = importlib.import_module("accelerate.utils.modeling").check_device_map
    for layout, text in layouts("accelerate"):
        model = torch.nn.Module()
        for name in (name for layer in layout.layers for name in layer.modules):
            place = model
            *parents, last = name.split(".")
            for each in parents:
                if each not in dict(place.named_children()):
                    place.add_module(each, torch.nn.Module())
                place = place.get_submodule(each)
            place.add_module(last, torch.nn.Linear(2, 2))
        check(model, json.loads(text))
        model.add_module("forgotten", torch.nn.Linear(2, 2))
        with pytest.raises(ValueError, match=r"forgotten\.weight"):
            check(model, json.loads(text))
    assert not [each for each in recwarn if "do not match" in str(each.message)]
