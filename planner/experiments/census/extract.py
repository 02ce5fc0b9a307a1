"""The subproblems that arise inside a run: which kinds there are, and all as rows that ``planner solve`` reads.

Source: Piper, Appendix C (its sample of knapsack instances).
"""

import gzip
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

import formulations
from formulations.contract.family import Family
from formulations.contract.inner_problems import Arisen, Decision, Inside, Subproblem
from formulations.stage_partitioning.questions.studies.subproblems import Options, Origin, Subproblems
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.files import is_compressed
from planner.experiments.census.knapsacks import chunks_of, draw_sample
from planner.files.load import family_named, family_of, validate
from planner.files.rows import SUFFIXES, pyarrow
from planner.files.write import as_json, draft_file
from planner.process.errors import CrosscheckError, UsageError
from solvers.outcome import Limits, Watch


@dataclass(frozen=True)
class InnerRow:
    """A subproblem as an instance that stands on its own: its name and origin say where it arose.

    ``inner`` chose ``plan`` (in its JSON form; ``None``: it found none), which is worth ``objective``. Rows of equal
    ``content`` differ in name and origin alone.
    """

    instance: Any
    inner: str
    plan: dict[str, Any] | None
    objective: float | None
    decision: Decision | None

    def to_json(self) -> dict[str, Any]:
        """What a file of rows holds of it: the instance in its family's own JSON."""
        content: dict[str, Any] = family_of(self.instance).to_json(self.instance)
        return content

    @cached_property
    def content(self) -> str:
        """The instance as JSON, without a name and an origin of its own."""
        family = family_of(self.instance)
        return as_json(family.to_json(replace(self.instance, name=family.name, origin={})))


def inside_of(instance: Any, problem: str | None, method: str | None) -> Inside:
    """The kind of subproblems that is requested: of ``problem``, inside ``method``; by default the first one there is.

    `UsageError` if the instance's family has none, or none of this problem, or this method has none of it.
    """
    family = family_of(instance)
    if not family.subproblems:
        known = ", ".join(each.name for each in formulations.FAMILIES if each.subproblems)
        raise UsageError.at("INSTANCE", family.name, f"an instance of a problem that others arise in: {known}")
    problems = list(dict.fromkeys(each.problem for each in family.subproblems))
    if problem is not None and problem not in problems:
        raise UsageError.unknown("--problem", problem, problems)
    found = [each for each in family.subproblems if problem in (None, each.problem)]
    if method is None:
        return found[0]
    for each in found:
        if each.method == method:
            return each
    raise UsageError.unknown("--from", method, [each.method for each in found])


def rows(
    instance: Any, inside: Inside, limits: Limits, sample: int | None = None, seed: int = 0, watch: Watch | None = None
) -> Iterator[InnerRow]:
    """The subproblems of a run on an instance, all or so many at random, in the order in which they arise.

    ``watch``: what ends the run early (default: the limits alone).

    `UsageError` if the method does not take the instance; `CrosscheckError` if what was chosen inside is no plan of its
    subproblem.
    """
    instance = validate(instance, requirements=False)
    family = family_of(instance)
    method = family.method(inside.method)
    refused = method.refusal(instance)
    if refused is not None:
        raise UsageError.at("--from", method.name, f"a method that takes {instance.name} ({refused})")
    family.load()
    method.load()
    assert inside.arise is not None
    watch = watch or Watch(limits)
    watch.start()
    arisen = inside.arise(instance, limits, watch)
    digest = hashlib.sha256(as_json(family.to_json(instance)).encode()).hexdigest()
    child = family_named(inside.problem)
    for number, each in _draw_sample(arisen, sample, seed):
        origin = {"parent": instance.name, "parent_problem": family.name, "parent_sha256": digest,
                  "method": inside.method, "number": number}  # fmt: skip
        yield _row(child, each(), f"{instance.name}-{inside.method}-{number}", origin)


def _draw_sample(arisen: Iterable[Arisen], sample: int | None, seed: int) -> Iterable[tuple[int, Arisen]]:
    """Each with its number; of a sample, which has every subproblem with the same chance, in their order."""
    if sample is None:
        return enumerate(arisen)
    rng = random.Random(seed)
    kept: list[tuple[int, Arisen]] = []
    for number, each in enumerate(arisen):
        if len(kept) < sample:
            kept.append((number, each))
        elif (place := rng.randrange(number + 1)) < sample:
            kept[place] = (number, each)
    return sorted(kept, key=lambda pair: pair[0])


def _row(child: Family[Any, Any], found: Subproblem, name: str, origin: dict[str, str | int | float]) -> InnerRow:
    plan, objective, form = found.plan, None, None
    origin["inner"] = found.inner
    if plan is not None:
        form = child.plan_to_json(found.instance, plan)
        broken = child.judge(found.instance, plan)
        if broken:
            evidence = {"problem": child.name, "instance": child.to_json(found.instance), "plan": form}
            raise CrosscheckError(f"{found.inner} chose a plan that breaks: {'; '.join(map(str, broken))}", evidence)
        objective = child.evaluate(found.instance, plan)
        origin |= {"objective": objective, "plan": as_json(form)}
    if found.decision is not None:
        origin["target"] = found.decision.target
    instance = replace(found.instance, name=name, origin={**origin, **found.origin})
    return InnerRow(instance, found.inner, form, objective, found.decision)


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
