"""Table 1: Piper and equal partitions on GNMT and Resnet50, and what the graphs allow.

The variant that reproduces it (measured, not stated in the paper): the paper's cost of synchronisation, any degree,
knapsacks with swaps sorted once, memory in GiB, and graphs turned into chains, Piper's by name and equi's by a stack.
The release turns them into chains for equi alone.
"""

from collections.abc import Iterator
from typing import Any

from planner.files.load import load
from planner.reproduction.claim import Evidence, Note, Optima, meets, objective
from planner.reproduction.piper.inputs import ANALYTIC, BANDWIDTH, PUBLISHED, published_model, source

#: Model, devices, GiB, Piper's and equi's time per sample as printed (``None``: out of memory).
PRINTED: tuple[tuple[str, int, str, str, str | None], ...] = (
    ("GNMT", 2, "2.5", "263.354", "325.026"),
    ("GNMT", 2, "3.5", "260.268", "260.268"),
    ("GNMT", 4, "1.2", "148.848", None),
    ("GNMT", 4, "2.5", "131.702", "162.533"),
    ("GNMT", 8, "1.2", "69.5705", "137.518"),
    ("GNMT", 8, "2.4", "65.1633", "81.2712"),
    ("GNMT", 16, "1.2", "33.4478", "55.8757"),
    ("GNMT", 32, "0.8", "17.0167", "71.1943"),
    ("Resnet50", 8, "4", "74.2513", None),
    ("Resnet50", 8, "8", "63.4363", "164.159"),
    ("Resnet50", 8, "16", "58.5656", "108.886"),
    ("Resnet50", 16, "2", "76.5213", None),
    ("Resnet50", 16, "4", "35.4642", None),
    ("Resnet50", 16, "8", "31.636", "82.0797"),
    ("Resnet50", 16, "16", "29.2406", "54.4429"),
    ("Resnet50", 32, "1.5", "61.2086", None),
    ("Resnet50", 32, "2", "26.4449", None),
    ("Resnet50", 32, "4", "17.5978", None),
    ("Resnet50", 32, "8", "15.8181", "41.0398"),
    ("Resnet50", 32, "16", "14.5413", "27.2214"),
    ("Resnet50", 64, "1.5", "16.9921", None),
    ("Resnet50", 64, "2", "11.5094", None),
    ("Resnet50", 64, "4", "8.64699", None),
    ("Resnet50", 64, "8", "7.83803", "20.5199"),
    ("Resnet50", 64, "16", "7.27067", "13.6107"),
    ("Resnet50", 128, "1", "19.8685", None),
    ("Resnet50", 128, "1.5", "7.02514", None),
    ("Resnet50", 128, "2", "5.50138", None),
    ("Resnet50", 128, "4", "4.29729", None),
    ("Resnet50", 128, "8", "3.90292", "10.26"),
    ("Resnet50", 128, "16", "3.63534", "6.80536"),
)
#: The caption's: equi's throughput in percent of Piper's, on average.
PRINTED_AVERAGES = {"GNMT": 68, "Resnet50": 46}
_FILES = {"GNMT": "gnmt", "Resnet50": "resnet"}
#: Devices and GiB of the analytic BERT that stands in for both models.
_STAND_IN = ((8, "8"), (8, "16"), (16, "4"), (16, "8"), (32, "2"), (32, "4"), (64, "2"), (64, "4"))


def run(inputs: str | None, note: Note, certify: str | None = None) -> Evidence:
    """All 31 distinct rows, with the exact optimum on the graph itself beside them."""
    optima = Optima(certify)
    if source(inputs, *_FILES.values()) != PUBLISHED:
        stand_in = [_stand_in(devices, memory, note, optima) for devices, memory in _STAND_IN]
        return Evidence(
            tuple(stand_in),
            f"{ANALYTIC}; bert32 without tensor parallelism stands in for GNMT and Resnet50",
            notes=(optima.sentence(), *optima.certified(), _worse(stand_in)),
            figures=optima.figures(),
        )
    rows = [row(inputs, printed, note, optima) for printed in PRINTED]
    matched = 0
    for found, (_, _, _, piper, equi) in zip(rows, PRINTED, strict=True):
        matched += meets(found["here_piper"], piper) + meets(found["here_equi"], equi)
    return Evidence(
        tuple(rows),
        PUBLISHED,
        2 * len(rows),
        matched,
        (
            "time per sample in ms; Piper and equi have chains, as the printed digits need; exact is that of the graph",
            optima.sentence(),
            *optima.certified(),
            _worse(rows),
            *_averages(rows),
        ),
        figures=optima.figures(),
    )


def row(
    inputs: str | None, printed: tuple[str, int, str, str, str | None], note: Note, optima: Optima
) -> dict[str, Any]:
    """One row of the table."""
    model, devices, memory, piper, equi = printed
    found = _figures(str(published_model(_FILES[model], inputs)), devices, memory, note, optima)
    return {
        "model": model,
        "devices": devices,
        "memory_gib": float(memory),
        "paper_piper": float(piper),
        "here_piper": found[0],
        "paper_equi": None if equi is None else float(equi),
        "here_equi": found[1],
        "exact_dag": found[2],
    }


def _stand_in(devices: int, memory: str, note: Note, optima: Optima) -> dict[str, Any]:
    found = _figures("bert32", devices, memory, note, optima, published_conventions=True, tp=1)
    return {
        "model": "bert32",
        "devices": devices,
        "memory_gib": float(memory),
        "paper_piper": None,
        "here_piper": found[0],
        "paper_equi": None,
        "here_equi": found[1],
        "exact_dag": found[2],
    }


def _figures(name: str, devices: int, memory: str, note: Note, optima: Optima, **more: Any) -> tuple[float | None, ...]:
    """Time per sample of Piper on a chain, of equi, and of the best plan."""
    place = f"{name}: {devices} devices of {memory} GiB"
    note(place)
    given = {"devices": devices, "memory": f"{memory}GiB", "bandwidth": BANDWIDTH, "cost_model": "paper", **more}
    graph = load(name, **given)
    return (
        objective(load(name, linearize="name", **given), "piper", knapsack="sort-once"),
        objective(graph, "equi-no-tp"),
        optima.of(graph, place),
    )


def _averages(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The averages of the caption; they leave out the rows in which equi has no plan."""
    for model, average in PRINTED_AVERAGES.items():
        both = [found for found in rows if found["model"] == model and found["here_equi"]]
        share = 100 * sum(found["here_piper"] / found["here_equi"] for found in both) / len(both)
        yield (
            f"{model}: equi has {share:.1f} % of Piper's throughput on average over the {len(both)} rows where it has "
            f"a plan (printed: {average} %)"
        )


def _worse(rows: list[dict[str, Any]]) -> str:
    """How much of the graphs' throughput Piper's column leaves."""
    gaps = [(found["here_piper"] / found["exact_dag"] - 1, found) for found in rows if found["here_piper"]]
    worst, at = max(gaps, key=lambda gap: gap[0])
    above = sum(gap > 1e-6 for gap, _ in gaps)
    if not above:
        return f"none of the {len(gaps)} rows where Piper has a plan is above the graph's optimum"
    place = f"{at['model']}, {at['devices']} devices, {at['memory_gib']:g} GiB"
    return f"{above} of {len(gaps)} rows of Piper are above the graph's optimum, by up to {100 * worst:.1f} % ({place})"
