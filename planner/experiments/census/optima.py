"""The optimum of each subproblem: found by the family's exact methods, wherever that runs, and kept in a folder.

A proved optimum is a line of ``optima.jsonl`` in the census's folder; a census that was killed resumes where it was, as
long as the program is the same.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from instances.errors import InstanceError
from instances.files import read_lines
from planner.files.load import family_named
from planner.files.write import append, as_json, write_atomically
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.process.executors import completed, place
from planner.process.versions import versions
from planner.solving.solve import solve
from solvers.outcome import Limits, Status, Stop


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
        self._problem, self._notice, self._file = problem, notice, self.path / "optima.jsonl"
        self._program = as_json({name: versions().get(name) for name in ("dnn-planner", "ortools", "highspy", "numba")})
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()) and not self._file.is_file():
                raise UsageError.at("--out", str(self.path), "an empty folder, or one of a census of such subproblems")
            lines = read_lines(self._file).splitlines() if self._file.is_file() else []
            with self._file.open("a", encoding="utf-8") as file:  # whether it can be written
                if lines and not self._file.read_bytes().endswith(b"\n"):
                    file.write("\n")  # a line was cut in two
        except (OSError, InstanceError) as error:
            raise UsageError.at("--out", str(self.path), f"a folder of a census ({error})") from None
        self.known: dict[str, Optimum] = {}
        self.failures: list[str] = []
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):  # a line that was cut: found again
                record = json.loads(line)
                key = record.pop("key")
                self.known[key] = Optimum(**record)

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
    ) -> None:
        """Find those that are not known; a signal that the command line notes ends it early."""
        wanted = list(dict.fromkeys(contents))
        left = [content for content in wanted if self.key(content) not in self.known]
        if len(left) < len(wanted):
            self._notice(f"{len(wanted) - len(left)} of {len(wanted)} optima lie in {self.path} already")
        done = len(wanted) - len(left)
        listen(done, len(wanted))
        tasks = [(self._problem, content, limits, self._against) for content in left]
        for position, found in completed(place(jobs, dask), find, tasks):
            if found is None:
                return
            self._keep(self.key(left[position]), found)
            done += 1
            listen(done, len(wanted))

    def _keep(self, key: str, found: Optimum) -> None:
        self.known[key] = found
        if found.is_proved:
            try:
                append(self._file, as_json({"key": key, **asdict(found)}) + "\n", "--out")
            except UsageError as error:
                self.failures.append(str(error))

    def write(self, path: Path, text: str) -> bool:
        """Whether a file of the folder could be written."""
        try:
            write_atomically(path, text)
        except UsageError as error:
            self.failures.append(str(error))
            return False
        return True
