"""Alpa's and Galvatron's programs and UniAP's objective beside the shortest iteration of one pair of degrees."""

from dataclasses import replace
from typing import Any

from instances.generators import transformer
from instances.generators.transformer import A100, Architecture
from instances.problems.training_strategy import StrategyInstance, of_chain
from planner.reproduction.claim import Evidence, Note, Optima, objective
from solvers.outcome import Limits

#: Layers, hidden size, heads, sequence length, vocabulary: GPTs with the sizes of Llama.
MODELS = {
    "7b": (32, 4096, 32, 4096, 32000),
    "70b": (80, 8192, 64, 4096, 32000),
    "405b": (126, 16384, 128, 8192, 128256),
}
#: Model, devices, micro-batches, GiB of a device.
SETTINGS = (
    ("7b", 16, 64, 80),
    ("7b", 16, 64, 24),
    ("70b", 64, 512, 80),
    ("70b", 96, 480, 80),
    ("70b", 512, 2048, 80),
    ("405b", 512, 512, 80),
    ("405b", 16384, 2048, 80),
)
#: FLOP/s of a device at its peak, and bytes/s between devices.
_PEAK, _BANDWIDTH = 989e12, 50e9


def setting(model: str, devices: int, microbatches: int, memory_gib: float) -> StrategyInstance:
    """A GPT of one sample a micro-batch on H100s, under 1F1B."""
    flat = transformer.gpt(model, Architecture(*MODELS[model], 1), replace(A100, peak_flop_per_s=_PEAK))
    given: dict[str, Any] = {"num_devices": devices, "memory_bytes": memory_gib * 2**30, "bandwidth": _BANDWIDTH}
    return of_chain(replace(flat, **given, num_microbatches=microbatches))


def run(_inputs: str | None, note: Note, limit: float = 60.0) -> Evidence:
    """Every setting by both, by what trainers' users do, and the optimum."""
    rows: list[dict[str, Any]] = []
    optima = Optima()
    for model, devices, microbatches, memory in SETTINGS:
        note(f"{model}, {devices} devices, {microbatches} micro-batches, {memory} GiB")
        instance = setting(model, devices, microbatches, memory)
        best = optima.result(instance, f"{model} {devices} {memory}", limits=Limits(time_s=limit))
        row: dict[str, Any] = {"model": model, "devices": devices, "microbatches": microbatches, "memory_gib": memory}
        row |= {"best_s": best.objective, "bound_s": best.bound}
        for method in ("alpa", "galvatron", "uniap", "formula", "even"):
            found = objective(instance, method)
            row[f"{method}_percent"] = (
                None if found is None or not best.objective else 100 * (found / best.objective - 1)
            )
        rows.append(row)
    return Evidence(
        tuple(rows),
        "GPTs with the sizes of Llama, one sample a micro-batch; 1F1B",
        notes=(
            "seconds of a simulated batch; percent above best_s, the shortest of all degrees, cuts and recomputations",
            "alpa, galvatron, uniap: within one pair of degrees for all layers, which is less than they decide",
            optima.sentence(),
        ),
    )
