"""The page of running plans says what the data say: of runs, and of blocks and decode steps on two GPUs."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import planner
from formulations.serving_strategy.definition.problem import decode_s, first_token_s, head_s
from instances.generators.decoder import DECODERS, Decoder, decoder
from instances.generators.transformer import Architecture
from instances.problems.stage_partitioning import Layer, Tmpc
from planner.training.runtime.fidelity import spearman

DOCS = Path(__file__).parents[4] / "docs"
CARDS = json.loads((DOCS / "findings" / "gpu-blocks.json").read_text())["cards"]
RUNS = json.loads((DOCS / "findings" / "gpu-runs.json").read_text())
PAGE = (DOCS / "running-plans.md").read_text()
SIZES = {name: of for name, (of, _, _) in DECODERS.items()} | {
    "llama2-7b": Decoder(Architecture(32, 4096, 32, 4096, 32000, 1), 11008, 1.0)
}
#: 65 % of the peak, as the generators have of an H100.
MEMORY = {"NVIDIA H100 80GB HBM3": 2.2e12, "NVIDIA H200": 0.65 * 4.8e12}


@cache
def block(model: str, tokens: int) -> Layer:
    of = SIZES[model]
    return decoder(model, replace(of, sizes=replace(of.sizes, sequence_length=tokens)), 8, 8).flat.layers[5]


def planned(model: str, tokens: int) -> Tmpc:
    """What the generator says of a block, whole on one device."""
    return max(block(model, tokens).tmpcs[1], key=lambda tmpc: tmpc.activation_bytes)


def weight_gradients(eager: dict[str, Any]) -> tuple[float, float]:
    """What they were measured to take over what is predicted, and their predicted share of a block's passes."""
    at = eager["model"], eager["tokens"]
    predicted = block(*at).weight_times[1]
    return (eager["both_s"] - eager["without_weights_s"]) / predicted, predicted / planned(*at).time


def predicted_step(card: str, row: dict[str, Any]) -> float:
    server = replace(planner.load("llama3-8b-serving"), memory_bandwidth_bytes_per_s=MEMORY[card])
    if "prompt" in row:
        return first_token_s(replace(server, prompt_tokens=row["prompt"]), 1, 1)
    server = replace(server, prompt_tokens=row["cached"] - 1, generated_tokens=2)  # whose mean length is what is cached
    layers = (decode_s(server, layer, 1, row["batch"]) for layer in server.layers)
    return math.fsum([*layers, head_s(server, 1, row["batch"])])


def cases() -> Iterator[dict[str, Any]]:
    """Of each card, model and number of tokens, by how it was run."""
    for card in CARDS:
        of: dict[tuple[str, int], dict[str, Any]] = {}
        for row in card["blocks"]:
            of.setdefault((row["model"], row["tokens"]), {})[row["run"]] = row
        yield from of.values()


def spread(values: Iterable[float], digits: int = 2) -> str:
    found = [f"{value:.{digits}f}" for value in values]
    return " to ".join(sorted({min(found, key=float), max(found, key=float)}, key=float))


def steps(kind: str, *, most: int = 10**6, least: int = 0, cards: int = 2) -> str:
    ratios = [
        row[time] / predicted_step(card["name"], row)
        for card in CARDS[:cards]
        for row in card["steps"]
        if kind in row and least <= row[kind] <= most
        for time in ("prefill_s" if kind == "prompt" else "decode_s",)
    ]
    return spread(ratios)


def test_tables_are_of_the_data() -> None:
    for of in list(cases())[:4]:
        eager = of["eager"]
        tmpc = planned(eager["model"], eager["tokens"])
        whole = eager["both_s"]
        parts = [of[run]["both_s"] / whole for run in ("compiled", "fp8", "recomputed", "core recomputed")]
        held = [of[run]["held_bytes"] / tmpc.activation_bytes for run in ("eager", "compiled")]
        words = [f"{1e3 * whole:.2f}", f"{share_of_weights(eager):.3f}", *(f"{x:.2f}" for x in [*parts, *held])]
        assert f"| {eager['model']}, {eager['tokens']:,} | {' | '.join(words)} |" in PAGE
    rows = [{(row["cached"], row["batch"]): row for row in card["steps"] if "batch" in row} for card in CARDS]
    for cached, batch in rows[0].keys() & rows[1].keys():
        words = []
        for card, of_card in zip(CARDS, rows, strict=True):
            row = of_card[cached, batch]
            words += [f"{1e3 * row['decode_s']:.2f}", f"{row['decode_s'] / predicted_step(card['name'], row):.2f}"]
        assert f"| {cached:,} | {batch} | {' | '.join(words)} |" in PAGE


def share_of_weights(eager: dict[str, Any]) -> float:
    return float(1 - eager["without_weights_s"] / eager["both_s"])


def bubble_over_third(eager: dict[str, Any]) -> float:
    """What (f + b - w) is of a third of all passes; with thirds it is 1."""
    return float(3 * (2 * eager["without_weights_s"] - eager["both_s"]) / eager["both_s"])


