"""Extract the subproblems that arise in a run into a file of rows that ``planner solve FILE#ROW`` reads.

Source: Piper, Appendix C (its sample of knapsack instances).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from formulations.stage_partitioning.questions.studies.subproblems import Options, Origin, Subproblems
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.files import is_compressed
from planner.experiments.census.inner_rows import inside_of, rows
from planner.experiments.census.knapsacks import chunks_of, draw_sample
from planner.files.load import validate
from planner.files.rows import SUFFIXES, pyarrow
from planner.files.write import as_json, draft_file
from planner.process.errors import UsageError
from solvers.outcome import Limits

#: Seconds that the run in which they arise may take.
RUN_S = 60.0
#: Rows that are held in memory, and of a row group of the parquet file.
_BLOCK = 20_000


#: Appends the instances that arise there.
Write = Callable[[Sequence[Origin]], None]


def extract(
    instance: Any, out: str, *, problem: str | None = None, method: str | None = None, sample: int | None = None,
    seed: int = 0, nontrivial: bool = False, limits: Limits | None = None,
) -> int:  # fmt: skip
    """Write the subproblems that arise in a run on ``instance`` to ``out``; returns how many.

    Parameters
    ----------
    out
        ``.jsonl`` or ``.jsonl.gz``, for knapsacks also ``.parquet`` (needs pyarrow); written whole or not at all.
    problem, method
        The family of the subproblems, and the method in whose run they arise; default: the first of
        `formulations.contract.family.Family.subproblems`.
    sample, seed
        That many at random, without repetition; ``None``: all. The seed is also that of the run.
    nontrivial
        Knapsacks alone: only those where the fastest TMPCs do not fit together but some choice does.
    limits
        Of the run; default: a minute. Piper's knapsacks need no run.

    Raises
    ------
    UsageError
        Another problem or method, another kind of file, a seed that `Limits` refuses, a graph with too many downsets.
    """
    instance = validate(instance, requirements=False)
    inside = inside_of(instance, problem, method)
    if sample is not None and sample < 0:
        raise UsageError.at("--sample", sample, "at least 0")
    limits = replace(limits or Limits(time_s=RUN_S), seed=seed)
    path = Path(out)
    if not out.endswith(SUFFIXES):
        raise UsageError.at("--out", out, f"a name that ends in {' or '.join(SUFFIXES)}")
    if inside.walk is None:
        if nontrivial:
            raise UsageError.at("--nontrivial", True, "left out: only knapsacks are sorted in this way")
        if path.suffix == ".parquet":
            raise UsageError.at("--out", out, "a name that ends in .jsonl or .jsonl.gz: only knapsacks have columns")
        with draft_file(path) as draft, _lines(path, draft) as file:
            written = 0
            for row in rows(instance, inside, limits, sample, seed):
                file.write(as_json(row.to_json()) + "\n")
                written += 1
        return written
    try:
        calls = inside.walk(instance)
    except ValueError as error:
        raise UsageError(f"{instance.name}: {error}") from None
    written = 0
    opened = _parquet if path.suffix == ".parquet" else _json_lines
    with draft_file(path) as draft, opened(path, draft, calls) as write:
        for block in _blocks(calls, sample, seed, nontrivial):
            write(block)
            written += len(block)
    return written


def _blocks(calls: Subproblems, sample: int | None, seed: int, nontrivial: bool) -> Iterator[list[Origin]]:
    """The requested origins, in the order of the walk."""
    ranges = chunks_of(calls.num_downsets)
    counts = [calls.count(*each, nontrivial=nontrivial) for each in ranges]
    if sample is not None:
        found = list(draw_sample(calls, ranges, counts, sample, seed, nontrivial=nontrivial))
        yield from (found[start : start + _BLOCK] for start in range(0, len(found), _BLOCK))
        return
    for each, count in zip(ranges, counts, strict=True):
        for start in range(0, count, _BLOCK):
            yield calls.pick(*each, np.arange(start, min(start + _BLOCK, count)), nontrivial=nontrivial)


@contextmanager
def _json_lines(path: Path, draft: Path, calls: Subproblems) -> Iterator[Write]:
    with _lines(path, draft) as file:
        yield lambda origins: file.writelines(
            as_json(KNAPSACK.to_json(calls.knapsack(origin))) + "\n" for origin in origins
        )


def _lines(path: Path, draft: Path) -> TextIO:
    """The draft of a file of lines, compressed as the file's name says."""
    return cast(TextIO, (gzip.open if is_compressed(path) else open)(draft, "wt", encoding="utf-8"))


@contextmanager
def _parquet(_path: Path, draft: Path, calls: Subproblems) -> Iterator[Write]:
    arrow = pyarrow()
    numbered = all(isinstance(layer.id, int) for layer in calls.instance.layers)
    node = arrow.int64() if numbered else arrow.string()
    kinds = {
        "parent": arrow.string(), "outer": arrow.string(), "inner": arrow.string(),
        "t": arrow.int64(), "d": arrow.int64(), "y": arrow.int64(), "capacity_bytes": arrow.float64(),
        "nodes": arrow.list_(node), "options": arrow.list_(arrow.int64()), "tmpcs": arrow.list_(arrow.string()),
        "time": arrow.list_(arrow.float64()), "memory_bytes": arrow.list_(arrow.float64()),
    }  # fmt: skip
    schema = arrow.schema(list(kinds.items()), metadata={"problem": KNAPSACK.name, "schema_version": "1"})

    def write(origins: Sequence[Origin]) -> None:
        rows = _columns(arrow, calls, origins, node)
        writer.write_table(arrow.table([rows[name] for name in kinds], schema=schema))

    with arrow.parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        yield write


def _columns(arrow: Any, calls: Subproblems, origins: Sequence[Origin], node: Any) -> Mapping[str, Any]:
    """Columns of a block of rows; what the rows of one call share is worked out once."""
    groups = [
        (calls.options(first), [first, *rest]) for _, (first, *rest) in groupby(origins, key=lambda each: each[:4])
    ]
    facts = [calls.facts(origin) for origin in origins]
    columns: dict[str, Any] = {name: [each[name] for each in facts] for name in facts[0]}
    columns["capacity_bytes"] = np.full(len(origins), calls.instance.memory_bytes)
    sizes = np.concatenate([np.full(len(rows), len(found.nodes)) for found, rows in groups])
    lengths = np.concatenate([np.full(len(rows), len(found.tmpcs)) for found, rows in groups])

    def repeat(part: str) -> Any:
        return np.concatenate([np.tile(getattr(found, part), len(rows)) for found, rows in groups])

    def lists(counts: Any, values: Any) -> Any:
        return arrow.ListArray.from_arrays(arrow.array(np.concatenate([[0], np.cumsum(counts)]), arrow.int32()), values)

    def memory(found: Options, rows: Sequence[Origin]) -> Any:
        y = np.array([origin.y for origin in rows])[:, None]
        return (found.per_microbatch * y + found.static).ravel()

    ids = repeat("nodes") if node == arrow.int64() else [str(each) for each in repeat("nodes").tolist()]
    columns["nodes"] = lists(sizes, arrow.array(ids, node))
    columns["options"] = lists(sizes, arrow.array(repeat("counts")))
    columns["tmpcs"] = lists(lengths, arrow.array(repeat("tmpcs").tolist(), arrow.string()))
    columns["time"] = lists(lengths, arrow.array(repeat("time")))
    columns["memory_bytes"] = lists(lengths, arrow.array(np.concatenate([memory(*group) for group in groups])))
    return columns
