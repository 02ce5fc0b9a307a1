"""How long things take on a machine that others use as well."""

import os


def allowed_s(quiet_s: float) -> float:
    """How long something may take now that takes at most so many seconds on a quiet machine."""
    return quiet_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
