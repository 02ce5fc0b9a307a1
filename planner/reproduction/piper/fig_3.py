"""Figure 3: CPU seconds of planning against devices and model size, in the settings of the release."""

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from instances.files import read_text
from planner.files.load import published_file
from planner.process.errors import UsageError
from planner.reproduction.claim import Evidence, Note, verified_result
from planner.reproduction.piper.inputs import PUBLISHED, bert, require_some, source
from solvers.outcome import Limits, Stop

#: What the release's scalability() runs (commit d7fc8cf), each several times, at the file's own memory and bandwidth.
LAYERS, MICROBATCHES = (32, 48, 64, 96), (480, 512, 1920, 2048)
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048)
_MEMORY, _BANDWIDTH = "80GB", "25GB/s"
#: Runs of a setting: few where one takes long.
_FEW, _MANY, _LONG = 3, 5, 600
#: Seconds that the text prints: 13 minutes and 2 hours.
_PRINTED = {(32, 2048, 512): 780.0, (64, 2048, 2048): 7200.0}
_LIMIT_S = 60.0
#: Memory and bandwidth at which the released program was timed.
_TIMED = ("8GiB", "25GiB/s")
#: Columns of ours: method and options.
_RUNS: dict[str, tuple[str, dict[str, str]]] = {
    "here_piper": ("piper", {}),
    "here_piper_cutoff": ("piper", {"cutoff": "exact"}),
    "here_exact": ("exact", {}),
}


def run(
    inputs: str | None,
    note: Note,
    devices: int = DEVICES[-1],
    layers: Sequence[int] = (32, 64),
    microbatches: Sequence[int] = (512, 2048),
    repeats: str = "1",
    memory: str = _MEMORY,
    bandwidth: str = _BANDWIDTH,
    limit: float = _LIMIT_S,
) -> Evidence:
    """Piper's published algorithm and the exact method, on the published BERT made longer."""
    require_some(devices, DEVICES)
    published = source(inputs, "bert32a100")
    printed = _PRINTED if published == PUBLISHED else {}
    released = _released(inputs) if published == PUBLISHED and (memory, bandwidth) == _TIMED else {}
    rows: list[dict[str, Any]] = []
    given = {"memory": memory, "bandwidth": bandwidth, "cost_model": "released"}
    for method, options in _RUNS.values():  # what is loaded first is not timed
        first = bert(inputs, **given, devices=DEVICES[0], microbatches=DEVICES[0])
        verified_result(first, method, limits=Limits(time_s=limit), **options)
    for count in layers:
        for batch in microbatches:
            cut_off: set[str] = set()
            for k in (each for each in DEVICES if each <= devices):
                note(f"{count} layers, {k} devices, {batch} micro-batches")
                instance = bert(inputs, layers=count, devices=k, microbatches=batch, **given)
                row = {
                    "layers": count,
                    "nodes": len(instance.layers),
                    "devices": k,
                    "microbatches": batch,
                    "paper_s": printed.get((count, k, batch)),
                    "released_cpu_s": released.get((count, k, batch)),
                }
                runs = (_FEW if k > _LONG else _MANY) if repeats == "release" else int(repeats)
                for column, (method, options) in _RUNS.items():
                    times = [] if column in cut_off else _seconds(instance, method, limit, runs, **options)
                    row[f"{column}_s"] = statistics.fmean(times) if times else None
                    row[f"{column}_deviation_s"] = statistics.stdev(times) if len(times) > 1 else None
                    if not times:
                        cut_off.add(column)
                rows.append(row)
    whose = "as the release's scalability() has it" if (memory, bandwidth) == (_MEMORY, _BANDWIDTH) else "not its own"
    return Evidence(
        tuple(rows),
        published,
        notes=(
            f"{memory} and {bandwidth} a device, released cost model: {whose}; paper: an unoptimised program on one "
            f"core of a laptop; released: its C++ at {_TIMED[0]} on another machine; here: CPU seconds on this machine "
            f"(mean and sample standard deviation, runs: {repeats}; release: 5, and 3 above {_LONG} devices), kernels "
            "compiled; cutoff: with --cutoff exact",
            f"- where a run, or one on fewer devices, took longer than {limit:g} s or does not fit",
            *_sentences(rows, memory),
        ),
    )


def _sentences(rows: Sequence[Mapping[str, Any]], memory: str) -> Iterator[str]:
    """The settings that the text prints seconds of, beside ours."""
    for row in rows:
        if row["paper_s"] is not None and row["here_piper_s"] is not None and row["here_exact_s"] is not None:
            yield (
                f"{row['layers']} layers, K = {row['devices']}, N = {row['microbatches']}: printed within "
                f"{row['paper_s'] / 60:g} minutes; here, at {memory}, the same algorithm {row['here_piper_s']:.2g} s, "
                f"exact {row['here_exact_s']:.2g} s"
            )


def _seconds(instance: Any, method: str, limit: float, runs: int, **options: str) -> list[float]:
    """CPU seconds of some runs; none if one is cut off, or the method does not take an instance of this size."""
    found: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        try:
            result = verified_result(instance, method, limits=Limits(time_s=limit), **options)
        except UsageError:
            return []
        if result.stop in (Stop.TIME_LIMIT, Stop.SIZE_LIMIT):
            return []
        found.append(time.process_time() - started)
    return found


def _released(inputs: str | None) -> dict[tuple[int, int, int], float]:
    """CPU seconds of the released program where they were measured."""
    path = published_file("released_results.jsonl", inputs)
    if path is None:
        return {}
    rows = [json.loads(line) for line in read_text(path).splitlines() if line.strip()]
    return {
        (row["transformer_layers"], row["num_devices"], row["num_microbatches"]): row["released_cpu_s"]
        for row in rows
        if row["instance"] == "bert32a100" and row["mode"] == "full" and row["memory_gib"] == 8
    }
