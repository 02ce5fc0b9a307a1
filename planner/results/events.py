"""Gap over time: what a running method reports of its incumbent and bound, as events and as JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TextIO

from planner.files.destinations import unwritable
from planner.files.write import open_to_append, plain
from planner.results.result import Result
from solvers.outcome import relative_gap


@dataclass(frozen=True)
class Event:
    """What is known of a run after ``seconds`` (the method's own clock): incumbent and proved bound, if any.

    The objective is as the method reports it; the plan is verified when the run ends.
    """

    problem: str
    instance: str
    method: str
    seconds: float
    objective: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """``(objective - bound) / objective``, ``None`` where one of them is absent."""
        return relative_gap(self.objective, self.bound)

    @classmethod
    def of(cls, result: Result) -> "Event":
        """What a run ended with."""
        return cls(result.problem, result.instance, result.method, result.seconds, result.objective, result.bound)


def improvements(events: Iterable[Event]) -> tuple[tuple[float, float], ...]:
    """Seconds and objective of the events that have another plan than the event before; the last is what holds."""
    known = [(each.seconds, each.objective) for each in events if each.objective is not None]
    return tuple(next(same) for _, same in groupby(known, key=lambda each: each[1]))


def primal_integral(found: Iterable[tuple[float, float]], best: float, time_s: float) -> float:
    """The primal integral over a time limit, as a share of it: 0, the best at once; 1, no plan in all the time.

    It is the mean over the time of the primal gap: ``1 - best / objective`` of the plan that is there (0 below
    ``best``), and 1 before the first plan.

    ``found``: seconds and (positive) objective of each improvement, as of `improvements`; what comes after ``time_s``
    is late.
    ``best``: the best objective that is known.
    ``time_s``: seconds, above 0.
    Source: Berthold, Measuring the impact of primal heuristics (2013), section 3: P(T) / T.

    >>> primal_integral([(1.0, 4.0), (3.0, 2.0)], 2.0, 4.0)
    0.5
    >>> primal_integral([], 2.0, 4.0)
    1.0
    """
    gap, since, total = 1.0, 0.0, 0.0
    for seconds, objective in found:
        until = min(seconds, time_s)
        total += gap * (until - since)
        gap, since = 1.0 - best / objective if objective > best else 0.0, until
    return (total + gap * (time_s - since)) / time_s


Listen = Callable[[Event], None]


class Told:
    """Passes the events of a run on to who listens (``None``: nobody), and in the end what holds, if that is news."""

    def __init__(self, listen: Listen | None) -> None:
        self.listen, self._last = listen, Event("", "", "", 0.0, None, None)

    def tell(self, event: Event) -> None:
        """Pass one event on."""
        if self.listen is not None:
            self._last = event
            self.listen(event)

    def end(self, result: Result, since_s: float = 0.0) -> None:
        """The last event has the objective and the bound of the result, whose run began after ``since_s``."""
        if (self._last.objective, self._last.bound) != (result.objective, result.bound):
            seconds = max(self._last.seconds, since_s + result.seconds)
            self.tell(replace(Event.of(result), seconds=seconds))


_OPTION = "--events"


class EventFile:
    """Receives events, keeps them, writes a JSON line for each as it comes (readable at any time), and passes it on.

    ``stream`` may be ``None`` (nothing is written) and so may ``also`` (nobody else listens). A run does not end for a
    line that could not be written: ``failure`` says why, and no other line is written.
    """

    def __init__(self, stream: TextIO | None, also: Listen | None = None) -> None:
        self._stream, self.also = stream, also
        self.events: list[Event] = []
        self.failure: OSError | None = None

    def listen(self, event: Event) -> None:
        """Receive one event."""
        self.events.append(event)
        self._write({**vars(event), "gap": event.gap})
        if self.also is not None:
            self.also(event)

    def end(self, result: Result) -> None:
        """Write how a run ended: the verified objective, the bound that holds, status and stop."""
        self.events.append(Event.of(result))
        names = ("problem", "instance", "method", "seconds", "objective", "bound", "gap")
        ended = {"status": result.status.value, "stop": result.stop.value}
        self._write({**{name: getattr(result, name) for name in names}, **ended})

    def _write(self, fields: dict[str, Any]) -> None:
        if self._stream is not None and self.failure is None:
            try:
                self._stream.write(json.dumps(plain(fields), allow_nan=False) + "\n")
                self._stream.flush()
            except OSError as error:
                self.failure = error

    def close(self) -> None:
        """Nothing more is written."""
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError as error:
                self.failure = self.failure or error


@contextmanager
def event_file(path: str | None) -> Iterator[EventFile]:
    """Open the file for events (``None``: there is none).

    `UsageError` if the file cannot be opened; `complain` reports what goes wrong later.
    """
    found = EventFile(None if path is None else open_to_append(path, _OPTION))
    try:
        yield found
    finally:
        found.close()


def complain(path: str | None, log: EventFile) -> None:
    """`UsageError` if an event could not be written: when the result is out."""
    if path is not None and log.failure is not None:
        raise unwritable(path, _OPTION, log.failure)
