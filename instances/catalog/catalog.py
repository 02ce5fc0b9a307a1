"""Named instances: generators with their parameters, and where they come from.

`CATALOG` is the one list. What ``Entry.make`` returns goes to ``Family.read`` of the entry's family, together with the
caller's overrides; a parameter of an entry wins over an override of the same name (``layers``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from instances import memory_schemes
from instances.catalog.entry import MADE, SEED, Entry, Published
from instances.catalog.first_looks import ENTRIES as _FIRST_LOOKS
from instances.catalog.mappings import ENTRIES as _MAPPING_ENTRIES
from instances.catalog.operators import ENTRIES as _OPERATOR_ENTRIES
from instances.errors import InstanceError
from instances.generators import amp_experiments, branching, transformer
from instances.generators.decoder import DECODERS, decoder
from instances.generators.served import served
from instances.generators.transformer import Architecture
from instances.parameters import Setting, choice, count_between, flag, parse_amount, parse_count
from instances.problems import layer_assignment, mesh_tiling, microbatch_schedule
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from instances.problems.stage_edits import MAX_LAYERS
from instances.problems.stage_graph import StageGraph
from instances.problems.stage_partitioning import StageInstance
from instances.problems.training_strategy import StrategyInstance

_layer_count, _mesh_side, _dimension = (count_between(1, most) for most in (MAX_LAYERS, 256, 2**18))


def _parameters(model: Architecture) -> tuple[Setting, ...]:
    return (
        Setting("layers", _layer_count, "transformer layers", str(model.num_layers), metavar="L"),
        Setting("hidden-size", _dimension, "width of the residual stream", str(model.hidden_size), metavar="H"),
        Setting("heads", _dimension, "attention heads", str(model.num_heads), metavar="HEADS"),
        Setting("sequence-length", _dimension, "tokens of a sequence", str(model.sequence_length), metavar="S"),
        Setting("vocabulary", parse_count, "size of the vocabulary", str(model.vocabulary_size), metavar="V"),
        Setting("microbatch-size", _dimension, "sequences of a micro-batch", str(model.microbatch_size), metavar="B"),
        Setting("parameter-bytes", parse_amount, "bytes of a weight", "2", metavar="BYTES"),
        Setting("gradient-bytes", parse_amount, "bytes of a gradient", "2", metavar="BYTES"),
        Setting("optimizer-bytes", parse_amount, "bytes of optimiser state per parameter", "12", metavar="BYTES"),
        choice(
            "memory-scheme",
            ("2bw", "pipedream"),
            "2bw: two versions of the weights; pipedream: one for each micro-batch in flight",
            "2bw",
        ),
        flag("forward-only", "inference: no backward pass, nothing to synchronise"),
        flag(
            "published-conventions",
            "count memory as Piper's released profile: one byte per parameter, no gradients, no optimiser state",
        ),
    )


_FIELDS = {
    "layers": "num_layers",
    "hidden_size": "hidden_size",
    "heads": "num_heads",
    "sequence_length": "sequence_length",
    "vocabulary": "vocabulary_size",
    "microbatch_size": "microbatch_size",
}
_FLAGS = {"forward_only": "forward_only", "sequence_parallel": "sequences", "keep_probabilities": "keeps_probabilities"}
_BOOKS = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")


#: What a GPT may choose besides.
_CHOICES = (
    flag("sequence-parallel", "tensor-parallel devices may share sequences"),
    flag(
        "keep-probabilities", "no flash attention: probabilities are kept, and the attention's core may be recomputed"
    ),
)


def _make(
    name: str, generate: Callable[..., StageInstance], default: Architecture, **given: str | int | float | bool
) -> StageInstance:
    """Generate a transformer; what is given is recorded in the instance's options."""
    sizes: dict[str, Any] = {_FIELDS[key]: value for key, value in given.items() if key in _FIELDS}
    bytes_each: dict[str, Any] = {key: value for key, value in given.items() if key in _BOOKS}
    books = memory_schemes.PUBLISHED if given.get("published_conventions") else memory_schemes.MIXED_PRECISION
    try:
        model = replace(default, **sizes)
    except ValueError as error:
        raise InstanceError(f"{name}: {error}") from None
    books = replace(books, stashed=given.get("memory_scheme") == "pipedream", **bytes_each)
    flags = {_FLAGS[key]: bool(value) for key, value in given.items() if key in _FLAGS}
    instance = generate(name, model, books=books, **flags)
    return replace(instance, options={key.replace("_", "-"): value for key, value in given.items()})


def _transformer(
    name: str,
    generate: Callable[..., StageInstance],
    model: Architecture,
    help: str,
    source: str,
    choices: tuple[Setting, ...] = (),
) -> Entry:
    def make(**given: str | int | float | bool) -> StageInstance:
        return _make(name, generate, model, **given)

    return Entry(name, "stage_partitioning", make, help, source, (*_parameters(model), *choices))


_BERT32 = Architecture(32, 3840, 32, 2048, 50248, 2)
_GPT3 = "Brown et al., Language Models are Few-Shot Learners, Table 2.1; vocabulary padded to a multiple of 128"

