"""What a result rests on: digests of its instance and its plan, and the versions that made it."""

import hashlib
import json
import weakref
from functools import cache
from typing import Any

from planner.files.write import plain
from planner.process.versions import versions
from planner.types import JsonObject

#: The instance whose digest was made last: the results of a comparison have the same one.
_LAST: list[tuple[weakref.ref[Any], str]] = []


def fingerprint(instance: Any, plan: JsonObject | None) -> JsonObject | None:
    """SHA-256 of the instance's and the plan's JSON, and the versions; equal ones rest on the same.

    ``instance``: ``None``: not known, as of a result that came from another process; then nothing is.
    ``plan``: in the family's JSON form; ``None``: there is none.
    Returns: ``instance`` and ``plan`` (64 hexadecimal digits each, or no plan: ``None``) and ``versions``.
    """
    if instance is None:
        return None
    return {
        "instance": _of_instance(instance),
        "plan": None if plan is None else _digest(plan),
        "versions": dict(_versions()),
    }


def _of_instance(instance: Any) -> str:
    from planner.files.load import family_of

    for known, digest in _LAST:
        if known() is instance:
            return digest
    digest = _digest(family_of(instance).to_json(instance))
    _LAST[:] = [(weakref.ref(instance), digest)]
    return digest


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(plain(content), allow_nan=False).encode()).hexdigest()


@cache
def _versions() -> dict[str, str]:
    return versions()
