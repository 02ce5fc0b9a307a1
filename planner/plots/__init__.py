"""Pictures as library functions: axes in, axes out, units on the axes, readable in grey.

Matplotlib is an extra (``pip install 'dnn-planner[plot]'``); only `planner.plots.files` imports it. `panels` knows what
to draw of a plan of each family; everything else draws plain numbers.
"""

from planner.plots.charts import bars, frontier, gap_histogram, gap_over_time
from planner.plots.networks import bandwidth, graph, mapping, tiling, topology
from planner.plots.panel import Panel
from planner.plots.panels import panels
from planner.plots.schedules import gantt

__all__ = [
    "Panel",
    "bandwidth",
    "bars",
    "frontier",
    "gantt",
    "gap_histogram",
    "gap_over_time",
    "graph",
    "mapping",
    "panels",
    "tiling",
    "topology",
]
