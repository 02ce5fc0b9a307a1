"""Matrices of one kind: a part of their cases by default, and all of them among the slow tests."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def thinned(
    argnames: str | tuple[str, ...],
    cases: Iterable[Any],
    every: int = 4,
    *,
    of: Callable[..., Hashable] = lambda *_: None,
    ids: Any = None,
) -> pytest.MarkDecorator:
    """``parametrize``: by default each ``every``-th case of a group (``of`` its values), from the first; else slow."""
    seen: Counter[Hashable] = Counter()
    several = not isinstance(argnames, str) or "," in argnames
    found = []
    for case in cases:
        given = case if hasattr(case, "marks") else pytest.param(*case) if several else pytest.param(case)
        group = of(*given.values)
        marks = () if seen[group] % every == 0 else (pytest.mark.slow,)
        seen[group] += 1
        found.append(pytest.param(*given.values, id=given.id, marks=(*given.marks, *marks)))
    return pytest.mark.parametrize(argnames, found, ids=ids)
