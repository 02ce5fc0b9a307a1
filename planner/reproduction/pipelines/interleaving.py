"""Narayanan et al. 2021, section 2.2: what interleaving gains, at its own memory and at that of 1F1B."""

from typing import Any

from planner.reproduction.claim import Evidence, Note, Optima, objective
from planner.reproduction.pipelines.chunks import of_schedule, proved
from solvers.outcome import Limits

#: Devices, micro-batches and chunks on a device.
SETTINGS = ((2, 4, 2), (2, 8, 2), (4, 8, 2), (4, 16, 2), (4, 8, 4), (4, 16, 4), (8, 16, 2), (8, 32, 2))
#: F and B of a chunk.
TIMES = (1.0, 2.0)


def run(_inputs: str | None, note: Note, limit: float = 5.0) -> Evidence:
    """1F1B and the interleaved order, and the best order of as many chunks with the memory of 1F1B."""
    rows: list[dict[str, Any]] = []
    optima, limits = Optima(), Limits(time_s=limit)
    for p, m, chunks in SETTINGS:
        note(f"{p} devices, {m} micro-batches, {chunks} chunks on each")
        own = min(m * chunks, 2 * (p - 1) + (chunks - 1) * p + 1)
        whole = of_schedule("1f1b", p, m, 1, [chunks * time for time in TIMES], p)
        one, takes = (
            objective(whole, "1f1b"),
            objective(of_schedule("interleaved", p, m, chunks, TIMES, own), "interleaved"),
        )
        assert one is not None and takes is not None
        place = f"{p} {m} {chunks}"
        ample = proved(
            optima, of_schedule("1f1b", p, m, 1, [chunks * time for time in TIMES], m), f"{place} (1)", limits
        )
        same = proved(optima, of_schedule("interleaved", p, m, chunks, TIMES, p * chunks), place, limits)
        rows.append(
            {
                "devices": p,
                "microbatches": m,
                "chunks": chunks,
                "1f1b_s": one,
                "best_of_one_chunk_s": ample["best_s"],
                "interleaved_s": takes,
                "memory": own / (p * chunks),
                **same,
                "gains_percent": 100 * (1 - takes / one),
                "gains_at_equal_memory_percent": 100 * (1 - same["best_s"] / one),
            }
        )
    return Evidence(
        tuple(rows),
        "chains of equal chunks, a forward pass half as long as a backward pass, which is not split",
        notes=(
            "best_of_one_chunk: the shortest iteration with one chunk on a device and all micro-batches in flight",
            "memory: of the interleaved order, on its fullest device, over that of 1F1B",
            "best: the best order of so many chunks that is known, with 1F1B's memory on every device; bound_s is its "
            "lower bound",
            optima.sentence(),
        ),
    )
