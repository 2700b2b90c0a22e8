"""A real browser, where one is installed."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.waiting import PATIENCE_S

CHROMIUM = Path("/usr/bin/chromium")
Seen = TypeVar("Seen")
Looking = Callable[[Callable[[Any], Seen]], Seen]


def new_context(browser: Any, **words: Any) -> Any:
    """Return a new browser session, as patient as all other waits of the tests."""
    context = browser.new_context(**words)
    context.set_default_timeout(PATIENCE_S * 1_000)
    context.set_default_navigation_timeout(PATIENCE_S * 1_000)
    return context


@pytest.fixture(scope="session")
def look() -> Iterator[Looking[Any]]:
    """Yield a function that hands Chromium to another and returns its result.

    One browser serves all tests, with new contexts each time. It runs in a thread, since its
    driver's event loop must not be that of the tests. Skips without a browser.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is not installed")
    driver = pytest.importorskip("playwright.sync_api")
    with ThreadPoolExecutor(1) as thread:
        playwright = thread.submit(driver.sync_playwright().start).result()
        # A root user's browser has no sandbox of its own; it only opens files that tests made.
        words = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        opening = partial(
            playwright.chromium.launch, executable_path=str(CHROMIUM), args=words,
            timeout=PATIENCE_S * 1_000,
        )  # fmt: skip
        browser = thread.submit(opening).result()

        def looking(use: Callable[[Any], Any]) -> Any:
            try:
                return use(browser)
            finally:
                for context in browser.contexts:
                    context.close()

        yield lambda use: thread.submit(looking, use).result()  # a hang ends with its test
        thread.submit(browser.close).result()
        thread.submit(playwright.stop).result()
