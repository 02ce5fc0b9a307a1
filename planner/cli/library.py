"""The command of the library of instances: ``library``."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from planner.cli import completion
from planner.cli.common import NOTES, Jobs, Notes, deliver, leave, names_of
from planner.cli.declared import argument, option
from planner.process.errors import UsageError

_ACTIONS = ("list", "get", "show", "certificate", "submit", "score")
_NEEDS = {
    "get": "NAME, as planner library list shows it",
    "show": "NAME, as planner library list shows it",
    "certificate": "NAME of an instance whose bound has one",
    "submit": "RESULT.json, as planner solve --json prints it",
    "score": "methods: names, FILE.py:FUNCTION",
}


def library_command(
    action: Annotated[str, argument("|".join(_ACTIONS), "what to do", complete=completion.among(_ACTIONS))],
    what: Annotated[
        str | None, argument("NAME|RESULT.json|METHOD,...", "of get, show, certificate; of submit; of score")
    ] = None,
    problem: Annotated[str | None, option("NAME", "list, score: instances of it", complete=completion.problems)] = None,
    difficulty: Annotated[str | None, option("second|minute|longer|open", "list, score: how long a proof took")] = None,
    count: Annotated[int | None, option("N", "score: the first N instances only", min=1)] = None,
    time_limit: Annotated[float, option("SECONDS", "score: wall time of each instance")] = 60.0,
    jobs: Jobs = 1,
    certificate: Annotated[str | None, option("FILE", "submit: of the bound")] = None,
    library: Annotated[str | None, option("DIR", "where best-known.jsonl is (default: in the package)")] = None,
    table: Annotated[str | None, option("tex|md|csv", "score: print this for a paper")] = None,
    out: Annotated[str | None, option("FILE|DIR", "get, certificate: the file; score: a folder to resume in")] = None,
    view: Notes = NOTES,
) -> None:
    """PlanLib: instances with the best that is known, and scores of methods on them, resumed in --out."""
    from planner.display.library import show_entries, show_known, show_submission
    from planner.experiments.library import entries
    from planner.files.read import read_object
    from planner.files.write import as_json

    if action not in _ACTIONS:
        raise UsageError.unknown("ACTION", action, _ACTIONS)
    if what is None and action in _NEEDS:
        raise UsageError.at(action, "nothing", _NEEDS[action])
    folder = entries.FOLDER if library is None else Path(library)
    if action == "list":
        if what is not None:
            raise UsageError.at("list", what, "nothing; --problem and --difficulty choose")
        chosen, known = entries.select(problem, difficulty, folder), entries.best_known(folder)
        view.show(entries.listing(chosen, known), partial(show_entries, chosen, known))
        return
    assert what is not None
    if action == "get":
        from planner.files.load import family_of

        made = entries.entry(what).make()
        deliver(as_json(family_of(made).to_json(made)) + "\n", out)
    elif action == "show":
        named = entries.entry(what)
        found = entries.best_known(folder).get(what)
        view.show(entries.listing([named], {} if found is None else {what: found}), partial(show_known, named, found))
    elif action == "certificate":
        proofs = entries.certificates(folder)
        if entries.entry(what).name not in proofs:
            raise UsageError.at("NAME", what, "an instance with a certificate (planner library show NAME)")
        deliver(as_json(proofs[what]) + "\n", out)
    elif action == "submit":
        from planner.experiments.library.submit import submit
        from planner.solving.certify import read_certificate

        proof = None if certificate is None else read_certificate(certificate)
        result = read_object(what, "a result, as planner solve --json prints it")
        submitted = submit(result, proof, where=what, folder=folder)
        view.show({"new": submitted.new, **asdict(submitted.known)}, partial(show_submission, submitted))
    else:
        chosen = entries.select(problem, difficulty, folder)[:count]
        if not chosen:
            raise UsageError.at("--problem", problem, "a problem with instances of that difficulty")
        _score(what, chosen, entries.best_known(folder), time_limit, jobs, out, table, view)


def _score(
    methods: str,
    chosen: list[Any],
    known: Any,
    time_limit: float,
    jobs: int,
    out: str | None,
    table: str | None,
    view: Notes,
) -> None:
    from planner.display.library import draw_score, show_score, standings_table
    from planner.display.paper_tables import kind_and_file
    from planner.experiments.bench import folders
    from planner.experiments.bench.measure import MeasuredRow
    from planner.experiments.library.score import score
    from planner.experiments.runner import open_folder
    from planner.files.write import as_json, write_all, write_atomically
    from planner.process.signals import defer
    from solvers.outcome import Limits

    kind, file = (None, None) if table is None else kind_and_file(table)
    folder = None if out is None else Path(out)
    if folder is not None:
        open_folder(str(folder))

    def keep(row: MeasuredRow) -> None:
        view.note(f"{row.instance} {row.method}: {row.seconds:.4g} s")
        if folder is not None and not row.signal:
            folders.keep(folder, row)

    with defer():
        found, ended = score(
            chosen,
            names_of(methods) or [],
            Limits(time_limit),
            known,
            done=[] if folder is None else folders.read_rows(folder),
            keep=keep,
            jobs=jobs,
        )
        if kind is None:
            view.show(found, show_score)
        else:
            deliver(standings_table(found, kind), file)
    if folder is not None:
        files = {"score.json": as_json(found.to_json()) + "\n"}
        files |= {f"table.{each}": standings_table(found, each) for each in ("md", "tex")}
        write_all(*(partial(write_atomically, folder / name, text) for name, text in files.items()))
        draw_score(found, folder)
    if ended.lost:
        raise UsageError(ended.lost)
    leave(ended.signal)
