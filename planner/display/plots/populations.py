"""Charts of many instances: how losses are distributed, how seconds compare, and what losses depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.display.palette import dashes, line_colour
from planner.display.plots.marks import label_of, quiet_frame
from solvers.outcome import OPTIMAL_GAP

MARKERS = ("o", "x", "^", "s", "+", "D")
#: Losses below this, in percent, are drawn on a linear scale.
_LINEAR = 0.1


def ecdf(axes: Any, found: Mapping[str, Sequence[float | None]], reference: str = "optimum") -> Any:
    """Share of the instances with at most a loss, a line for each method; without a plan a loss is beyond all others.

    Parameters
    ----------
    found
        By method its loss on every instance; ``None``: it has no plan, or nothing is known to compare it with.
    reference
        What the loss is to.
    """
    most = max((100 * loss for losses in found.values() for loss in losses if loss is not None), default=0.0)
    for index, (method, losses) in enumerate(found.items()):
        if all(loss is None for loss in losses):
            axes.plot([], [], label=f"{label_of(method)} (no loss known)", **_style(index))
        known = sorted(0.0 if loss <= OPTIMAL_GAP else 100 * loss for loss in losses if loss is not None)
        shares = [(place + 1) / len(losses) for place in range(len(known))]
        if known:
            ends = [*known, max(most, _LINEAR)]
            axes.step(ends, [*shares, shares[-1]], where="post", label=label_of(method), **_style(index))
    axes.set_xscale("symlog", linthresh=_LINEAR)
    axes.set(xlim=(0, max(most, _LINEAR) * 1.05), ylim=(0, 1.02))
    axes.set(xlabel=f"loss to the {reference}, % (0: optimal)", ylabel="share of instances with at most this loss")
    return _explained(axes)


def profile(axes: Any, found: Mapping[str, Sequence[float | None]]) -> Any:
    """Performance profile of seconds: share of the instances on which a method was at most so many times slower.

    Parameters
    ----------
    found
        By method its seconds on every instance; ``None``: it has no plan.

    Source
    ------
    Dolan and Moré, Benchmarking optimization software with performance profiles (2002).
    """
    best = [min((each for each in row if each is not None), default=None) for row in zip(*found.values(), strict=True)]
    ratios = {
        method: sorted(
            own / quickest if quickest else 1.0
            for own, quickest in zip(seconds, best, strict=True)
            if own is not None and quickest is not None
        )
        for method, seconds in found.items()
    }
    most = max((each[-1] for each in ratios.values() if each), default=1.0)
    for index, (method, own) in enumerate(ratios.items()):
        shares = [(place + 1) / len(best) for place in range(len(own))]
        if own:
            ends, heights = [1.0, *own, most * 1.05], [0.0, *shares, shares[-1]]
            axes.step(ends, heights, where="post", label=label_of(method), **_style(index))
    axes.set(xscale="log", xlim=(1, max(most, 2.0) * 1.05), ylim=(0, 1.02))
    axes.set(xlabel="seconds over those of the quickest method", ylabel="share of instances with a plan within this")
    return _explained(axes)


def scattered(
    axes: Any, feature: Sequence[float | None], found: Mapping[str, Sequence[float | None]], name: str
) -> Any:
    """Loss over a feature of the instance, a point for each instance and method.

    Parameters
    ----------
    feature
        Of every instance; ``None``: unknown, not drawn.
    found
        As of `ecdf`.
    name
        What the feature is called.
    """
    for index, (method, losses) in enumerate(found.items()):
        pairs = [(x, 100 * loss) for x, loss in zip(feature, losses, strict=True) if x is not None and loss is not None]
        if pairs:
            shade = line_colour(index)
            marker = MARKERS[index % len(MARKERS)]
            axes.scatter(*zip(*pairs, strict=True), s=14, color=shade, marker=marker, alpha=0.5, linewidths=0.8)
            axes.scatter([], [], s=14, color=shade, marker=marker, label=label_of(method))
    axes.set_yscale("symlog", linthresh=_LINEAR)
    axes.set_ylim(bottom=-_LINEAR / 4)
    if all(isinstance(x, int | None) for x in feature):
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=name, ylabel="loss, %")
    return _explained(axes)


def _style(index: int) -> dict[str, Any]:
    return {"color": line_colour(index), "linestyle": dashes(index), "linewidth": 1.6}


def _explained(axes: Any) -> Any:
    """The key stands beside the picture."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    quiet_frame(axes, "left", "bottom")
    return axes
