"""Piper's published profiles, or the catalog's instance that stands in for them."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.files.load import load, published_file
from planner.process.errors import UsageError

PUBLISHED = "published"
#: The inputs of a claim's rows without the published profiles.
ANALYTIC = "analytic instances of the catalog; the published profiles are not here, so no printed number is compared"

#: The authors' bandwidth.
BANDWIDTH = "25GiB/s"


def published_model(name: str, inputs: str | None) -> Path | None:
    """The published profile of that name; ``None`` if there is none and no folder was given.

    Raises
    ------
    UsageError
        If a folder was given that does not have it.
    """
    path = published_file(f"{name}.json", inputs)
    if path is None and inputs is not None:
        rule = f"a folder that holds {name}.json or piper{os.sep}{name}.json"
        raise UsageError.at("--inputs", inputs, rule)
    return path


def bert(inputs: str | None, **overrides: Any) -> Any:
    """The published 32-layer BERT, or the analytic one with the same conventions of memory."""
    path = published_model("bert32a100", inputs)
    if path is not None:
        return load(path, **overrides)
    return load("bert32", published_conventions=True, **overrides)


def source(inputs: str | None, *names: str) -> str:
    """In words, where the instances come from."""
    return PUBLISHED if all(published_model(name, inputs) for name in names) else ANALYTIC


def require_some(devices: int, counts: Iterable[int]) -> None:
    """`UsageError` if a bound on the devices leaves none of the clusters of a claim."""
    least = min(counts)
    if devices < least:
        raise UsageError.at("--devices", devices, f"at least {least}, the smallest cluster of this claim")
