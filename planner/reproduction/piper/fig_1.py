"""Figure 1: how much of the optimal throughput Piper and the five baselines reach."""

from typing import Any

from planner.reproduction.claim import Evidence, Note, Optima, objective
from planner.reproduction.piper.inputs import BANDWIDTH, bert, require_some, source

DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
#: By setting: numbers of devices, micro-batches and the cost model. The release's are those of plots(), commit d7fc8cf.
SETTINGS: dict[str, tuple[tuple[int, ...], int, str]] = {
    "ours": (DEVICES, 512, "paper"),
    "release": ((8, 32, 64, 128, 512, 1024, 2048), 1920, "released"),
}
MEMORY_GIB = (1, 2, 8, 80)
_RESTRICTIONS: dict[str, dict[str, Any]] = {
    "no_dp": {"max_dp": 1},
    "no_tp": {"tp": 1},
    "no_ar": {"forbid_tmpc": "activation recomp"},
}


def run(
    inputs: str | None,
    note: Note,
    devices: int = DEVICES[-1],
    setting: str = "ours",
    microbatches: int | None = None,
    cost_model: str | None = None,
    certify: str | None = None,
) -> Evidence:
    """Rows for all device counts up to ``devices`` and all memories; the numbers of the figure are not printed."""
    counts, own_microbatches, own_cost_model = SETTINGS[setting]
    microbatches, cost_model = microbatches or own_microbatches, cost_model or own_cost_model
    require_some(devices, counts)
    optima = Optima(certify)
    rows = [
        row(inputs, note, optima, memory, count, microbatches, cost_model)
        for memory in MEMORY_GIB
        for count in counts
        if count <= devices
    ]
    known = [found for found in rows if found["exact"] is not None]
    short = [found for found in known if found["piper"] < 1 - 1e-9]
    return Evidence(
        tuple(rows),
        source(inputs, "bert32a100"),
        notes=(
            "throughput relative to the exact optimum (time per sample in s), 0 where nothing feasible is found",
            f"no_dp, no_tp and no_ar are the optima of the restricted instances; {cost_model} cost model, "
            f"{microbatches} micro-batches; setting: {setting} (the release's plots() with --setting release)",
            optima.sentence(),
            *optima.certified(),
            f"Piper is below the optimum in {len(short)} of {len(known)} feasible settings",
        ),
        figures=optima.figures(),
    )


def row(
    inputs: str | None, note: Note, optima: Optima, memory: int, devices: int, microbatches: int, cost_model: str
) -> dict[str, Any]:
    """One group of bars."""
    place = f"{devices} devices of {memory} GiB"
    note(place)
    given = {
        "devices": devices,
        "memory": f"{memory}GiB",
        "microbatches": microbatches,
        "bandwidth": BANDWIDTH,
        "cost_model": cost_model,
    }
    graph = bert(inputs, **given)
    best = optima.of(graph, place)
    times = {"piper": objective(graph, "piper") if best is not None else None}
    for name, restriction in _RESTRICTIONS.items():
        times[name] = optima.of(bert(inputs, **given, **restriction), f"{place} ({name})")
    times["equi"], times["equi_no_tp"] = objective(graph, "equi"), objective(graph, "equi-no-tp")
    relative = {name: 0.0 if best is None or time is None else best / time for name, time in times.items()}
    return {"memory_gib": memory, "devices": devices, "microbatches": microbatches, "exact": best, **relative}
