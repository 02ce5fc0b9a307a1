"""`planner run` of models that are made and captured once for all tests: its forks find them, and end sooner.

That a fork does this itself is what runs of other models do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest


@cache
def example(named: str) -> Any:
    import torch

    from planner.training.capture.models import example_in

    torch.manual_seed(0)
    return example_in(named, meta=False)


@cache
def captured(named: str, samples: int | None = None) -> Any:
    """The model with the inputs that its function gives, or with one sample of them (``samples``: 1)."""
    from planner.training.capture.trace import capture
    from planner.training.runtime import source

    given = example(named)
    if samples is not None:
        given = replace(given, args=source._first(given.args), kwargs=source._first(given.kwargs))
    return capture(given.model, given.args, given.kwargs, name=named)


@contextmanager
def known(named: str, is_by_sample: bool) -> Iterator[None]:
    """Within this, runs find the model; those of stage graphs capture it with one sample."""
    from planner.training.runtime import source

    made, traced, own = example(named), captured(named, 1 if is_by_sample else None), source._capture

    def found(called: str, given: Any, granularity: str) -> Any:
        is_held = given.model is made.model and granularity == "block" and (given is made) != is_by_sample
        return traced if is_held else own(called, given, granularity)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_capture", found)
        patch.setattr(source, "example_in", lambda *_, **__: made)
        yield
