"""Pictures as library functions: plain data in, charts out, units on the axes, colours from `planner.display.palette`.

A `Chart` is a Vega-Lite specification and its rows. `Sheet` shows charts in a notebook and `save` writes them to a file
(``pip install '.[plot]'``), both as wide as wanted; `vega_lite` gives a chart with its data to others.
The pages of ``planner report`` draw the same charts. `panels` knows what to draw of a plan of each family.
"""

from planner.display.palette import DARK, LIGHT, PRINT
from planner.display.plots.chart import Chart
from planner.display.plots.files import Sheet, save, vega_lite
from planner.display.plots.graphs import graph
from planner.display.plots.methods import losses_of, over_time
from planner.display.plots.networks import bandwidth, matrix, network, tiles, topology
from planner.display.plots.numbers import (
    bars,
    curves,
    ecdf,
    frontier,
    gap_histogram,
    gap_over_time,
    losses,
    over_devices,
    profile,
    quantiles,
    ranked,
)
from planner.display.plots.panels import panels, panels_of
from planner.display.plots.schedules import passes
from planner.display.plots.strips import stack, strip
from planner.display.plots.tradeoffs import heat, tradeoff

__all__ = [
    "DARK",
    "LIGHT",
    "PRINT",
    "Chart",
    "Sheet",
    "bandwidth",
    "bars",
    "curves",
    "ecdf",
    "frontier",
    "gap_histogram",
    "gap_over_time",
    "graph",
    "heat",
    "losses",
    "losses_of",
    "matrix",
    "network",
    "over_devices",
    "over_time",
    "panels",
    "panels_of",
    "passes",
    "profile",
    "quantiles",
    "ranked",
    "save",
    "stack",
    "strip",
    "tiles",
    "topology",
    "tradeoff",
    "vega_lite",
]