_ENTRIES = (
    _transformer(
        "bert32", transformer.bert, _BERT32,
        "32-layer BERT with 5.9e9 parameters on A100s; fp16 weights and gradients, Adam in fp32",
        "Piper, section 5; sizes inferred from its released profile, times analytic (generators/transformer.py)",
    ),
    _transformer(
        "bert", transformer.bert, Architecture(24, 1024, 16, 512, 30592, 8), "BERT of any size; by default BERT-large",
        "Devlin et al., BERT, section 3; vocabulary padded to a multiple of 64",
    ),
    _transformer(
        "gpt", transformer.gpt, Architecture(32, 4096, 32, 2048, 50304, 1), "GPT of any size; by default 6.7B",
        _GPT3, _CHOICES,
    ),
    _transformer(
        "gpt3-175b", transformer.gpt, Architecture(96, 12288, 96, 2048, 50304, 1), "the largest GPT-3", _GPT3, _CHOICES
    ),
)  # fmt: skip


def _decoder(name: str) -> Entry:
    of, devices, microbatches = DECODERS[name]

    def make(**given: Any) -> StrategyInstance:
        fields = {"layers": "num_layers", "sequence_length": "sequence_length", "microbatch_size": "microbatch_size"}
        sizes = replace(of.sizes, **{fields[key]: value for key, value in given.items() if key in fields})
        made = decoder(name, replace(of, sizes=sizes), devices, microbatches, given.get("dtype", "bf16"))
        options = {
            **made.flat.options,
            "microbatch": sizes.microbatch_size,
            "seq-len": sizes.sequence_length,
            "dtype": "bf16",
            "hardware": "h100",
            **{key.replace("_", "-"): value for key, value in given.items()},
        }
        return replace(made, flat=replace(made.flat, options=options))

    wanted = ("layers", "sequence-length", "microbatch-size")
    settings = tuple(each for each in _parameters(of.sizes) if each.name in wanted)
    settings += (choice("dtype", ("bf16", "fp8"), "fp8: of products with weights of layers"),)
    says = f"a decoder of {of.sizes.num_layers} layers on {devices} H100s, bf16, machines of eight"
    return Entry(
        name, "training_strategy", make, says, "sizes as published, times analytic (generators/decoder.py)", settings
    )


_SERVED_ENTRIES = tuple(
    Entry(
        name,
        "serving_strategy",
        partial(served, name, model, devices),
        f"{model} on {devices} H100s of an inference server, bf16, machines of eight",
        "sizes as published, times analytic (generators/served.py)",
    )
    for name, model, devices in (("llama3-8b-serving", "llama3-8b", 8), ("llama3-70b-serving", "llama3-70b", 16))
)


def _layers(**given: Any) -> LayerAssignmentInstance:
    """A random chain of layers."""
    names = {"layers": "num_layers", "stages": "num_stages", "microbatches": "num_microbatches"}
    return layer_assignment.generate(**{names.get(name, name): value for name, value in given.items()})


def _amp(name: str, times: str, profiles: amp_experiments.Profiles) -> AmpInstance:
    """An experiment that records where its layer times come from."""
    return replace(amp_experiments.experiment(name, profiles), options={"layer-times": times})


def _amp_entry(name: str) -> Entry:
    def read_published(content: Any, where: str) -> AmpInstance:
        from instances.readers.amp_published import read_profiles

        return _amp(name, "published", read_profiles(content, where, name))

    return Entry(
        f"amp-{name.replace('_', '-')}",
        "amp_strategy",
        lambda: _amp(name, "analytic", amp_experiments.analytic_profiles()),
        f"AMP's experiment {name}, four nodes of four GPUs",
        "AMP, supplement, section 6.5; layer times as published if they are at hand, else analytic "
        "(instances/generators/amp_experiments.py)",
        published=Published(amp_experiments.PROFILES_FILE, read_published),
    )


_AMP_ENTRIES = (
    Entry(
        "layers",
        "layer_assignment",
        _layers,
        "a random chain of layers, with cuts that cost as much as some layers",
        MADE,
        (
            Setting("layers", _layer_count, "number of layers", "30", metavar="L"),
            Setting("stages", parse_count, "number of pipeline stages", "8", metavar="S"),
            Setting("microbatches", parse_count, "micro-batches of a training step", "16", metavar="N"),
            flag("all-reduce", "add a data-parallel all-reduce"),
            SEED,
        ),
    ),
    Entry(
        "mesh",
        "mesh_tiling",
        mesh_tiling.generate,
        "a mesh of heterogeneous nodes to be covered by tiles",
        MADE,
        (
            Setting("rows", _mesh_side, "devices of a node", "4", metavar="M"),
            Setting("columns", _mesh_side, "nodes", "4", metavar="N"),
            Setting("tp-degree", parse_count, "tensor-parallel degree", "2", metavar="T"),
            Setting("dp-degree", parse_count, "data-parallel degree", "1", metavar="D"),
            SEED,
        ),
    ),
    *(_amp_entry(name) for name in amp_experiments.EXPERIMENTS),
)

