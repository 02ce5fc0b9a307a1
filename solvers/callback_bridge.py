"""Passes what a running solver finds to the caller, across the solver's C++, which no exception may cross."""

from typing import Any

from solvers.outcome import OnBound, OnSolution


class Relay:
    """Reports solutions and bounds; the first exception of a listener is kept for ``finish``.

    Whoever runs the solver ends its search once the relay has ``failed``. ``best_bound`` is the last bound
    reported (``None``: none).
    """

    def __init__(self, on_solution: OnSolution, on_bound: OnBound) -> None:
        self.best_bound: float | None = None
        self._on_solution = on_solution
        self._on_bound = on_bound
        self._error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether a listener has raised."""
        return self._error is not None

    def solution(self, values: Any) -> None:
        """Report a solution; the listener reads ``values[variable]`` before it returns."""
        self._report(self._on_solution, values)

    def bound(self, value: float) -> None:
        """Report a dual bound, unless it is the last one again."""
        if value != self.best_bound:
            self.best_bound = value
            self._report(self._on_bound, value)

    def finish(self) -> None:
        """Raise what a listener raised."""
        if self._error is not None:
            raise self._error

    def _report(self, listener: OnSolution, what: Any) -> None:
        if listener is None or self.failed:
            return
        try:
            listener(what)
        except Exception as error:
            self._error = error
