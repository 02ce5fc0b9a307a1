"""Certificates of results, for those who trust no solver, and the verdict of a problem's checker on them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from formulations.contract.checker.assemble import one_file
from formulations.contract.family import Certificates, Family, UncertifiedError, resolve
from instances.errors import InstanceError
from planner.files.destinations import writable
from planner.files.load import family_named, family_of, validate
from planner.files.read import read_object
from planner.files.settings import expect_types
from planner.files.write import plain, write_atomically
from planner.process.errors import UsageError
from planner.results.result import Result
from planner.solving.solve import silent, solve
from planner.solving.worker import Worker, attend, signals_stop
from planner.types import Instance, JsonObject
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Status, Watch

#: The option that names a folder of certificates.
_FOLDER = "--certify"


@dataclass(frozen=True)
class Certification:
    """A result and the certificate of its bound: ``content`` in JSON types, ``None`` where it is uncertified.

    ``result.certificate`` has the kind, the bytes of the file and the seconds it took. ``uncertified`` says why there
    is none, and the end of ``result.reason`` repeats it.
    """

    result: Result
    content: JsonObject | None
    uncertified: str = ""

    @cached_property
    def text(self) -> str:
        """The certificate's file; empty if there is none."""
        return "" if self.content is None else _text(self.content)


@dataclass(frozen=True)
class Verification:
    """What a checker concludes: every plan takes more than ``bound``, and one takes ``objective``; or why not.

    Without a bound an accepted certificate says that there is no plan. ``reason`` says in words what is proved, or is
    the first rule that fails; numbers are in ``unit``.
    """

    accepted: bool
    problem: str
    kind: str
    objective: float | None
    bound: float | None
    reason: str
    seconds: float
    unit: str = ""

    def __str__(self) -> str:
        if not self.accepted:
            return f"rejected: {self.reason}"
        if self.bound is None:
            return f"accepted: {self.reason}"
        below = f"every plan takes more than {self.bound!r}" if self.bound else "no plan takes less than 0.0"
        own = "" if self.objective is None else f", this one {self.objective!r} {self.unit}"
        return f"accepted: {below} {self.unit}{own}"

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner verify --json`` prints."""
        return dict(vars(self))


def certify(
    instance: Instance,
    result: Result | None = None,
    *,
    limits: Limits | None = None,
    notice: Callable[[str], None] = silent,
) -> Certification:
    """The certificate of a result's bound, or that there is no plan.

    Parameters
    ----------
    instance
        As for `planner.solve`.
    result
        Of this instance; default: that of `planner.solve` with ``exact``.
    limits, notice
        As for `planner.solve`; the time limit is that of each, solving and certifying.

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If the result is another problem's.
    """
    expect_types(limits=limits, notice=notice)
    instance = validate(instance)
    family = family_of(instance)
    if result is None:
        result = solve(instance, exact=True, limits=limits, notice=notice)
    if result.problem != family.name:
        raise UsageError.at("result", result.problem, f"a result of {family.name}")
    try:
        content, seconds = _write(family, instance, result, limits or Limits())
    except (UncertifiedError, SizeError, MemoryError) as error:
        why = str(error) or "memory ran out"
        reasons = (result.reason, f"uncertified: {why}")
        return Certification(replace(result, reason="; ".join(filter(None, reasons))), None, why)
    figures = {"kind": content["proof"]["kind"], "bytes": len(_text(content).encode()), "seconds": seconds}
    return Certification(replace(result, certificate=figures), content)


def _write(family: Family[Any, Any], instance: Any, result: Result, limits: Limits) -> tuple[dict[str, Any], float]:
    """The content of a certificate, and the seconds it took; `UncertifiedError`."""
    reason, certificates = why_uncertified(family, instance, result), family.certificates
    if reason is not None or certificates is None:
        raise UncertifiedError(reason)
    bound = float("inf") if result.bound is None else result.bound
    watch = Watch(limits)

    def work() -> dict[str, Any]:
        return certificates.write(instance, result.plan, bound, watch)

    worker = Worker(lambda: resolve(certificates.write), work, watch)
    with signals_stop(watch) as received:
        if not attend(worker, watch, limits, received):
            raise UncertifiedError("the run was stopped")
    return worker.outcome, worker.seconds


def why_uncertified(family: Family[Any, Any], instance: Any, result: Result) -> str | None:
    """Why a result has no certificate, as far as that is known without writing one; ``None``: `certify` tries."""
    if family.certificates is None:
        return f"{family.name} has no certificates yet"
    if getattr(instance, "requirements", ()):
        return "what is required of a plan beyond the problem's rules is not certified yet"
    if result.bound is None and result.status is not Status.INFEASIBLE:
        return "no bound was proved"
    return family.certificates.refusal(instance)


def certified_into(folder: str, instance: Instance, result: Result, *, limits: Limits | None = None) -> Certification:
    """As `certify`; the certificate is written into a folder (made if need be), and its instance beside it.

    ``result.certificate`` then names the ``file``; both names follow from what is in them, so what is written
    twice is there once.

    `UsageError` if it cannot be written.
    """
    found = certify(instance, result, limits=limits)
    if found.content is None or found.result.certificate is None:
        return found
    with writable(folder, _FOLDER):
        Path(folder).mkdir(parents=True, exist_ok=True)
    content = json.dumps(plain(family_of(instance).to_json(instance)), allow_nan=False) + "\n"
    stem = Path(folder) / f"{result.problem}-{_short(content)}"
    path = f"{stem}-{_short(found.text)}.certificate.json"
    write_atomically(f"{stem}.instance.json", content, _FOLDER)
    write_atomically(path, found.text, _FOLDER)
    return replace(found, result=replace(found.result, certificate={**found.result.certificate, "file": path}))


def verify(instance: Instance, certificate: JsonObject, *, where: str = "certificate") -> Verification:
    """The verdict of the problem's checker, which uses the standard library and exact numbers alone.

    Parameters
    ----------
    certificate
        The content of the file that ``planner certify`` writes.
    where
        Names it in errors.

    Raises
    ------
    InstanceError
        If the certificate is not of the form of one, or the instance breaks a rule.
    UsageError
        If the problem has no certificates.
    """
    expect_types(where=where)
    instance = validate(instance)
    family = family_of(instance)
    checked: Certificates[Any] | None = family.certificates
    if checked is None:
        raise UsageError.at("the instance", family.name, "an instance of a problem that has certificates")
    for key in ("format", "problem", "instance_sha256", "proof"):
        if key not in certificate:
            raise InstanceError.missing(where, key, "a certificate, as planner certify writes it")
    try:
        verdict = checked.verify(plain(family.to_json(instance)), certificate)
    except ValueError as error:
        raise InstanceError.at(where, "content", str(error), "a certificate, as planner certify writes it") from None
    return Verification(**verdict, unit=family.unit(instance))


def checker(problem: str) -> str:
    """The checker of a problem's certificates as one file: Python's standard library alone, its theorem on top.

    Raises
    ------
    UsageError
        If there is no such problem, or it has no certificates.
    """
    expect_types(problem=problem)
    family = family_named(problem)
    if family.certificates is None:
        raise UsageError.at("PROBLEM", problem, "a problem that has certificates")
    return one_file(family.name)


def read_certificate(path: str) -> JsonObject:
    """The JSON object in a certificate's file, or (``-``) on standard input; `InstanceError`."""
    return read_object(path, "a certificate, as planner certify writes it")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _text(content: JsonObject) -> str:
    return json.dumps(plain(content), allow_nan=False, separators=(",", ":")) + "\n"
