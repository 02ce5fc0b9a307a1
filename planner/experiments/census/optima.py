"""The optimum of each subproblem: found by the family's exact methods, wherever that runs, and kept in a folder.

A proved optimum is a line of ``optima.jsonl`` in the census's folder; a census that was killed resumes where it was, as
long as the program is the same.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.experiments.runner import Journal, open_folder, write_or_note
from planner.files.destinations import writable
from planner.files.load import family_named
from planner.files.write import as_json
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.process.executors import Ended, place, run_tasks
from planner.process.signals import pending
from planner.process.versions import versions
from planner.solving.solve import solve
from solvers.outcome import Limits, Status, Stop

_FILE = "optima.jsonl"


@dataclass(frozen=True)
class Optimum:
    """What an exact method found of an instance: its best objective and bound, and whether that is a proof.

    ``status`` and ``reason`` as in a result; ``cpu_seconds`` of the process that ran it.
    """

    status: str
    objective: float | None
    bound: float | None
    method: str
    reason: str
    cpu_seconds: float

    @property
    def is_proved(self) -> bool:
        """Whether nothing is left open: an optimum, or that there is no plan."""
        return self.status in (Status.OPTIMAL, Status.INFEASIBLE)


def find(problem: str, content: str, limits: Limits, against: str = AUTO) -> Optimum | None:
    """The optimum of the instance in JSON ``content``, by an exact method; ``None`` if a signal ended the search."""
    began = time.process_time()
    family = family_named(problem)
    try:
        result = solve(family.read(json.loads(content), "subproblem", {}), method=against, exact=True, limits=limits)
    except UsageError as refused:  # no exact method takes it
        return Optimum(Status.UNKNOWN, None, None, "", str(refused), time.process_time() - began)
    if result.signal is not None or result.stop is Stop.INTERRUPTED:
        return None
    took = time.process_time() - began
    return Optimum(result.status, result.objective, result.bound, result.method, result.reason, took)


class Optima:
    """The optima that are known, by content, and the folder that keeps the proved ones.

    A file that cannot be written (a full disk) is one of its ``failures`` and does not end the census.
    """

    def __init__(self, out: str, problem: str, notice: Callable[[str], None], against: str = AUTO) -> None:
        self.path = Path(out)
        self._against = against
        self._problem, self._notice = problem, notice
        self._program = as_json({name: versions().get(name) for name in ("dnn-planner", "ortools", "highspy", "numba")})
        if open_folder(out) and not self.path.joinpath(_FILE).is_file():
            raise UsageError.at("--out", out, "an empty folder, or one of a census of such subproblems")
        self._journal = Journal(self.path / _FILE, "key", "their optima are found again")
        with writable(self._journal.path, "--out"), self._journal.path.open("a"):  # whether it can be written
            pass
        self.known: dict[str, Optimum] = {
            key: Optimum(**{name: value for name, value in record.items() if name != "key"})
            for key, record in self._journal.records(notice).items()
        }
        self.failures: list[str] = []

    def key(self, content: str) -> str:
        """What the optimum of a content is kept under."""
        return hashlib.sha256(f"{self._problem} {self._against} {self._program} {content}".encode()).hexdigest()

    def find(
        self,
        contents: Sequence[str],
        limits: Limits,
        jobs: int = 1,
        dask: str | None = None,
        listen: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Ended:
        """Find those that are not known; a signal that the command line notes ends it early."""
        wanted = list(dict.fromkeys(contents))
        left = [content for content in wanted if self.key(content) not in self.known]
        done = len(wanted) - len(left)
        if done:
            self._notice(f"{done} of {len(wanted)} optima lie in {self.path} already")
        listen(done, len(wanted))

        def keep(position: int, found: Optimum | None) -> int | None:
            nonlocal done
            if found is None:
                return pending() or signal.SIGINT
            self._keep(self.key(left[position]), found)
            done += 1
            listen(done, len(wanted))
            return None

        tasks = [(self._problem, content, limits, self._against) for content in left]
        return run_tasks(place(jobs, dask), find, tasks, keep)

    def _keep(self, key: str, found: Optimum) -> None:
        self.known[key] = found
        if found.is_proved:
            write_or_note(self.failures, lambda: self._journal.keep([{"key": key, **asdict(found)}]))
