"""The claims of the papers that ``planner reproduce`` examines: one module for each paper, listed here."""

from planner.reproduction.amp.common import CLAIMS as AMP
from planner.reproduction.baselines.common import CLAIMS as BASELINES
from planner.reproduction.claim import Claim, Evidence
from planner.reproduction.graphpipe.common import CLAIMS as GRAPHPIPE
from planner.reproduction.graphpipe.schedules import CLAIMS as GRAPHPIPE_SCHEDULES
from planner.reproduction.parmesan.common import CLAIMS as PARMESAN
from planner.reproduction.pipelines.common import CLAIMS as PIPELINES
from planner.reproduction.piper.common import CLAIMS as PIPER

__all__ = ["CLAIMS", "Claim", "Evidence"]

#: Every claim, in the order ``planner reproduce --list`` shows them.
CLAIMS: tuple[Claim, ...] = (*PIPER, *AMP, *GRAPHPIPE, *GRAPHPIPE_SCHEDULES, *PARMESAN, *PIPELINES, *BASELINES)
