"""The instances of the library, made byte for byte, and the best that is known of each.

``instances/library/planlib-1.jsonl`` has a line an instance: its name, problem, catalog entry (or file in
``files``) and settings, and the SHA-256 of its JSON. ``best-known.jsonl`` has a line for what is known of one, and
``certificates.jsonl`` one for each certificate of a bound.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import instances
from instances.errors import InstanceError
from planner.files.load import family_named, load
from planner.files.write import as_json, write_all, write_atomically
from planner.process.errors import UsageError
from planner.results.fingerprints import fingerprint
from planner.types import Instance, JsonObject
from solvers.outcome import OPTIMAL_GAP, relative_gap

FOLDER = Path(instances.__file__).with_name("library")
VERSION = "planlib-1"
BEST_KNOWN, CERTIFICATES = "best-known.jsonl", "certificates.jsonl"
#: The proof of a bound whose certificate is there, and was accepted.
CERTIFICATE = "certificate"
#: Difficulties by the seconds that the quickest known proof took; what nobody has proved is open.
_DIFFICULTIES = (("second", 1.0), ("minute", 60.0), ("longer", float("inf")))
DIFFICULTIES = (*(name for name, _ in _DIFFICULTIES), "open")


@dataclass(frozen=True)
class Origin:
    """Who found a plan or proved a bound: a method, its seconds, the day, the machine, and the versions of software."""

    method: str
    seconds: float
    date: str
    machine: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class BestKnown:
    """The best verified plan and the greatest lower bound that are known of an instance, in its own unit.

    ``proof``: by whose means the bound was proved, as of `planner.results.result.Result`, or `CERTIFICATE`; ``None``
    without a bound.
    """

    name: str
    objective: float
    unit: str
    plan: JsonObject
    found_by: Origin
    bound: float | None = None
    proof: str | None = None
    proved_by: Origin | None = None

    @property
    def gap(self) -> float | None:
        """Relative gap of plan and bound."""
        return relative_gap(self.objective, self.bound)

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves the plan optimal."""
        return self.gap is not None and self.gap <= OPTIMAL_GAP

    @property
    def difficulty(self) -> str:
        """One of `DIFFICULTIES`."""
        if not self.is_optimal or self.proved_by is None:
            return DIFFICULTIES[-1]
        return next(name for name, most in _DIFFICULTIES if self.proved_by.seconds <= most)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "BestKnown":
        """A line of the file."""
        origins = {key: content[key] and Origin(**content[key]) for key in ("found_by", "proved_by")}
        return cls(**{**content, **origins})


@dataclass(frozen=True)
class LibraryEntry:
    """An instance of the library: a catalog entry or a file, settings, and the SHA-256 of what they make."""

    name: str
    problem: str
    instance: str
    settings: Mapping[str, Any]
    sha256: str

    @property
    def source(self) -> str:
        """The catalog entry's name, or the path of a file of the library."""
        return str(FOLDER / "files" / self.instance) if self.instance.endswith(".json") else self.instance

    def make(self) -> Instance:
        """The instance; `InstanceError` if it is not, byte for byte, the one that the library means."""
        made = load(self.source, **self.settings)
        found = fingerprint(made, None)
        if found is None or found["instance"] != self.sha256:
            rule = f"{self.sha256}: this version makes another instance than {VERSION} means"
            raise InstanceError.at(self.name, "SHA-256", found and found["instance"], rule)
        return made


@cache
def entries() -> Mapping[str, LibraryEntry]:
    """All instances by name, in the order of the manifest."""
    lines = _lines(FOLDER / f"{VERSION}.jsonl")
    return {each.name: each for each in (LibraryEntry(**line) for line in lines)}


def entry(name: str) -> LibraryEntry:
    """One instance; `UsageError` if there is none of that name."""
    found = entries().get(name)
    if found is None:
        raise UsageError.unknown("NAME", name, entries())
    return found


def select(problem: str | None = None, difficulty: str | None = None, folder: Path = FOLDER) -> list[LibraryEntry]:
    """The instances of a problem, and of a difficulty (one of `DIFFICULTIES`); `UsageError` for an unknown one."""
    if difficulty is not None and difficulty not in DIFFICULTIES:
        raise UsageError.unknown("--difficulty", difficulty, DIFFICULTIES)
    wanted = None if problem is None else family_named(problem).name
    known = best_known(folder)
    return [
        each
        for each in entries().values()
        if wanted in (None, each.problem) and difficulty in (None, difficulty_of(known.get(each.name)))
    ]


def difficulty_of(known: BestKnown | None) -> str:
    """One of `DIFFICULTIES`; without a plan an instance is open."""
    return DIFFICULTIES[-1] if known is None else known.difficulty


def listing(chosen: Sequence[LibraryEntry], known: Mapping[str, BestKnown]) -> dict[str, Any]:
    """What ``planner library list --json`` prints: instances, and what is known of each (``null``: nothing)."""
    rows = []
    for each in chosen:
        found = known.get(each.name)
        best = None if found is None else asdict(found)
        rows.append({**vars(each), "difficulty": difficulty_of(found), "best_known": best})
    return {"library": VERSION, "instances": rows}


def best_known(folder: Path = FOLDER) -> dict[str, BestKnown]:
    """The best that is known, by the names of instances; nothing of those that nobody has solved."""
    path = folder / BEST_KNOWN
    return {line["name"]: BestKnown.from_json(line) for line in _lines(path)} if path.exists() else {}


def certificates(folder: Path = FOLDER) -> dict[str, JsonObject]:
    """The certificates of bounds, by the names of instances."""
    path = folder / CERTIFICATES
    return {line["name"]: line[CERTIFICATE] for line in _lines(path)} if path.exists() else {}


def write_known(known: Mapping[str, BestKnown], proofs: Mapping[str, JsonObject], folder: Path = FOLDER) -> None:
    """Write what is known and its certificates, as the manifest orders them; `UsageError` if that is impossible."""
    best = [as_json(asdict(known[name])) + "\n" for name in entries() if name in known]
    certified = [name for name in entries() if name in known and known[name].proof == CERTIFICATE]
    content = [as_json({"name": name, CERTIFICATE: proofs[name]}) + "\n" for name in certified]
    files = {BEST_KNOWN: best, CERTIFICATES: content}
    write_all(*(partial(write_atomically, folder / name, "".join(lines), "--library") for name, lines in files.items()))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
