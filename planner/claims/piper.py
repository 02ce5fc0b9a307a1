"""The claims of Piper that can be examined here."""

from __future__ import annotations

from formulations.family import lazy
from planner.claims.claim import Claim

_PAPER = "Piper"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "piper-table-1",
        f"{_PAPER}, Table 1",
        "Piper and equi on GNMT and Resnet50, every printed digit, beside the optimum on the graph",
        lazy("planner.claims.piper_table_1:run"),
    ),
    Claim(
        "piper-fig-4",
        f"{_PAPER}, Figure 4",
        "predicted time per sample of 16 hand-made configurations of BERT-32 on 64 devices",
        lazy("planner.claims.piper_fig_4:run"),
    ),
)
