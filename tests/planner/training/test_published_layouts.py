"""The layouts of Megatron-LM's weak scaling: what the page says of our prediction is what the definition gives."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from thinned import thinned

import planner
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate, peak_memory, violations
from instances.generators.decoder import DECODERS, Decoder, decoder
from instances.generators.transformer import RECOMPUTE, SELECTIVE, Architecture
from instances.problems.training_strategy import Schedule, StrategyInstance
from planner.analysis.trainer_answer import MEASURED
from planner.files.load import family_of

PAGE = Path(__file__).parents[3] / "docs" / "which-trainer.md"
SEQUENCE, VOCABULARY = 2048, 51200


class Row(NamedTuple):
    """A row of the table; sizes as the script has them, published and predicted TFLOP/s of a GPU, GiB by our count."""

    model: str
    gpus: int
    t: int
    p: int
    V: int
    microbatch: int
    batch: int
    layers: int
    width: int
    heads: int
    published: float
    predicted: float
    memory: float


def rows(start: str = "| GPT ") -> list[Row]:
    """Those of the page."""
    return [Row(each[0], *map(int, each[1:10]), *map(float, each[10:13])) for each in _cells(start)]


def _cells(*start: str) -> list[list[str]]:
    """What stands in the rows of a table that begin so: several things of a cell are divided by commas."""
    lines = PAGE.read_text().partition("## Beside published layouts")[2].splitlines()
    return [[cell.strip() for cell in re.split("[|,]", line.strip("|"))] for line in lines if line.startswith(start)]


def laid_out(row: Row, wanted: str = RECOMPUTE, **given: Any) -> tuple[StrategyInstance, StrategyPlan]:
    """The instance and the plan: as many layers in each chunk, embeddings before the first, head behind the last."""
    schedule = Schedule.INTERLEAVED if row.V > 1 else Schedule.ONE_F_ONE_B
    instance = planner.load(
        "gpt", problem="training_strategy", layers=row.layers, hidden_size=row.width, heads=row.heads,
        sequence_length=SEQUENCE, vocabulary=VOCABULARY, microbatch_size=row.microbatch, devices=row.gpus,
        microbatches=row.batch // row.microbatch, schedule=schedule, virtual_stages=row.V, **given,
    )  # fmt: skip
    ids = [layer.id for layer in instance.chain]
    own, others = row.layers // (row.p * row.V), len(ids) - row.layers
    ends = [1 + own * (chunk + 1) for chunk in range(row.p * row.V - 1)] + [len(ids)]
    assert others == 3, "embeddings, and behind the layers the head"
    chunks = tuple(tuple(ids[a:b]) for a, b in zip((0, *ends), ends, strict=False))
    tmpcs = {}
    for node in ids:
        ways = [x.id for x in instance.flat.layers[instance.flat.index[node]].tmpcs[row.t]]
        ways = [x for x in ways if ("sequence" in x) == bool(given)] or ways
        tmpcs[node] = next((x for x in ways if x.endswith(wanted)), ways[0])
    d = row.gpus // (row.t * row.p)
    return instance, StrategyPlan(row.p, row.t, d, row.V, schedule, chunks, tmpcs, 0, bool(given))


@pytest.mark.parametrize(
    "row", [*rows()[:3], *(pytest.param(row, marks=pytest.mark.slow) for row in rows()[3:])], ids=lambda row: row.model
)
def test_predictions_are_those_of_the_page(row: Row) -> None:
    instance, plan = laid_out(row)
    h, L = row.width, row.layers
    # Narayanan et al. 2021, equation 3: a recomputed forward pass counts
    operations = 96 * row.batch * SEQUENCE * L * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (16 * L * h))
    predicted = operations / evaluate(instance, plan) / row.gpus / 1e12
    assert f"{predicted:.0f}" == f"{row.predicted:.0f}"
    memory = max(peak_memory(instance, plan)) / 2**30
    assert f"{memory:.0f}" == f"{row.memory:.0f}"
    assert {each.rule for each in violations(instance, plan)} == ({"memory"} if memory > 80 else set())


@pytest.mark.parametrize(
    "row",
    [row if row.p < 35 else pytest.param(row, marks=pytest.mark.slow) for row in rows("| Korthikanti ")],
    ids=lambda row: f"{row.model} {row.gpus}",
)
def test_seconds_of_shared_sequences_are_those_of_the_page(row: Row) -> None:
    instance, plan = laid_out(row, SELECTIVE, sequence_parallel=True, keep_probabilities=True)
    assert f"{evaluate(instance, plan):.3g}" == f"{row.predicted:.3g}" and violations(instance, plan) == ()
    assert f"{max(peak_memory(instance, plan)) / 2**30:.0f}" == f"{row.memory:.0f}"


def test_the_page_says_how_far_predictions_are() -> None:
    found = rows()
    ratios = [row.predicted / row.published for row in found]
    text = " ".join(PAGE.read_text().split())
    assert len(found) == 10 and f"{min(ratios):.2f} to {max(ratios):.2f} of what was measured" in text
    longer = [row.predicted / row.published for row in rows("| Korthikanti ")]
    assert f"take {min(longer):.2f} to {max(longer):.2f} times as long" in text
    narrow = [row.predicted / row.published for row in found if row.t == 8 and row.p <= 16]
    assert f"between {min(narrow):.2f} and {max(narrow):.2f}" in text


class DecoderRow(NamedTuple):
    """A row of the second table: tokens/s of a GPU as published and predicted, GiB by our count."""

    model: str
    gpus: int
    tokens: int
    t: int
    c: int
    p: int
    V: int
    d: int
    level: int
    recompute: str
    microbatch: int
    batch: int
    type: str
    published: float
    predicted: float
    memory: float
    e: int = 1


def decoder_rows() -> list[DecoderRow]:
    """Those of the page."""
    return [
        DecoderRow(each[0], *map(int, each[1:9]), each[9], *map(int, each[10:12]), each[12], *map(float, each[13:]))
        for each in _cells("| llama3-", "| gpt-")
    ]


def mixture_rows() -> list[DecoderRow]:
    """Those of mixtures of experts, whose second column of degrees is ep; a sample a micro-batch, no recomputation."""
    found = []
    for name, *counts, kind, published, predicted, memory in _cells("| GPT-OSS", "| Qwen3", "| DeepSeek"):
        gpus, t, e, p, V, batch = map(int, counts)
        amounts = float(published), float(predicted), float(memory)
        at = gpus, 4096, t, 1, p, V, gpus // (t * p)
        found.append(DecoderRow(name, *at, 1, "none", 1, batch, kind, *amounts, e=e))
    return found


def _mixture(layers: int, width: int, heads: int, vocabulary: int, *experts: int) -> Decoder:
    """Of keys and values of 8 or 4 heads; ``experts``: their number and width, those of a token, width of all heads."""
    number, own, top, inner = experts
    shared = 512
    sizes = Architecture(layers, width, heads, 4096, vocabulary, 1)
    return Decoder(sizes, own, shared / width, number, own, top, attention=2 * width * (inner + shared))


#: Sizes: configurations of the models as published (Hugging Face).
MIXTURES = {
    "GPT-OSS 120B": _mixture(36, 2880, 64, 201088, 128, 2880, 4, 64 * 64),
    "Qwen3 30B": _mixture(48, 2048, 32, 151936, 128, 768, 8, 32 * 128),
    "DeepSeek-V3": DECODERS["deepseek-v3-like"][0],
}


def _gpt(row: DecoderRow) -> dict[str, Any]:
    """Its layers, width and heads are in its name; gated MLPs of 8/3 of the width have a GPT's parameters."""
    layers, width, heads = map(int, row.model.removeprefix("gpt-").split("x"))
    sizes = Architecture(layers, width, heads, row.tokens, 131072, row.microbatch)
    return _file(row, Decoder(sizes, round(8 * width / 3), 1.0))


