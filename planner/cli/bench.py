"""The command that measures: ``bench``."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from planner.cli import completion
from planner.cli.common import READING, Certify, Count, Dask, Jobs, Plans, Reading, Search, leave, names_of, plans_of
from planner.cli.completion import entries
from planner.cli.declared import argument, option
from planner.process.errors import UsageError


def bench_command(
    instances: Annotated[
        list[str] | None, argument("SOURCE", "files, rows, folders, names (as of validate)", complete=entries)
    ] = None,
    suite: Annotated[str | None, option("FILE|NAME,...", "a file, or all,models,piper,scale")] = None,
    methods: Annotated[
        str | None,
        option("A,B,...", "names, FILE.py:FUNCTION; default: auto, or the suite's", complete=completion.methods),
    ] = None,
    plan: Plans = None,
    count: Count = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    repeats: Annotated[int, option("N", "runs; the median counts", min=1)] = 3,
    seeds: Annotated[str | None, option("N,...", "measure with each of them")] = None,
    search: Search = Search(time_limit=60.0),
    out: Annotated[str | None, option("DIR|ROWS.jsonl", "folder to resume in, or a file")] = None,
    certify: Certify = None,
    calibrate: Annotated[str | None, option("DIR", "print seconds per predicted step")] = None,
    compare: Annotated[tuple[str, str] | None, option("A B", "compare two folders or files")] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Measure methods on instances: loss, gap, objective, bound and seconds."""
    from planner.display.bench import markdown, show_comparison, show_rows
    from planner.display.tables import print_json
    from planner.experiments.bench import folders
    from planner.experiments.bench.measure import MeasuredRow, calibration_table, measure, with_losses
    from planner.experiments.bench.suites import cases
    from planner.experiments.runner import open_folder
    from planner.files.destinations import refuse_outputs, refuse_overwriting
    from planner.files.write import as_json, write_all, write_atomically
    from planner.process.signals import defer

    if compare is not None:
        found = folders.compare(*(folders.rows_of(place) for place in compare))
        view.show(found, show_comparison)
        return
    if calibrate is not None:
        print_json(calibration_table(folders.rows_of(calibrate), view.inputs))
        return
    refuse_outputs({"--solver-log": search.solver_log}, *(instances or []), *([suite] if suite else []))
    limits = search.limits()
    every_seed = None if seeds is None else [replace(search, seed=each).limits().seed for each in _seeds(seeds)]
    wanted = cases(instances or [], suite, names_of(methods), settings, view.inputs, plans_of(plan), count, search.seed)
    one_file = out is not None and out.endswith((".jsonl", ".jsonl.gz"))
    if out is not None and one_file:
        refuse_overwriting(out, *(instances or []), *([suite] if suite else []))
    folder = None if out is None or one_file else Path(out)
    if folder is not None:
        open_folder(str(folder))
    rows = [] if folder is None else folders.read_rows(folder)
    writes: list[Callable[[], None]] = []

    def keep(row: MeasuredRow) -> None:
        view.note(f"{row.instance} {row.method}: {row.seconds:.4g} s")
        rows.append(row)
        if folder is not None and not row.signal:
            try:
                folders.keep(folder, row)
            except UsageError as error:  # tried again at the end
                view.note(f"warning: {error}")
                writes.append(partial(folders.keep, folder, row))

    with defer():
        known = {each.key for each in rows}
        ended = measure(wanted, limits, repeats, view.inputs, keep, every_seed, known, certify, jobs, dask)
        rows = with_losses(rows)
        view.show({"rows": [row.to_json() for row in rows]}, lambda _: show_rows(rows))
    if folder is not None:
        whole = [row for row in rows if not row.signal]
        writes.append(partial(folders.write_table, folder, whole, markdown(whole)))
    elif out is not None:
        writes.append(partial(write_atomically, out, "".join(as_json(row.to_json()) + "\n" for row in rows)))
    write_all(*writes)
    if ended.lost:
        raise UsageError(ended.lost)
    leave(ended.signal)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError.at("--seeds", text, "integers, such as 0,1,2") from None
