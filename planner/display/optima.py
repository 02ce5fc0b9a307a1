"""Tables of optima by devices and one thing more: on a terminal, as CSV and as pictures."""

from collections.abc import Callable, Iterator

from rich.console import Console

from planner.analysis.frontier import ByMemory, Frontier, Optima
from planner.display.headlines import headline
from planner.display.plots.chart import Chart
from planner.display.plots.files import save
from planner.display.plots.numbers import frontier, over_devices
from planner.display.plots.panels import panels_of
from planner.display.terminal import bold, console, table
from planner.files.write import write_atomically
from planner.results import texts
from planner.results.texts import plural, short_amount


def show_optima(found: Optima) -> None:
    """Print how the run ended, and some of the table if there is one."""
    out = console()
    out.print(bold(found.instance), f" {texts.facts(found.options)}")
    out.print(f"{found.seconds:.4g} s ({found.stop})  {texts.facts(found.stats)}".rstrip())
    if found.times is not None and isinstance(found, ByMemory):
        _show_by_memory(found, out)
    elif found.times is not None and isinstance(found, Frontier):
        _show_frontier(found, out)


def writes(found: Optima, out: str | None, picture: str | None) -> Iterator[Callable[[], None]]:
    """What writes the table as CSV and its plot, where they are requested and there is a table."""
    if found.times is None:
        return
    if out is not None:
        yield lambda: write_atomically(out, found.to_csv())
    if picture is not None:
        has_plan = any(time is not None for times in found.times for time in times)
        drawn = [*panels_of(found.heat), *([lines(found)] if has_plan else [])]
        yield lambda: save(drawn, picture, found.instance)


def lines(found: Optima) -> Chart:
    """Times over devices as lines: one for each memory, or for each of a few bounds on the sum of degrees."""
    title, times = "Least time per sample", found.times or []
    if isinstance(found, ByMemory):
        names = [short_amount(memory, "bytes") for memory in found.memories]
        return over_devices(dict(zip(names, times, strict=False)), found.unit, title, "by memory of a device")
    assert isinstance(found, Frontier)
    best = found.best
    half = best[len(best) // 2 - 1] if len(best) > 1 else None
    says = ""
    if half is not None and best[-1]:  # what the second half of the devices buys
        says = f"{len(best)} devices are {half / best[-1]:.3g} times as fast as {len(best) // 2}"
    return frontier(times, found.unit, title, says)


def _show_frontier(found: Frontier, out: Console) -> None:
    """Print how large it is, and its best entries for a few numbers of devices."""
    rows = found.times or [[]]
    if not found.corners:
        out.print(f"no plan with up to {plural(len(rows), 'device')} and a sum of degrees up to {len(rows[0])}")
        return
    out.print(f"{len(rows)} x {len(rows[0])} entries, {plural(len(found.corners), 'corner')}")
    shown = []
    for k in _some_devices(len(rows)):
        row = rows[k - 1]
        shown.append((str(k), texts.number(row[-1]), "-" if row[-1] is None else str(row.index(row[-1]) + 1)))
    out.print(table(("devices", f"best, {found.unit}", "smallest sum of degrees that gives it"), shown))


def _show_by_memory(found: ByMemory, out: Console) -> None:
    """Print the least times for a few numbers of devices, and what more would buy."""
    rows = found.times or [[]]
    heads = ["devices", *(short_amount(memory, "bytes") for memory in found.memories)]
    counts = sorted({*_some_devices(len(rows[0])), found.devices})
    out.print(f"least time per sample, {found.unit}, by devices and memory of a device", highlight=False)
    out.print(table(heads, ([str(k), *(texts.number(row[k - 1]) for row in rows)] for k in counts)))
    out.print(headline(found.heat), highlight=False)


def _some_devices(most: int) -> list[int]:
    """Powers of two, and the largest number."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
