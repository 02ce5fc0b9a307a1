"""Longest chains of passes: how early a pass may start, and how much must follow it, by precedences alone."""

from __future__ import annotations

from dataclasses import dataclass

from formulations.simulation.simulate_graph import PassGraph


@dataclass(frozen=True)
class Chains:
    """For each pass the seconds that must lie before its start and after its end."""

    heads: list[float]
    tails: list[float]


def chains(graph: PassGraph) -> Chains:
    """Longest chains of precedences, without regard to stages being busy. The graph must be possible."""
    order = graph.sorted()
    heads, tails = [0.0] * len(order), [0.0] * len(order)
    for number in order:
        end = heads[number] + graph.seconds[number]
        for later, lag in graph.after[number]:
            heads[later] = max(heads[later], end + lag)
    for number in reversed(order):
        for later, lag in graph.after[number]:
            tails[number] = max(tails[number], lag + graph.seconds[later] + tails[later])
    return Chains(heads, tails)
