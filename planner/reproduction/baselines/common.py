"""The claims about planners that the papers compare with: what each finds, and what it loses."""

from __future__ import annotations

from planner.reproduction.baselines import pipedream
from planner.reproduction.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "pipedream-vgg16",
        "PipeDream, partition of VGG-16",
        "PipeDream's recursion on its own profile beside the stages of its release",
        pipedream.released,
    ),
    Claim(
        "pipedream-loss",
        "PipeDream, section 3.1",
        "what PipeDream's costs lose by Piper's: its plan, the best one of its space, and the best one of all",
        pipedream.losses,
    ),
)
