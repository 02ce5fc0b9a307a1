"""The least path of a Pyomo model at one target after another: slower arcs are left out of its linear program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.layered_paths import State, is_path, on_paths
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import Limits, Watch


class PathWithin(NamedTuple):
    """What the linear program at a target proves: every path costs ``bound``, in the model's units (``None``: unknown).

    ``values`` is a solution that costs no more. If it is a path, ``taken`` are its arcs and ``slowest`` is the time of
    the slowest one; else both are ``None``.
    """

    bound: float | None
    taken: list[int] | None
    slowest: float | None
    values: Any


class LinearPaths:
    """The linear program of a model whose variables ``flow[a]`` take the arcs of one path.

    Arc a joins the states ``ends[a]`` and takes ``times[a]``; every arc stands behind all that enter its tail. A path
    leads from the state (0, 0) to one for which ``is_end`` holds.
    """

    def __init__(
        self,
        model: Any,
        flow: Sequence[Any],
        ends: Sequence[tuple[State, State]],
        times: NDArray[Any],
        is_end: Callable[[State], bool],
        limits: Limits,
        watch: Watch,
    ) -> None:
        self.flow, self.ends, self.times, self.is_end = flow, ends, times, is_end
        self.program = Repeated(model, limits, watch)

    def within(self, target: float) -> PathWithin | None:
        """The least path of arcs that take no longer than a target; ``None`` if there is none."""
        start: Any = (0, 0)
        usable = on_paths(self.ends, (self.times <= target).tolist(), start, self.is_end)
        if not any(usable):
            return None
        found = self.program.run([each for each, used in zip(self.flow, usable, strict=True) if not used])
        if found.values is None or found.bound is None:
            return PathWithin(None, None, None, None)
        taken = [a for a, each in enumerate(self.flow) if found.values[each] > 0.5]
        if not is_path([self.ends[a] for a in taken], start, self.is_end):
            return PathWithin(found.bound, None, None, found.values)
        return PathWithin(found.bound, taken, float(np.max(self.times[taken])), found.values)
