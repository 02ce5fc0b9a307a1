"""Validations draw no pictures, which take a second each, but in tests of pictures."""

import pytest


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.node.name:
        monkeypatch.setattr("planner.display.populations.draw_validation", lambda _: [])
