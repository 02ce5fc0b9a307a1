"""All exact methods of every family on many small random instances: their claims, brute force's, and a table of both.

``python tests/random_instances.py --jobs 2 --count 100000 --seed 0`` prints a row for each family and leaves an
instance for every contradiction in the folder of ``--out``. ``--threads 2`` gives each method two threads,
and ``--backend cpsat`` runs only those whose models CP-SAT runs. A run that was killed goes on where it was: give the
same ``--seed`` and ``--out``, and another folder after a change of the code. The exit code is 5 if there are
contradictions, and 128 + signal after Ctrl-C or SIGTERM, which print the table so far.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "support"))

from small_instances import family_named, known_optimum, random_case

from formulations import FAMILIES
from formulations.contract.family import Claim, Family, Method
from planner.process.errors import CrosscheckError
from planner.process.executors import Opened, place, run_each
from planner.process.signals import defer, listen, pending
from planner.results.check import agree, exceeds
from planner.results.result import Result
from planner.solving.compare import contradictions, write_reproducer
from planner.solving.solve import run
from solvers import BACKENDS
from solvers.outcome import Limits, Status, Stop

NAMES = tuple(family.name for family in FAMILIES)
#: Enough for any method on instances this small, on a machine that others use as well.
LIMITS = Limits(time_s=5.0)


@dataclass(frozen=True)
class Choice:
    """What runs on an instance, and how: all exact methods, or those of a backend, each with so many threads."""

    threads: int = 1
    backend: str | None = None


#: Instances between two rows of the file that a run goes on from.
CHUNK = 20


@dataclass
class Tally:
    """What happened on some instances of a family.

    ``instances`` were tried, ``infeasible`` proved to be so, ``oracle`` solved by brute force as well, ``unproved`` by
    no method. ``runs[method]`` and ``proofs["method by whose means"]`` count exact methods. ``wrong`` holds every
    contradiction and every error, in words.
    """

    instances: int = 0
    infeasible: int = 0
    oracle: int = 0
    unproved: int = 0
    cpu_s: float = 0.0
    runs: Counter[str] = field(default_factory=Counter)
    proofs: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Count the other's instances here, too."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @classmethod
    def read(cls, row: dict[str, Any]) -> "Tally":
        """The tally of a row."""
        return cls(**{**row, "runs": Counter(row["runs"]), "proofs": Counter(row["proofs"])})


@cache
def warmed(name: str) -> Family[Any, Any]:
    """The family with its methods loaded; what would make an instance feasible is not asked of every method."""
    family = family_named(name)
    for method in family.methods:
        method.load()
    return replace(family, entries={**family.entries, "why_infeasible": None})


def examine(name: str, seed: int, number: int, reproducers: str | None = None, choice: Choice = Choice()) -> "Tally":
    """Run all exact methods, and one heuristic for its plan, on the instance of that number.

    ``reproducers`` is the folder for an instance on which something is wrong.
    """
    family, instance = warmed(name), random_case(name, seed, number)
    began = time.process_time()
    results, wrong = _results(family, instance, f"{seed} {number}", choice)
    wrong += contradictions(results)
    is_known, optimum = known_optimum(name, instance)
    if is_known:
        wrong += against(optimum, results)
    if wrong and reproducers is not None:
        write_reproducer(
            reproducers, {"problem": name, "instance": family.to_json(instance), "contradictions": sorted(wrong)}
        )
    exact = [result for result in results if result.claim == Claim.EXACT.value]
    proved = [result for result in exact if result.stop is Stop.PROVED]
    return Tally(
        instances=1,
        infeasible=any(result.status is Status.INFEASIBLE for result in proved),
        oracle=is_known,
        unproved=not proved,
        cpu_s=time.process_time() - began,
        runs=Counter(result.method for result in exact),
        proofs=Counter(f"{result.method} by {result.proved_by}" for result in proved),
        wrong=[f"{name}, seed {seed}, number {number}: {sentence}" for sentence in wrong],
    )


def against(optimum: float | None, results: Sequence[Result]) -> list[str]:
    """What brute force, which found this optimum (``None``: no plan), knows to be false, in words."""
    wrong = []
    for result in results:
        if result.objective is not None and optimum is None:
            wrong.append(f"{result.method} has a plan of {result.objective!r}, but brute force finds none")
        elif result.objective is not None and optimum is not None and exceeds(optimum, result.objective):
            wrong.append(f"{result.method} has a plan of {result.objective!r}, below brute force's {optimum!r}")
        if optimum is None:
            continue
        if result.status is Status.INFEASIBLE:
            wrong.append(f"{result.method} calls the instance infeasible, but brute force finds {optimum!r}")
        elif result.bound is not None and exceeds(result.bound, optimum):
            wrong.append(f"{result.method} claims the lower bound {result.bound!r}, but brute force finds {optimum!r}")
        elif result.status is Status.OPTIMAL and not agree(result.objective or 0.0, optimum, 2e-6):
            wrong.append(f"{result.method} calls {result.objective!r} optimal, but brute force finds {optimum!r}")
    return wrong


def _results(family: Family[Any, Any], instance: Any, seed: str, choice: Choice) -> tuple[list[Result], list[str]]:
    """What the methods say, and the errors of those that fail."""
    results, wrong = [], []
    for method in _chosen(family, instance, seed, choice.backend):
        try:
            results.append(run(family, method, instance, replace(LIMITS, threads=choice.threads), {}))
        except CrosscheckError as error:
            wrong.append(str(error))
        except Exception as error:  # a method that fails is a finding as well, and the others run all the same
            wrong.append(f"{method.name} fails: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    wrong += [f"{each.method}: {each.reason}" for each in results if "solver_aborts" in each.stats]
    return results, wrong


def _chosen(family: Family[Any, Any], instance: Any, seed: str, backend: str | None) -> list[Method[Any, Any]]:
    fitting = [method for method in family.methods if method.supports(instance) is None]
    if backend is not None:
        return [method for method in fitting if method.backend == backend]
    exact = [method for method in fitting if method.claim is Claim.EXACT]
    others = [method for method in fitting if method.claim is Claim.HEURISTIC]
    return exact + ([random.Random(seed).choice(others)] if others else [])


def examine_chunk(
    name: str, seed: int, first: int, count: int, reproducers: str | None, choice: Choice = Choice()
) -> "Tally":
    """`examine` for the numbers from ``first`` on."""
    total = Tally()
    for number in range(first, first + count):
        total.add(examine(name, seed, number, reproducers, choice))
    return total


Chunk = tuple[str, int, int]


def chunks(families: Sequence[str], count: int) -> list[Chunk]:
    """``count`` instances shared by the families, as (family, first number, how many): all families go on together."""
    each = -(-count // len(families))
    return [(name, first, min(CHUNK, each - first)) for first in range(0, each, CHUNK) for name in families]


def run_all(
    families: Sequence[str], count: int, seed: int, jobs: int, out: Path, choice: Choice = Choice()
) -> dict[str, Tally]:
    """All chunks, until a signal is noted; those that the folder ``out`` holds already are read from there."""
    out.mkdir(parents=True, exist_ok=True)
    own = "" if choice == Choice() else f"-{choice.backend or 'all'}-{choice.threads}"
    file = out / f"seed-{seed}{own}.jsonl"
    known = dict(_read(file))
    totals = {name: Tally() for name in families}
    every = chunks(families, count)
    for chunk in every:
        totals[chunk[0]].add(known.get(chunk, Tally()))
    waiting = [chunk for chunk in every if chunk not in known]
    tasks = [(name, seed, first, size, str(out), choice) for name, first, size in waiting]
    began = time.perf_counter()
    with file.open("a") as rows:
        rows.write("\n")  # what a killed run left of its last row stays a row of its own
        for done, (position, tally) in enumerate(run_each(_opened(jobs), examine_chunk, tasks), start=1):
            if pending() is not None:  # the signal may have cut the methods of this chunk short
                break
            rows.write(json.dumps({"chunk": waiting[position], **vars(tally)}) + "\n")
            rows.flush()
            totals[waiting[position][0]].add(tally)
            for sentence in tally.wrong:
                print(sentence, file=sys.stderr)
            if done % 50 == 0:
                left = (time.perf_counter() - began) / done * (len(waiting) - done)
                print(f"{done} of {len(waiting)} chunks, {left / 60:.1f} min left", file=sys.stderr)
    return totals


def _read(file: Path) -> Iterator[tuple[Chunk, Tally]]:
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:  # empty, or cut when its run was killed
            continue
        name, first, count = row.pop("chunk")
        yield (name, first, count), Tally.read(row)


def _opened(jobs: int) -> Opened:
    """Where chunks run. A process that dies is a finding as well: it is reported whenever others take its place."""
    opened, again = place(jobs), False

    def open_again() -> AbstractContextManager[Executor]:
        nonlocal again
        if again:
            print("a process died; what it did not finish is run again (--jobs 1 shows where)", file=sys.stderr)
        again = True
        return opened()

    return open_again


def table(totals: dict[str, Tally]) -> str:
    """A row for each family: what was proved by whom, and what was wrong."""
    rows = [("family", "instances", "infeasible", "by brute force", "unproved", "wrong", "CPU s")]
    whole = Tally()
    for name, tally in totals.items():
        rows.append((name, *_cells(tally)))
        whole.add(tally)
    rows.append(("all", *_cells(whole)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for name, tally in totals.items():
        lines.append(f"\n{name}")
        for method, runs in sorted(tally.runs.items()):
            by = {
                key.removeprefix(f"{method} by "): n
                for key, n in tally.proofs.items()
                if key.startswith(f"{method} by ")
            }
            shares = ", ".join(f"{n} by {whose}" for whose, n in sorted(by.items()))
            lines.append(f"  {method}: {sum(by.values())} of {runs} proved ({shares or 'none'})")
    return "\n".join(lines)


def _cells(tally: Tally) -> tuple[str, ...]:
    counts = (tally.instances, tally.infeasible, tally.oracle, tally.unproved, len(tally.wrong))
    return (*map(str, counts), f"{tally.cpu_s:.0f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000, help="instances of all families together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default=",".join(NAMES), help="some of them, with commas in between")
    parser.add_argument("--out", default="random-instances", help="folder for progress and reproducers")
    parser.add_argument("--threads", type=int, default=1, help="of each method")
    parser.add_argument("--backend", choices=tuple(BACKENDS), help="only methods whose models it runs")
    given = parser.parse_args(arguments)
    families = given.families.split(",")
    if unknown := set(families) - set(NAMES):
        parser.error(f"no families: {', '.join(sorted(unknown))}; expected some of {', '.join(NAMES)}")
    with defer():
        totals = run_all(
            families, given.count, given.seed, given.jobs, Path(given.out), Choice(given.threads, given.backend)
        )
    print(table(totals))
    wrong = [sentence for tally in totals.values() for sentence in tally.wrong]
    print("\n".join(["", *wrong]) if wrong else "\nno contradictions")
    signal = pending()
    if wrong or signal is None:
        return 5 if wrong else 0
    return 128 + signal


if __name__ == "__main__":
    listen(lambda number: os._exit(128 + number))
    sys.exit(main())
