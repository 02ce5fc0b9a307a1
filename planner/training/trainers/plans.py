"""From a plan of a problem to a layout, and why a format cannot have it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from operator import mul
from typing import Any

from formulations.hierarchical_partitioning.definition.problem import flatten
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.serving_strategy.definition.plan import ServingPlan
from formulations.serving_strategy.definition.problem import cache_bytes, cached_tokens
from formulations.simulation.orders import SCHEDULES
from formulations.stage_partitioning.definition.plan import Stage as StageOfPlan
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.trainers import (
    PATH,
    Kind,
    Piece,
    is_recomputed,
    obstacles,
    pieces,
    recomputed_part,
    with_sequences,
)
from formulations.training_strategy.definition.plan import as_stages
from formulations.training_strategy.definition.quantities import has_whole_experts, offloads, shares
from formulations.training_strategy.definition.sharing import Shared, shared_in
from instances.generators.transformer import RECOMPUTE, VANILLA
from instances.problems.operator_partitioning import OperatorInstance, TrainingMemory
from instances.problems.serving_strategy import ServingInstance
from instances.problems.stage_partitioning import Edge, StageInstance, Tmpc
from instances.problems.stage_partitioning import Layer as LayerOfPlan
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.training.trainers import pytorch, torchtitan
from planner.training.trainers.formats import Format
from planner.training.trainers.layout import (
    DECODER,
    EMBEDDING,
    HEAD,
    MTP,
    VEE,
    Layer,
    Layout,
    Serving,
    Stage,
    between_ends,
)

#: Problems whose stages are those of a layout.
PROBLEMS = (
    "stage_partitioning",
    "flushed_partitioning",
    "hierarchical_partitioning",
    "training_strategy",
    "layer_assignment",
    "amp_strategy",
    "operator_partitioning",
    "pipeline_placement",
    "serving_strategy",
)
_NOTHING = Shared()
#: Devices of the replicas of each stage in turn; empty: in order.
Devices = tuple[int, ...]
#: What replicas share, by the level of sharding.
_SHARED = ("nothing", "optimizer states", "gradients", "weights")
#: What trainers share instead of levels below one, or by which of their options.
_MORE_OR_LESS = {
    "galvatron": (
        3,
        "galvatron holds gradients whole until all passes have ended; with --no_async_grad_reduce each one shards them",
    ),
    "torch": (
        2,
        "the script has no optimizer: to share its states over the replicas (ZeroRedundancyOptimizer) is yours",
    ),
}


@dataclass(frozen=True)
class TranslatedPlan:
    """A layout (``None`` where the format cannot have the plan), why not, and what was assumed, in words."""

    layout: Layout | None
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def layout_of(instance: Any, plan: Any, wanted: Format) -> TranslatedPlan:
    """The layout of a plan that keeps the rules of its instance.

    `UsageError` if the instance is of a problem whose plans have no such stages.
    """
    problem = family_of(instance).name
    if problem not in PROBLEMS:
        raise UsageError.at("INSTANCE", f"one of {problem}", f"an instance of {', '.join(PROBLEMS)}")
    if problem == "serving_strategy":
        return _of_server(instance, plan, wanted)
    if problem == "layer_assignment":
        notes = ["one device for a stage: the plan has no degrees"]
        layout = replace(_of_lengths(plan.lengths, instance), num_microbatches=instance.num_microbatches)
        return _check(layout, wanted, [*notes, *_left_out(layout, wanted)])
    if problem == "amp_strategy":
        degrees = plan.degrees
        layout = _of_lengths(plan.lengths, instance, degrees.dp_degree, degrees.tp_degree)
        count = instance.global_batch // degrees.microbatch
        layout = replace(layout, num_microbatches=count, samples=degrees.microbatch)
        return _check(layout, wanted, [*_left_out(layout, wanted)])
    if problem == "stage_partitioning":
        return _of_stages(instance, plan, wanted)
    if problem == "training_strategy":
        by = shared_in(instance, plan)
        if not shares(wanted.trainer, instance, plan):
            name, is_whole = wanted.name, by.level in wanted.trainer.sharding
            why = f"beside other parallelism {name} has them share weights" if is_whole else f"{name} does not"
            return TranslatedPlan(None, (f"replicas share {_SHARED[by.level]}; {why}",))
        if not has_whole_experts(wanted.trainer, instance, plan):
            why = f"{plan.ep_degree * plan.tp_degree} devices, which do not divide their number"
            return TranslatedPlan(None, (f"{wanted.name} would have whole experts on each of {why}",))
        if instance.host_bandwidth is not None and not offloads(wanted.trainer, instance, plan):
            why = "has with replicas that share them" if wanted.trainer.offloads else "has not"
            return TranslatedPlan(None, (f"optimizer states are on the host, which {wanted.name} {why}",))
        if plan.dp_outermost and not wanted.trainer.orders:
            return TranslatedPlan(None, (f"replicas are outermost on the devices; {wanted.name} has stages so",))
        overlaps = instance.overlaps_gradients and plan.replicas > 1
        made = _of_stages(instance.flat, as_stages(plan), wanted, str(plan.schedule), plan.virtual_stages, by)
        if made.layout is not None and plan.dp_outermost:
            own, apart = (plan.pp_degree, plan.dp_degree, plan.tp_degree), (*plan.apart, 1)
            devices = tuple(sum(map(mul, place, apart)) for place in product(*map(range, own)))
            is_torch = wanted.name == "torch"  # it names devices instead
            placed = replace(made.layout, devices=devices) if is_torch else replace(made.layout, outermost=True)
            made = replace(made, layout=placed)
        if made.layout is not None and instance.host_bandwidth is not None:
            made = replace(made, layout=replace(made.layout, offloaded=instance.offloaded))
        if made.layout is None or not overlaps:
            return made
        layout = replace(made.layout, overlaps=True)
        return replace(made, layout=layout, notes=(*made.notes, *_not_hidden(layout, wanted)))
    if problem == "flushed_partitioning":
        return _of_stages(instance.flat, plan, wanted, str(instance.schedule))
    if problem == "operator_partitioning":
        return _of_operators(instance, plan, wanted)
    if problem == "pipeline_placement":
        devices = tuple(device for stage in plan.mapping.devices for device in stage)
        return _of_operators(instance.operators, plan.partition, wanted, instance.microbatches, devices)
    return _of_stages(instance.flat, flatten(plan), wanted)


def _of_server(instance: ServingInstance, plan: ServingPlan, wanted: Format) -> TranslatedPlan:
    """The layout of a plan of an inference server, which those that train do not take."""
    if wanted.trainer.schedules or not wanted.trainer.counts:
        return TranslatedPlan(
            None, (f"the plan is one of an inference server (vllm, sglang), which {wanted.name} is not",)
        )
    rows = between_ends([[Layer(DECODER)] * length for length in plan.lengths])
    held = math.ceil(max(cache_bytes(instance, plan, *own) for own in plan.stages))
    length = instance.prompt_tokens + instance.generated_tokens
    # SGLang's max_req_len and max_req_input_len: at most context - 2 tokens, and prompts of at most context - 7.
    context = max(length + 2, instance.prompt_tokens + 7)
    batched = instance.prompt_tokens + plan.sequences
    tokens = cached_tokens(instance, plan.sequences)
    own = Serving(plan.sequences, length, context, batched, held, tokens)
    used = plan.replicas * plan.tp_degree * plan.pp_degree
    notes = ["MODEL is the name or the folder of the model's weights"]
    if used > instance.devices_per_machine:
        notes.append(f"{used} devices are more than a machine has: {wanted.name} is started on each machine")
    if plan.pp_degree > 1 and wanted.name == "vllm":
        notes.append(f"vllm does not cut sequences into {plan.pp_degree} batches of {plan.batch}, as the plan does")
    stages = tuple(Stage(row, plan.replicas, plan.tp_degree) for row in rows)
    return TranslatedPlan(Layout(stages, serving=own), (), tuple(notes))


def _of_stages(
    flat: StageInstance,
    plan: StagePlan,
    wanted: Format,
    schedule: str | None = None,
    virtual: int = 1,
    by: Shared = _NOTHING,
) -> TranslatedPlan:
    refused = tuple(obstacles(flat, plan, wanted.trainer))
    if not wanted.trainer.context and by.context * by.expert > 1:
        refused = (f"devices share tokens or experts; the layout of {wanted.name} does not say so", *refused)
    if not wanted.trainer.groups and by.groups > 1:
        refused = (f"replicas share in {by.groups} groups; the layout of {wanted.name} does not say so", *refused)
    known = wanted.trainer.schedules
    if virtual > 1 and schedule not in known:
        shape = " in a V" if schedule in VEE else ""
        p = len(plan.stages) // virtual
        own = f"chunks i and i + {p} on device i" if "interleaved" in known else "one on each"
        refused = (f"devices have {virtual} chunks of layers{shape}; {wanted.name} has {own}", *refused)
    if refused:
        return TranslatedPlan(None, refused)
    names = {name for stage in plan.stages for name in stage.tmpcs.values()}
    has_sequences = any(
        x.shares_sequence for layer in flat.layers for own in layer.tmpcs.values() for x in own if x.id in names
    )
    flat = with_sequences(flat, has_sequences)
    found = pieces(flat, wanted.trainer)
    stage_of = {flat.index[node]: place for place, stage in enumerate(plan.stages) for node in stage.nodes}
    rows: list[list[Layer]] = [[] for _ in plan.stages]
    notes = []
    called, said = _rename_modules(list(_modules(found)), wanted)
    notes += said if found[0].modules else []
    for piece, modules in zip(found, called, strict=True):
        place = stage_of[piece.nodes[0]]
        flag = bool(is_recomputed(flat, plan.stages[place], piece, wanted.trainer))
        rows[place].append(Layer(str(piece.kind), modules, flag))
    if not any(layer.role for layer in flat.layers):
        count = sum(piece.kind is Kind.DECODER for piece in found)
        notes.append(f"the instance has no roles: {count} of {len(found)} pieces count as decoder layers")
    if not wanted.trainer.counts and not found[0].modules:
        notes.append("the instance names no modules: layers are called layers.0, layers.1, ...")
    place_of = {v: place for place, piece in enumerate(found) for v in piece.nodes}
    far = [(u, v) for u, v in flat.edge_indices if place_of[v] > place_of[u] + 1]
    if wanted.name == "torchtitan":  # inside a stage the model itself decides
        far = [(u, v) for u, v in far if stage_of[u] != stage_of[v]]
    if far and wanted.name in _HANDED_ON:
        u, v = (flat.layers[end].id for end in far[0])
        rule = "layers between have to hand on what is used further on"
        notes.append(f"{_HANDED_ON[wanted.name]}; {rule}, as from {u} to {v}")
    degrees = zip(rows, plan.stages, strict=True)
    stages = tuple(Stage(tuple(row), stage.dp_degree, stage.tp_degree) for row, stage in degrees)
    samples, tokens = (_count(flat.options, name) for name in ("microbatch", "seq-len"))
    shared = (
        by.level,
        has_sequences,
        next(filter(None, map(recomputed_part, names)), ""),
        by.context,
        by.expert,
        by.groups,
    )
    layout = Layout(stages, virtual, flat.num_microbatches, schedule, samples, tokens, *shared)
    layout = replace(layout, dtype=None if "dtype" not in flat.options else str(flat.options["dtype"]))
    return _check(layout, wanted, [*notes, *_left_out(layout, wanted)])


#: What a layer gets in trainers that know no graph of layers.
_HANDED_ON = {
    "deepspeed": "PipelineModule gives a layer what the one before it returns",
    "torchtitan": "a stage of torchtitan gets what the last module of the one before it returns",
}


def _of_operators(
    instance: OperatorInstance, plan: OperatorPlan, wanted: Format, each: int | None = None, devices: Devices = ()
) -> TranslatedPlan:
    """Operators as layers of one configuration, named by their modules; a stage that recomputes keeps its inputs alone.

    ``each``: micro-batches of a replica, where a placement says so. ``devices``: of the replicas of each stage in turn.
    """
    name, training, in_order = wanted.name, instance.training, tuple(range(len(devices)))
    again, is_torch = training is not None and training.recompute, wanted.name == "torch"
    refused = []
    if instance.origin.get("granularity") == "op":
        refused.append("operators are single operations (granularity op), and files name modules")
    if wanted.trainer.counts:
        refused.append(f"operators have no roles, so which of them are the layers that {name} counts is not known")
    if again and wanted.trainer.schedules and not is_torch:
        refused.append(f"a stage keeps its inputs and computes the rest again; the file of {name} says so of layers")
    if devices != in_order and not is_torch:
        place = next(place for place in in_order if devices[place] != place)
        refused.append(f"device {devices[place]} has what {name} gives to device {place}: it takes stages in order")
    if refused:
        return TranslatedPlan(None, tuple(refused))
    count = (each or (training or TrainingMemory()).microbatches) * max(plan.replicas)
    if each is None and instance.step_microbatches is not None:
        count = instance.step_microbatches
    flat, stages = _as_layers(instance, plan, count, RECOMPUTE if again else VANILLA, is_torch)
    made = _of_stages(flat, stages, wanted, None if training is None else training.schedule)
    if made.layout is None:
        return made
    return replace(made, layout=replace(made.layout, whole=again, devices=() if devices == in_order else devices))


def _as_layers(
    instance: OperatorInstance, plan: OperatorPlan, count: int, tmpc: str, is_chain: bool
) -> tuple[StageInstance, StagePlan]:
    """Operators as layers with one TMPC of this name, and the stages of a plan of them.

    ``is_chain``: their edges are those of one order in which each stage follows the one before.
    """
    ids, names = [each.id for each in instance.operators], [each.name for each in instance.operators]
    has_paths = all(PATH.fullmatch(part.strip()) for name in names for part in name.split(","))
    order = [each for stage in plan.stages for each in stage]
    edges = pairwise(order) if is_chain else instance.edges
    layers = tuple(
        LayerOfPlan(
            each.id,
            {1: (Tmpc(tmpc, each.compute_s, each.parameter_bytes, each.activation_bytes, 0.0),)},
            str(each.id),
            each.name if has_paths else "",
        )
        for each in instance.operators
    )
    flat = StageInstance(
        name=instance.name,
        layers=layers,
        edges=tuple(Edge(ids[u], ids[v], 0.0) for u, v in edges),
        num_devices=sum(plan.replicas),
        memory_bytes=0.0,
        bandwidth=instance.bandwidth_bytes_per_s,
        num_microbatches=count,
        options=instance.origin,
    )
    nodes = [tuple(ids[each] for each in stage) for stage in plan.stages]
    stages = (
        StageOfPlan(own, replicas, 1, dict.fromkeys(own, tmpc))
        for own, replicas in zip(nodes, plan.replicas, strict=True)
    )
    return flat, StagePlan(tuple(stages))


def _count(options: Mapping[str, Any], name: str) -> int | None:
    """A count that `planner import` recorded; ``None`` if the instance was made otherwise."""
    value = options.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _left_out(layout: Layout, wanted: Format) -> Iterator[str]:
    """What a format says otherwise than the plan of how a batch is run, or not at all, in words."""
    name, known, N, batch = wanted.name, wanted.trainer.schedules, layout.num_microbatches, layout.batch
    if not known:
        order = "" if layout.schedule is None else f" and their order, {layout.schedule},"
        yield f"{name} trains nothing: the {N} micro-batches of a batch{order} are left out"
        return
    if layout.schedule is not None and layout.schedule not in known:
        yield f"{name} does not run {layout.schedule}, which the plan's time is of, but {known[0]}"
    if layout.schedule in known and SCHEDULES[layout.schedule].is_split:
        yield f"{name} compiles no stage under {layout.schedule}: torch refuses to where backward passes are split"
        if any(layer.recompute for layer in layout.layers):
            yield "torch recomputes a layer in B, and again in W for each module with weights; the plan counts one"
    unknown = {"samples of a micro-batch": layout.samples, "tokens of a sample": layout.tokens}
    missing = " and ".join(what for what, count in unknown.items() if count is None)
    if missing:
        rest = f"a micro-batch counts as {batch.samples}" if layout.samples is None else "no sequence length is written"
        yield f"the instance does not say the {missing}: {rest}"
    if layout.dtype == "fp8":
        how = {"megatron": "with --fp8-format hybrid", "torchtitan": "with its Float8LinearConverter"}.get(name)
        yield (
            f"{name} multiplies in fp8 {how}, which is not written" if how else f"{name} multiplies in bf16, not in fp8"
        )
    if name == "deepspeed" and layout.dtype is None:
        yield "the instance does not say the data type of the weights: CONFIG has none, and DeepSpeed trains in fp32"
    if N is not None and batch.replicas * batch.microbatches != N:
        yield f"{N} micro-batches are no multiple of {batch.replicas} replicas: each has {batch.microbatches}"
    own = pytorch.microbatches(layout) if name in ("torch", "torchtitan") else batch.microbatches
    if own != batch.microbatches:
        rule = f"{layout.schedule or known[0]} of torch does not run {batch.microbatches} on {layout.pp_degree} ranks"
        yield f"each replica has {own} micro-batches in the script: {rule}"
    most, words = _MORE_OR_LESS.get(name, (0, ""))
    if 0 < layout.sharding < most:
        yield words
    elif name == "torchtitan" and not layout.sharding and batch.replicas > 1 < layout.pp_degree * layout.tp_degree:
        more = "; it holds shares of weights and gradients more, in a pipeline" if layout.pp_degree > 1 else ""
        whole = f"over the {batch.replicas} replicas (FSDP), which the plan's memory holds whole"
        yield f"torchtitan shards states {whole}{more}"
    if name == "torchtitan" and layout.tp_degree > 1 < layout.expert:
        e, t = layout.expert, layout.tp_degree
        yield f"torchtitan 0.3.0 has experts whole on {e * t} devices, which the plan has on {e}, split over {t}"
    if name == "torchtitan" and layout.tp_degree > 1 and not layout.sequences:
        yield "torchtitan shares sequences among tensor-parallel devices, which the plan's memory holds whole"


def _not_hidden(layout: Layout, wanted: Format) -> Iterator[str]:
    """Where gradients are summed behind the passes though the plan has them beside."""
    name, pp = wanted.name, layout.pp_degree
    waits = {"torch": True, "torchtitan": pp > 1, "deepspeed": True, "galvatron": pp > 1}
    if waits.get(name, False):
        yield f"{name} sums gradients behind all passes here, which the plan's time has beside them"


def _modules(found: Iterable[Piece]) -> Iterator[tuple[str, ...]]:
    """The modules of each piece, of which a name may have several; without names those of a torchtitan model."""
    found = list(found)
    if found[0].modules:
        for piece in found:
            yield tuple(path.strip() for name in piece.modules for path in name.split(","))
        return
    names = {Kind.EMBEDDING: "tok_embeddings", Kind.HEAD: "lm_head", Kind.DECODER: "layers", Kind.MTP: "mtp"}
    counts = {kind: sum(piece.kind is kind for piece in found) for kind in Kind}
    seen = dict.fromkeys(Kind, 0)
    for piece in found:
        name, kind = names.get(piece.kind, "others"), piece.kind
        alone = counts[kind] == 1 and kind in (Kind.EMBEDDING, Kind.HEAD)
        yield (name if alone else f"{name}.{seen[kind]}",)
        seen[kind] += 1


def _rename_modules(modules: list[tuple[str, ...]], wanted: Format) -> tuple[list[tuple[str, ...]], list[str]]:
    """The modules of each piece as a trainer with a model of its own calls them, and what was assumed."""
    if wanted.name != "torchtitan":
        return modules, []
    own = torchtitan.own_names(each for part in modules for each in part)
    if own is None:
        return modules, ["modules are called as in the instance: the model of the configuration must have them so"]
    renamed = [tuple(own[each] for each in part) for part in modules]
    said = "modules of transformers are called as torchtitan calls them: tok_embeddings, layers.0, ..., norm, lm_head"
    return renamed, [] if renamed == modules else [said]


def _of_lengths(lengths: Sequence[int], instance: Any, dp_degree: int = 1, tp_degree: int = 1) -> Layout:
    """The layout of stages with so many layers, the first and last of which are the ends."""
    count = sum(lengths)
    tail = count - instance.tail_layers
    roles = [
        EMBEDDING if place < instance.head_layers else HEAD if place >= tail else DECODER for place in range(count)
    ]
    layers = iter([Layer(role, (f"layers.{place}",)) for place, role in enumerate(roles)])
    rows = [tuple(next(layers) for _ in range(length)) for length in lengths]
    return Layout(tuple(Stage(row, dp_degree, tp_degree) for row in rows))


def _check(layout: Layout, wanted: Format, notes: list[str]) -> TranslatedPlan:
    """The layout, unless something stands where the format cannot have it."""
    refused = tuple(_find_misplaced(layout, wanted))
    return TranslatedPlan(None if refused else layout, refused, tuple(notes))


def _find_misplaced(layout: Layout, wanted: Format) -> Iterator[str]:
    name = wanted.name
    if wanted.trainer.counts:
        for role in (EMBEDDING, HEAD):
            places = [place for place, stage in enumerate(layout.stages) for x in stage.layers if x.role == role]
            if len(set(places)) > 1:
                yield f"the {role} is in stages {places[0]} and {places[-1]}; {name} has it whole in one"
        mtp = {place for place, stage in enumerate(layout.stages) for x in stage.layers if x.role == MTP}
        if mtp and name != "megatron":
            yield f"{name} has no layers of multi-token prediction"
        if len(mtp) > 1:
            yield f"layers of multi-token prediction are in {len(mtp)} stages; {name} has them in one"
        empty = [place for place, row in enumerate(layout.decoders()) if not row]
        if wanted.trainer.fills and empty:
            yield f"stage {empty[0]} has no decoder layer; galvatron has one in each"
        if name == "galvatron" and layout.stages[0].tp_degree != layout.stages[-1].tp_degree:
            yield "the embedding and the head have different tensor-parallel degrees; galvatron has one, vtp"
        return
    home: dict[str, int] = {}
    for place, stage in enumerate(layout.stages):
        for module in (module for layer in stage.layers for module in layer.modules):
            if home.setdefault(module, place) != place:
                yield f"module {module} is in stages {home[module]} and {place}; {name} has it in one"
