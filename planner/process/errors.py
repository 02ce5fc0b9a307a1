"""What can go wrong above the methods: bad usage, and methods that contradict each other."""

from collections.abc import Mapping
from typing import Any

from solvers.errors import UsageError, closest

__all__ = ["CrosscheckError", "UsageError", "closest"]


class CrosscheckError(Exception):
    """A plan that breaks the rules, a bound above a verified plan, or two proofs that exclude each other.

    ``evidence`` is what a person needs to reproduce it, in JSON types.
    """

    def __init__(self, message: str, evidence: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.evidence = dict(evidence or {})
