"""What the backends' tests share."""

from __future__ import annotations

import pytest
from backend_models import Bench

from solvers import BACKENDS


@pytest.fixture(params=list(BACKENDS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)
