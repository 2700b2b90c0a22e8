"""A second verifier, which was written from the page alone, says the same as the first."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.evidence import verify
from tests.browser.conftest import Looking
from tests.evidence.conftest import NOW
from tests.evidence.forger import ForgersWorld, forged_copy, forgers_world
from tests.evidence.forgeries import FORGERIES, IN_FULL, Forgery
from tests.evidence.test_redated import redated_bundle

pytestmark = pytest.mark.browser

SCRIPT = Path(verify.__file__).parents[2] / "tests" / "evidence" / "second_verifier.js"

CALL = """([data, now]) => verify(
    Uint8Array.from(atob(data), (each) => each.charCodeAt(0)), BigInt(now))"""

MEMBERS_OF_THE_ENGINE = ("ledger.json", "heard.json", "the policy")
"""Prefixes of documents in the table of forgeries whose members the page does not list."""

OF_THE_ENGINE = {"ledger", "bodies", "provider_signatures", "rendered", "kept_checkpoint"}
"""Steps that the page does not describe: they take the engine, or what the reader has kept."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ForgersWorld:
    return asyncio.run(forgers_world(tmp_path_factory.mktemp("second")))


@pytest.fixture(scope="module")
def second(
    look: Looking[Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[list[bytes]], list[str]]:
    """Return what hands bundles to the second verifier, and returns what it says of each."""
    page_file = tmp_path_factory.mktemp("page") / "page.html"
    page_file.write_text("<!doctype html><title>A second verifier</title>")

    def verified(archives: list[bytes]) -> list[str]:
        def use(browser: Any) -> list[str]:
            page = browser.new_page()
            page.goto(page_file.as_uri())
            page.add_script_tag(path=str(SCRIPT))
            return [
                page.evaluate(CALL, [base64.b64encode(each).decode(), str(NOW)])
                for each in archives
            ]

        found: list[str] = look(use)
        return found

    return verified


def test_both_verifiers_pass_what_nobody_changed(
    world: ForgersWorld, second: Callable[[list[bytes]], list[str]], tmp_path: Path
) -> None:
    redated, _ = asyncio.run(redated_bundle(tmp_path))
    assert second([world.full, world.redacted, redated]) == ["", "", ""]


@pytest.mark.parametrize("each_of", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_both_verifiers_find_the_forgeries(
    world: ForgersWorld, second: Callable[[list[bytes]], list[str]], each_of: int
) -> None:
    """All but those that take the engine, or a checkpoint that was kept: a sixth in the gate."""
    found: list[Forgery] = [
        each for each in FORGERIES
        if each.step not in OF_THE_ENGINE and not each.says.startswith(MEMBERS_OF_THE_ENGINE)
    ][::each_of]  # fmt: skip
    archives = []
    for forgery in found:
        forger = forged_copy(world, world.full if forgery in IN_FULL else world.redacted)
        forgery.tried(forger)
        archives.append(forger.bundle())
    said = second(archives)
    missed = [each.says for each, why in zip(found, said, strict=True) if not why]
    assert missed == []
