"""Chromium of the distribution for tests of pages; nothing is installed, and no network is used."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips where there is none, or nothing that drives it."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser was asked")
    if _BROWSER is None:
        pytest.skip("no Chromium is installed: the page was checked by a parser alone")
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """An open page, and what a browser complained about or wanted from elsewhere."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def opened(browser: Any, path: Path, width: int = 400, theme: str = "light", scripts: bool = True) -> Iterator[Seen]:
    """A page in a window of its own, with all of its charts drawn."""
    window = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=scripts, has_touch=True
    )
    try:
        seen = Seen(window.new_page())
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("dialog", lambda dialog: (seen.complaints.append(dialog.message), dialog.dismiss()))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri())
        if scripts:
            seen.page.wait_for_selector("body[data-drawn=all]", timeout=60_000)
        yield seen
    finally:
        window.close()