def test_sentences_are_of_the_data() -> None:
    every = list(cases())

    def less(run: str, than: str, what: str) -> list[float]:
        return [of[run][what] / of[than][what] for of in every]

    times, held = (
        {
            run: spread(of[run][what] / getattr(planned(of[run]["model"], of[run]["tokens"]), kept) for of in every)
            for run in ("eager", "compiled")
        }
        for what, kept in (("both_s", "time"), ("held_bytes", "activation_bytes"))
    )
    saved = spread((100 * (1 - ratio) for ratio in less("core recomputed", "eager", "held_bytes")), 0)
    slower = spread((100 * (ratio - 1) for ratio in less("core recomputed", "eager", "both_s")), 0)
    eager = [of["eager"] for of in every]
    fp8 = CARDS[0]["fp8_flop_per_s"] / CARDS[0]["bf16_flop_per_s"]
    for sentence in (
        f"eager ones take {times['eager']} times what is predicted, compiled ones {times['compiled']}:",
        f"compiled blocks hold {held['compiled']} times what is predicted, eager ones,",
        f"are not fused, {held['eager']}.",
        f"saves {saved} % of an eager block",
        f"takes {slower} % more time",
        f"forward passes take {spread(row['forward_s'] / row['both_s'] for row in eager)} of eager blocks",
        f"W takes {spread(map(share_of_weights, eager))}, not a third:",
        f"it takes {spread(ratio for ratio, _ in map(weight_gradients, eager))} times what",
        f"a share of {spread(share for _, share in map(weight_gradients, eager))},",
        f"too large by {spread(weight_gradients(row)[1] - share_of_weights(row) for row in eager)},",
        f"of predicted ones {spread(3 * (1 - 2 * share) for _, share in map(weight_gradients, eager))}.",
        f"is {spread(map(bubble_over_third, eager))} times a third",
        f"at {fp8:.2f} times the rate",
        f"compiled blocks become {spread(1 / ratio for ratio in less('fp8', 'compiled', 'both_s'))} times as fast",
        f"8 sequences or more take {steps('batch', least=8)} times",
        f"single ones {steps('batch', most=1)}:",
        f"2,048 tokens and more take {steps('prompt', least=2048)}, those of 512 {steps('prompt', most=512)}",
    ):
        assert sentence in " ".join(PAGE.split()), sentence
    served = (DOCS / "problems" / "serving_strategy.md").read_text()
    assert f"took {steps('batch', least=8, cards=1)} times the predicted time" in served
    for row in (of["recomputed"] for of in every):
        assert row["held_bytes"] == 2 * SIZES[row["model"]].sizes.hidden_size * row["tokens"]


def _columns(plan: dict[str, list[float]]) -> str:
    ratios = [peak / planned for peak, planned in zip(plan["peak_bytes"], plan["memory_planned"], strict=True)]
    return f"{plan['predicted_s']:.3f} | {plan['measured_s']:.3f} | {min(ratios):.3f} to {max(ratios):.3f}"


def test_the_table_is_of_the_data() -> None:
    first, second = (model["plans"] for model in RUNS["models"])
    for a, b in zip(first, second, strict=True):
        assert f"| {a['plan']} | {_columns(a)} | {_columns(b)} |" in PAGE
    assert f"{RUNS['models'][0]['unsplit_s']:.3f} s in A and {RUNS['models'][1]['unsplit_s']:.3f} s in B" in PAGE


def test_order_and_errors_are_of_the_data() -> None:
    def figures(plans: list[dict[str, float]], predicted: str) -> tuple[str, float, float]:
        errors = [100 * abs(plan[predicted] / plan["measured_s"] - 1) for plan in plans]
        order = spearman([plan[predicted] for plan in plans], [plan["measured_s"] for plan in plans])
        return f"{order:.3f}", median(errors), max(errors)

    a, b = (figures(model["plans"], "predicted_s") for model in RUNS["models"])
    assert f"Spearman {a[0]} (A) and {b[0]} (B)" in PAGE
    assert f"errors of {a[1]:.1f} % (median) and {a[2]:.1f} % at most in A, {b[1]:.1f} % and {b[2]:.1f} % in B" in PAGE
    a, b = (figures(model["plans"], "predicted_from_rates_s") for model in RUNS["models"])
    assert f"errors of {a[1]:.1f} % and {a[2]:.1f} %\n  in A, {b[1]:.1f} % and {b[2]:.1f} % in B" in PAGE
    assert f"Spearman {a[0]} and {b[0]}" in PAGE
    c = figures(RUNS["alternatives_of_A"], "predicted_s")
    assert f"Spearman {c[0]}, errors of {c[1]:.1f} % and {c[2]:.1f} %" in PAGE
    assert [f"{_regret(model['plans']):.1%}" for model in RUNS["models"]] == ["2.2%", "0.0%"]
    assert "was 2.2 % slower than the fastest in A, and the fastest in B" in PAGE
    assert _regret(RUNS["alternatives_of_A"]) == 0


def _regret(plans: list[dict[str, float]]) -> float:
    fastest = min(plans, key=lambda plan: plan["predicted_s"])
    return fastest["measured_s"] / min(plan["measured_s"] for plan in plans) - 1


def test_memory_is_never_much_more_than_planned() -> None:
    ratios = [
        peak / planned
        for model in RUNS["models"]
        for plan in model["plans"]
        for peak, planned in zip(plan["peak_bytes"], plan["memory_planned"], strict=True)
    ]
    assert min(ratios) > 0.925 and max(ratios) < 1.0025