def _file(row: DecoderRow, of: Decoder) -> dict[str, Any]:
    made = decoder(row.model, of, row.gpus, row.batch, row.type)
    return family_of(made).to_json(replace(made, flat=replace(made.flat, options={"dtype": row.type})))


def as_decoder(row: DecoderRow) -> tuple[StrategyInstance, StrategyPlan]:
    """The embedding and the head count as a layer each where layers are not divided otherwise."""
    schedule = Schedule.INTERLEAVED if row.V > 1 else Schedule.ONE_F_ONE_B
    sizes = {"sequence_length": row.tokens, "microbatch_size": row.microbatch, "dtype": row.type}
    source, given = (_gpt(row), {}) if row.model.startswith("gpt") else (row.model, sizes)
    if row.model in MIXTURES:
        source, given = _file(row, MIXTURES[row.model]), {"ep": row.e}
    instance = planner.load(
        source, devices=row.gpus, cp=row.c, microbatches=row.batch // row.microbatch, schedule=schedule,
        virtual_stages=row.V, sharding=row.level, shard_optimizer="torchtitan" if row.level == 3 else "megatron",
        **given,
    )  # fmt: skip
    ids = [layer.id for layer in instance.chain]
    chunks, layers = row.p * row.V, len(ids) - 3
    size, left = divmod(layers, chunks)
    first = 2 + size
    if left:
        size, left = divmod(layers + 2, chunks)
        first = 1 + size
    if left:  # one layer behind the embedding, two in other chunks, the head alone
        size, first, left = 2, 3, layers - 1 - 2 * (chunks - 2)
    assert not left
    ends = [*range(first, first + size * (chunks - 1), size), len(ids)]
    cuts = tuple(tuple(ids[a:b]) for a, b in zip((0, *ends), ends, strict=False))
    is_shared = row.t > 1
    tmpcs = {}
    for node in ids:
        ways = [x.id for x in instance.flat.layers[instance.flat.index[node]].tmpcs[row.t]]
        own = [x for x in ways if ("sequence" in x) == is_shared] or ways
        is_layer = 2 <= int(node) < len(ids) - 1
        tmpcs[node] = next(x for x in own if ("recomp" in x) == (row.recompute == "full" and is_layer))
    plan = StrategyPlan(row.p, row.t, row.d, row.V, schedule, cuts, tmpcs, row.level, is_shared, row.c, row.e)
    return instance, plan