_SCHEDULE_ENTRIES = (
    Entry(
        "schedule",
        "microbatch_schedule",
        microbatch_schedule.generate,
        "a random graph of unequal stages with little room for micro-batches in flight",
        MADE,
        (
            Setting("stages", _mesh_side, "number of pipeline stages", "6", metavar="S"),
            Setting("minibatch", _dimension, "samples of an iteration (mini-batch)", "16", metavar="B"),
            Setting(
                "tight", parse_amount, "memory as a fraction of the depth below a stage; 0: no limit", "1", metavar="T"
            ),
            flag("mixed", "micro-batches of 1, 2 or 4 samples"),
            flag("delays", "add delays of the links"),
            SEED,
        ),
    ),
    Entry(
        "schedule-chain",
        "microbatch_schedule",
        microbatch_schedule.chain,
        "a chain of equal stages",
        MADE,
        (
            Setting("stages", _mesh_side, "number of pipeline stages", "4", metavar="S"),
            Setting("minibatch", _dimension, "samples of an iteration (mini-batch)", "8", metavar="B"),
        ),
    ),
    Entry(
        "schedule-figure-5",
        "microbatch_schedule",
        microbatch_schedule.figure_5,
        "three stages with micro-batches of 1, 2 and 4 samples",
        "GraphPipe, Fig. 5",
        (flag("uniform", "micro-batches of 4 samples throughout"),),
    ),
)


def _record_options(generate: Callable[..., StageGraph]) -> Callable[..., StageGraph]:
    """A generator that records what it was given."""

    def make(**given: Any) -> StageGraph:
        options = {key.replace("_", "-"): value for key, value in given.items()}
        return replace(generate(**given), options=options)

    return make


_GRAPHPIPE = "GraphPipe, Appendix A.2 (shapes and mini-batches; times analytic, instances/generators/branching.py)"


_SIZES = {
    "dense": "number of branches of linear layers",
    "sparse": "number of branches of embeddings",
    "layers": "layers of each branch",
    "top-layers": "layers behind the branches",
}


def _branching_entry(
    name: str, generate: Callable[..., StageGraph], help: str, per_device: int, sizes: Mapping[str, int], source: str
) -> Entry:
    """An entry whose sizes default to these."""
    defaults = {size.replace("-", "_"): count for size, count in sizes.items()}
    own = tuple(
        Setting(size, _mesh_side, _SIZES.get(size, f"number of {size.replace('-', ' ')}"), str(count), metavar="N")
        for size, count in sizes.items()
    )
    shared = (
        Setting("devices", _mesh_side, "number of devices (V100)", "8", metavar="D"),
        Setting(
            "minibatch",
            parse_count,
            "samples of an iteration (mini-batch)",
            f"{per_device} for each device",
            metavar="B",
        ),
    )
    return Entry(name, "stage_graph", _record_options(partial(generate, **defaults)), help, source, own + shared)


_SECTION = "GraphPipe, section 7.2; sizes as in Appendix A.2"
_BRANCHING_ENTRIES = tuple(
    _branching_entry(*row)
    for row in (
        ("mmt", branching.mmt, "multi-modal transformer; mmt-2 has the two branches of section 7.2", 16,
         {"branches": 4, "layers": 8}, _GRAPHPIPE),
        ("dlrm", branching.dlrm,
         "DLRM: branches of linear layers and of embeddings; dlrm-8 has the eight branches of section 7.2", 64,
         {"dense": 7, "sparse": 7, "layers": 4, "top-layers": 4}, _GRAPHPIPE),
        ("candle-uno", branching.candle_uno, "CANDLE-Uno; candle-uno-8 has the eight branches of section 7.2", 1024,
         {"branches": 7, "layers": 4}, _GRAPHPIPE),
        ("mmt-2", branching.mmt, "multi-modal transformer, two branches", 16, {"branches": 2, "layers": 8}, _SECTION),
        ("dlrm-8", branching.dlrm, "DLRM, eight branches", 64,
         {"dense": 4, "sparse": 4, "layers": 4, "top-layers": 4}, _SECTION),
        ("candle-uno-8", branching.candle_uno, "CANDLE-Uno, eight branches", 1024, {"branches": 8, "layers": 4},
         _SECTION),
        # the paper does not say how large the layers or the mini-batch of its Fig. 10 are
        ("graphpipe-case-study", branching.mmt, "two branches of four transformer layers", 16,
         {"branches": 2, "layers": 4}, "GraphPipe, section 7.5 and Fig. 10; sizes as in mmt"),
        ("sequential-transformer", branching.sequential_transformer, "a chain of transformer layers", 16,
         {"layers": 32}, "GraphPipe, Appendix A.3"),
    )
)  # fmt: skip

CATALOG: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        *_ENTRIES,
        *_FIRST_LOOKS,
        *_BRANCHING_ENTRIES,
        *map(_decoder, DECODERS),
        *_SERVED_ENTRIES,
        *_AMP_ENTRIES,
        *_SCHEDULE_ENTRIES,
        *_MAPPING_ENTRIES,
        *_OPERATOR_ENTRIES,
    )
}
