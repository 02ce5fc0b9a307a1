"""What a claim is, and what examining it leaves: rows of what the paper prints and what is found here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from instances.parameters import Setting
from planner.results.result import Result
from planner.solving.certify import certified_into
from planner.solving.solve import solve
from planner.types import JsonObject
from solvers.outcome import Limits, Status

#: Called with a line about the progress.
Note = Callable[[str], None]


@dataclass(frozen=True)
class ClaimTables:
    """Printed tables made again: a row for each of theirs, all with the same keys, and how many are as printed.

    Cuts of layers and seconds are counted apart; ``notes`` are sentences below the table.
    """

    rows: tuple[Mapping[str, Any], ...]
    cuts_compared: int
    cuts_matched: int
    seconds_compared: int
    seconds_matched: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What examining a claim gave.

    ``rows`` all have the same keys, which are the columns; absent numbers are ``None``. ``inputs`` describes where the
    instances came from. ``compared`` printed numbers were compared, ``matched`` of them were met to the last printed
    digit. ``notes`` are sentences below the table. ``tables`` are apart from ``rows``, and so are their counts.
    ``figures`` are further keys of the JSON object.
    """

    rows: tuple[Mapping[str, Any], ...]
    inputs: str
    compared: int = 0
    matched: int = 0
    notes: tuple[str, ...] = ()
    tables: ClaimTables | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A table, figure or sentence of a paper that can be examined.

    ``run(inputs, note, **options) -> Evidence``: ``inputs`` is the folder of published inputs as given (``None``: the
    environment decides; see `planner.files.load.published_file`), ``note`` takes a line about the progress. It
    raises `UsageError` for a folder without what the claim needs, and ``SystemExit`` if it is interrupted. Where it
    ``certifies``, it takes ``certify``, a folder for certificates of its optima, as an option.
    """

    name: str
    paper: str
    summary: str
    run: Callable[..., Evidence]
    options: tuple[Setting, ...] = ()
    certifies: bool = False


def meets(found: float | None, printed: str | None) -> bool:
    """Whether a number is what was printed, to the last printed digit (``None``: no feasible plan).

    >>> meets(61.20861, "61.2086"), meets(61.2091, "61.2086"), meets(None, None), meets(35.0, None)
    (True, False, True, False)
    """
    if found is None or printed is None:
        return found is None and printed is None
    digits = printed.lower().partition("e")[0].replace(".", "").replace("-", "").lstrip("0")
    return f"{found:.{len(digits)}g}" == f"{float(printed):.{len(digits)}g}"


def objective(instance: Any, method: str, *, limits: Limits | None = None, **options: Any) -> float | None:
    """The objective that a method finds, ``None`` if it finds no plan."""
    return verified_result(instance, method, limits=limits, **options).objective


class Optima:
    """Optima of instances; remembers those without a proof, so that every unproved value of a column is reported.

    With ``certify``, a folder, it writes a certificate of every optimum there (`certify.certified_into`),
    or that there is no plan, and remembers those without one, and why.
    """

    def __init__(self, certify: str | None = None) -> None:
        self.found = 0
        self.unproved: list[str] = []
        self.certificates: list[JsonObject] = []
        self._certify = certify
        self._uncertified: list[str] = []

    def of(self, instance: Any, what: str) -> float | None:
        """The optimum, ``None`` if there is no plan; the best known of either if it is not proved, kept as ``what``."""
        return self.result(instance, what).objective

    def result(self, instance: Any, what: str, *, method: str = "exact", limits: Limits | None = None) -> Result:
        """The same with its plan, by an exact method."""
        result = verified_result(instance, method, limits=limits)
        self.found += 1
        if result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            self.unproved.append(what)
        elif self._certify is not None:
            proof = certified_into(self._certify, instance, result, limits=limits)
            result = proof.result
            if result.certificate is None:
                self._uncertified.append(f"{what} ({proof.uncertified})")
            else:
                self.certificates.append({"of": what, **result.certificate})
        return result

    def certified(self) -> tuple[str, ...]:
        """How many are certified, and which of the proved ones are not; empty if none was to be."""
        if self._certify is None:
            return ()
        left = f"; uncertified: {', '.join(self._uncertified)}" if self._uncertified else ""
        return (f"certified in {self._certify}: {len(self.certificates)} of {self.found}{left}",)

    def figures(self) -> dict[str, Any]:
        """The certificates, as a further key of the JSON object; empty if none was to be."""
        return {} if self._certify is None else {"certificates": self.certificates}

    def sentence(self) -> str:
        """How many are proved, and which are not."""
        left = f"; not proved: {', '.join(self.unproved)}" if self.unproved else ""
        return f"proved: {self.found - len(self.unproved)} of {self.found} optima, or that there is no plan{left}"


def verified_result(instance: Any, method: str, *, limits: Limits | None = None, **options: Any) -> Result:
    """The verified result of one method; a signal ends the whole examination."""
    result = solve(instance, method=method, limits=limits, options=options)
    if result.signal:
        raise SystemExit(128 + result.signal)
    return result
