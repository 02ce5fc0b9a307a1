"""A broken rule of a problem."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule of a problem: the rule's name, and a sentence a person can act on."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"
