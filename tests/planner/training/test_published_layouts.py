"""The layouts of Megatron-LM's weak scaling: what the page says of our prediction is what the definition gives."""

from pathlib import Path
from typing import NamedTuple

import pytest

import planner
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate, peak_memory, violations
from instances.generators.transformer import RECOMPUTE
from instances.problems.training_strategy import Schedule, StrategyInstance

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


def rows() -> list[Row]:
    """Those of the page."""
    lines = PAGE.read_text().partition("## Beside published layouts")[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| GPT ")]
    return [Row(each[0], *map(int, each[1:10]), *map(float, each[10:13])) for each in cells]


def laid_out(row: Row) -> tuple[StrategyInstance, StrategyPlan]:
    """The instance and the plan: as many layers in each chunk, embeddings before the first, head behind the last."""
    schedule = Schedule.INTERLEAVED if row.V > 1 else Schedule.ONE_F_ONE_B
    instance = planner.load(
        "gpt", problem="training_strategy", layers=row.layers, hidden_size=row.width, heads=row.heads,
        sequence_length=SEQUENCE, vocabulary=VOCABULARY, microbatch_size=row.microbatch, devices=row.gpus,
        microbatches=row.batch // row.microbatch, schedule=schedule, virtual_stages=row.V,
    )  # fmt: skip
    ids = [layer.id for layer in instance.chain]
    own, others = row.layers // (row.p * row.V), len(ids) - row.layers
    ends = [1 + own * (chunk + 1) for chunk in range(row.p * row.V - 1)] + [len(ids)]
    assert others == 3, "embeddings, and behind the layers the head"
    chunks = tuple(tuple(ids[a:b]) for a, b in zip((0, *ends), ends, strict=False))
    tmpcs = {}
    for node in ids:
        ways = [x.id for x in instance.flat.layers[instance.flat.index[node]].tmpcs[row.t]]
        tmpcs[node] = RECOMPUTE if RECOMPUTE in ways else ways[0]
    return instance, StrategyPlan(row.p, row.t, row.gpus // (row.t * row.p), row.V, schedule, chunks, tmpcs)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.model)
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


def test_the_page_says_how_far_predictions_are() -> None:
    found = rows()
    ratios = [row.predicted / row.published for row in found]
    text = " ".join(PAGE.read_text().split())
    assert len(found) == 10 and f"{min(ratios):.2f} to {max(ratios):.2f} of what was measured" in text
    narrow = [row.predicted / row.published for row in found if row.t == 8 and row.p <= 16]
    assert f"between {min(narrow):.2f} and {max(narrow):.2f}" in text