@thinned("row", [*decoder_rows(), *mixture_rows()], ids=lambda row: f"{row.model} {row.gpus} {row.tokens} {row.type}")
def test_predictions_of_decoders_are_those_of_the_page(row: DecoderRow) -> None:
    instance, plan = as_decoder(row)
    assert plan.num_devices == row.gpus
    predicted = row.batch * row.tokens / evaluate(instance, plan) / row.gpus
    assert f"{predicted:.0f}" == f"{row.predicted:.0f}"
    memory = max(peak_memory(instance, plan)) / 2**30
    assert f"{memory:.0f}" == f"{row.memory:.0f}"
    assert {each.rule for each in violations(instance, plan)} <= {"memory"}


def test_the_page_says_how_far_predictions_of_imports_are() -> None:
    found = [[float(cell) for cell in each[1:]] for each in _cells("| llama-3-")]
    ratios = [published / predicted for _, published, predicted, _ in found]
    assert MEASURED["bf16, imported"] == (0.99, round(max(ratios), 2)) and round(min(ratios), 2) == 0.99
    known = {(row.gpus, row.published) for row in decoder_rows() if row.type == "bf16" and row.tokens == 8192}
    assert len(found) == 4 and {(gpus, published) for gpus, published, *_ in found} <= known


def test_the_page_says_how_far_predictions_of_decoders_are() -> None:
    """By the median of the other rows of a type, each row is predicted within the factors that the page has."""
    text = " ".join(PAGE.read_text().split())
    for kind in ("bf16", "fp8"):
        ratios = [row.published / row.predicted for row in (*decoder_rows(), *mixture_rows()) if row.type == kind]
        left = [own / median(ratios[:at] + ratios[at + 1 :]) for at, own in enumerate(ratios)]
        assert MEASURED[kind] == (round(min(ratios), 2), round(max(ratios), 2))
        said = f"{kind}: {min(ratios):.2f} to {max(ratios):.2f}, median {median(ratios):.2f}; left out, "
        assert f"{said}{min(left):.2f} to {max(left):.2f}" in text, (said, min(left), max(left))
