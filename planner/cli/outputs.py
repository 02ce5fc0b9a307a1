"""What ``solve``, ``alternatives`` and ``sweep`` share: run, show the result, write its plan to files, exit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from planner.cli.common import NO_PROOF, Events, Group, Json, Quiet, Reproducers, exit_code, warn
from planner.cli.declared import flag, option
from planner.files.destinations import refuse_outputs
from planner.files.write import write_all, write_atomically
from planner.process.errors import CrosscheckError, UsageError
from planner.process.signals import defer
from planner.results.result import Result
from solvers.outcome import Limits

Out = Annotated[str | None, option("PLAN.json", "write the plan to a file")]
Plot = Annotated[str | None, option("FILE.png|svg", "draw the plan")]
Trace = Annotated[str | None, option("FILE.json", "write the schedule as Chrome trace")]
Full = Annotated[bool, flag("--full", "every row and column of the table")]
Verbose = Annotated[bool, flag("--verbose", "the figures of the search")]
Certificate = Annotated[str | None, option("FILE", "certify the bound (planner verify)")]


@dataclass(frozen=True)
class Solved:
    """A result and the instance that its plan is of.

    ``rows`` are those of a sweep, ``others`` results beside it, and ``more`` its alternatives or its front. ``answer``
    is what a trainer does with the plan, which is then shown first, and alone unless ``full``; ``answers`` are those of
    ``more``.
    """

    result: Result
    instance: Any
    rows: Sequence[Any] = ()
    others: Sequence[Result] = ()
    more: Any = None
    answer: Any = None
    answers: Sequence[Any] = ()


@dataclass(frozen=True)
class Outputs(Group):
    """Where a result goes, beside stdout."""

    out: Out = None
    plot: Plot = None
    trace: Trace = None
    events: Events = None
    json: Json = False
    quiet: Quiet = False
    reproducer_dir: Reproducers = "reproducers"
    certificate: str | None = None
    full: bool = False
    verbose: bool = False

    def refuse(self, solver_log: str | None, *inputs: str) -> None:
        """`UsageError` for files that cannot be written, or that are inputs."""
        names = ("out", "plot", "events", "trace", "certificate")
        written = {f"--{name}": getattr(self, name) for name in names}
        refuse_outputs({**written, "--solver-log": solver_log}, *inputs)

    def announce(self, instance: Any) -> None:
        """The instance's warnings; `UsageError` for what cannot be drawn of it, before the search."""
        warn(instance, self.quiet)
        if self.plot is not None:
            from planner.display.pictures import refuse_undrawable

            refuse_undrawable(instance, self.plot)
        if self.trace is not None:
            from planner.display.schedules import refuse_untraceable

            refuse_untraceable(instance, self.trace)

    def run(self, work: Callable[[dict[str, Any]], Solved], arguments: dict[str, Any]) -> NoReturn:
        """Do the work with these arguments of `planner.solve`, show and write what it finds, and exit."""
        from planner.display.progress import note, progress_line
        from planner.results.events import complain, event_file

        proof: Iterable[Callable[[], None]] = ()
        with event_file(self.events) as log, defer():
            arguments = {"listen": log.listen, "notice": lambda line: note(self.quiet, line), **arguments}
            try:
                with progress_line(self.quiet) as log.also:
                    found = work(arguments)
            except CrosscheckError as error:
                raise with_reproducer(error, self.reproducer_dir, self.json) from error
            limits: Limits = arguments["limits"]
            if self.certificate is not None:
                from planner.solving.certify import certify

                certified = certify(found.instance, found.result, limits=limits, notice=arguments["notice"])
                found, proof = replace(found, result=certified.result), self._certificate(certified)
            log.end(found.result)
            self._show(found, log.events)
        write_all(partial(complain, self.events, log), *self._writes(found), *proof)
        code = exit_code(found.result, arguments["exact"], limits)
        if found.more is not None and found.more.effort.signal:
            code = 128 + int(found.more.effort.signal)
        elif found.more is not None and not found.more.is_complete:
            code = code or NO_PROOF
        raise typer.Exit(code)

    def _show(self, found: Solved, events: Sequence[Any]) -> None:
        from planner.display.tables import print_json, show_result

        result, loaded, others = found.result, found.instance, list(found.others)
        if self.json:
            compared = {"compared": [each.to_json() for each in others]} if others else {}
            figures = {"strategies": [each.figures() for each in found.answers]} if found.answers else {}
            more = {} if found.more is None else found.more.to_json()
            print_json({**result.to_json(), **compared, **more, **figures})
            return
        listed = None
        if found.answer is not None:
            from planner.display.trainer_answer import show_answer, strategies

            show_answer(found.answer, result)
            listed = strategies(found.answers)
        if found.answer is None or self.full:
            if found.rows:
                from planner.display.nearby import show_sweep

                show_sweep(found.rows, result.unit)
                result = replace(result, stats={name: own for name, own in result.stats.items() if name != "sweep"})
            result, *others = (replace(each, of=loaded) for each in (result, *others))
            show_result(result, others, verbose=self.verbose, full=self.full, events=events)
        if found.more is not None:
            from planner.display.nearby import show_nearby

            show_nearby(found.more, result, listed)

    def _writes(self, found: Solved) -> Iterator[Callable[[], None]]:
        """What writes the plan to every file that is wanted, a sweep above its picture; without one a note of each."""
        from planner.display.progress import note
        from planner.results.save import plan_file

        def draw_all(path: str, plan: Any) -> None:
            from planner.analysis.sweep import heat_of
            from planner.display.pictures import draw

            draw(path, found.instance, plan, *([heat_of(found.rows, found.result.unit)] if len(found.rows) > 1 else []))

        def trace(path: str, plan: Any) -> None:
            from planner.display.schedules import write_trace

            write_trace(path, found.instance, plan)

        plan = found.result.plan
        writers: dict[str, Callable[[str, Any], None]] = {
            "out": lambda path, _: write_atomically(path, plan_file(found.result)),
            "plot": draw_all,
            "trace": trace,
        }
        for name, write in writers.items():
            path = getattr(self, name)
            if path is not None and plan is None:
                note(self.quiet, f"--{name} {path}: there is no plan to write")
            elif path is not None:
                yield partial(write, path, plan)

    def _certificate(self, certified: Any) -> Iterator[Callable[[], None]]:
        """What writes a certificate; without one a note."""
        from planner.display.progress import note

        if certified.content is None:
            note(
                self.quiet,
                f"--certificate {self.certificate}: there is nothing to write: uncertified: {certified.uncertified}",
            )
        elif self.certificate is not None:
            yield partial(write_atomically, self.certificate, certified.text, "--certificate")


def with_reproducer(error: CrosscheckError, folder: str, json: bool) -> CrosscheckError:
    """Write the reproducer; the error that names it."""
    from planner.display.tables import print_json
    from planner.solving.compare import write_reproducer

    try:
        path: str | None = write_reproducer(folder, {**error.evidence, "contradictions": [str(error)]})
        said = f"{error} (reproducer: {path})"
    except UsageError as unwritten:
        path, said = None, f"{error} (no reproducer: {unwritten})"
    if json:
        print_json({"agree": False, "contradictions": [str(error)], "reproducer": path})
    return CrosscheckError(said)
