"""The files of a counter-example: the instance, both plans, and the certificate of the optimum where there is one."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from planner.experiments.mining.mine import Mined
from planner.files.write import plain, write_atomically
from planner.process.errors import CrosscheckError
from planner.results.save import plan_file, text_of
from planner.solving.certify import certify, verify
from solvers.outcome import Limits

#: Seconds that writing a certificate may take.
CERTIFY_S = 60.0


class Files(NamedTuple):
    """Where the instance, the plan of the method, that of the reference, and the certificate go."""

    out: str
    plan: str
    optimal: str
    certificate: str


def files_of(out: str, method: str, against: str) -> Files:
    """For ``worst.json``: ``worst.piper.json``, ``worst.exact.json`` and ``worst.certificate.json`` beside it."""
    stem = re.sub(r"\.json(\.gz)?$", "", out)
    plan, optimal = (f"{stem}.{_word(name)}.json" for name in (method, against))
    return Files(out, plan, optimal, f"{stem}.certificate.json")


def _word(method: str) -> str:
    """What a file can be called after a method: ``./mine.py:solve`` gives ``mine-solve``."""
    file, _, function = method.rpartition(":")
    return re.sub(r"[^\w-]+", "-", f"{Path(file).stem}-{function}" if file else function)


def writes(found: Mined, files: Files) -> tuple[list[Callable[[], None]], Mapping[str, Any] | None]:
    """What writes the files, and the figures of the certificate if the optimum has one that its checker accepts.

    `CrosscheckError` if the checker rejects the certificate.
    """
    if found.instance is None or found.reference is None:
        return [], None
    made: list[Callable[[], None]] = [partial(write_atomically, files.out, text_of(found.instance))]
    for result, file in ((found.result, files.plan), (found.reference, files.optimal)):
        if result is not None and result.plan is not None:
            made.append(partial(write_atomically, file, plan_file(result)))
    proof = certify(found.instance, found.reference, limits=Limits(time_s=CERTIFY_S))
    if proof.content is None:
        return made, None
    verdict = verify(found.instance, plain(proof.content))
    if not verdict.accepted:
        raise CrosscheckError(f"the certificate of {found.against} is rejected: {verdict.reason}")
    return [*made, partial(write_atomically, files.certificate, proof.text)], proof.result.certificate
