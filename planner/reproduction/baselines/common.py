"""The claims about planners that the papers compare with: what each finds, and what it loses."""

from __future__ import annotations

from instances.parameters import Setting, parse_amount, parse_count
from planner.reproduction.baselines import pipedream, zero_bubble
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
    Claim(
        "zero-bubble-auto",
        "Qi et al. 2024, section 3.1",
        "what the automatic scheduler loses against the best order at the same memory",
        zero_bubble.run,
        (
            Setting("chains", parse_count, "of unequal stages, of each kind", metavar="N", default="4"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="5"),
        ),
    ),
)
