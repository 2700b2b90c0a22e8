"""One world for all tests of bundles: built once, looked at often."""

import asyncio
import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import rfc8785

from app.core.clock import SetClock
from app.evidence import keys
from app.evidence import verify_evidence as verify_evidence_module
from app.evidence.bundle import ABOUT, KEY, KEY_PEM, BundleRequest, build_evidence
from app.evidence.keys import EvidenceKey, write_key
from app.evidence.seal import open_signer, seal_all
from app.evidence.verify import (
    MANIFEST,
    NOT_IN_FORM,
    SIGNATURE,
    Bundle,
    VerifyStep,
    Wrong,
    pack,
    report_lines,
    unpack,
)
from app.evidence.verify_evidence import VerifiedBundle, rendered_again, verify_evidence
from app.finance.read_lines import lines_naming
from app.orders.refold import refold_until_quiet
from reconcile.instants import DAY, SECOND
from reconcile.transparency.evidence import ledger_of
from tests.api.driving import Driver, driving
from tests.evidence.world import LATER, live_through

NOW = LATER + 365 * DAY
"""Instant at which bundles are verified."""

Members = dict[str, bytes]
"""Files of a bundle, by name."""

Change = Callable[[Members], object]


async def build(driver: Driver, order: str = "ORD-1", **asked: Any) -> bytes:
    """Return an order's bundle as of LATER."""
    words: dict[str, Any] = {"order": order, "as_of": LATER}
    request = BundleRequest(**words | asked)
    await open_signer(driver.context)
    built = await build_evidence(driver.context, request, lines=lines_naming)
    return built.archive


async def seal_now(driver: Driver) -> None:
    """Fold and seal all that has come."""
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    await seal_all(driver.context, await open_signer(driver.context))


def steps(bundle: bytes | VerifiedBundle, **words: Any) -> dict[str, VerifyStep]:
    """Return the steps that the verifier makes, or made, by name."""
    found = verify_evidence(bundle, **words) if isinstance(bundle, bytes) else bundle
    return {each.name: each for each in found.steps}


def failed(bundle: bytes | VerifiedBundle, **words: Any) -> list[str]:
    """Return the names of the steps that fail."""
    return [name for name, each in steps(bundle, **words).items() if each.passed is False]


def first_lines(found: VerifiedBundle) -> str:
    """Return what a reader sees before any step."""
    lines = report_lines(list(found.steps), found.not_proven)
    return "\n".join(lines[: 2 + len(found.not_proven)])


def a_delivery(members: Members) -> str:
    """Return the name of the first delivery's file."""
    return min(each for each in members if each.startswith("delivery-") and each.endswith(".json"))


@dataclass(frozen=True)
class Bundles:
    """A redacted and a full bundle of ORD-1, the redacted one as it is built later on, and the key
    that signed them."""

    redacted: bytes
    full: bytes
    again: bytes
    key: EvidenceKey


@pytest.fixture(scope="session", autouse=True)
def verifiers_clock() -> Iterator[None]:
    """Let whoever verifies do so a year after everything has been said."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verify_evidence_module, "SystemClock", lambda: SetClock(NOW))
        yield


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Return bundles of one service. Before the last, more has happened and was sealed."""
    folder = tmp_path_factory.mktemp("evidence")

    async def world() -> Bundles:
        async with driving(folder, with_worker=False, looking=True) as driver:
            await live_through(driver)
            redacted = await build(driver)
            full = await build(driver, reason="dispute 12")
            driver.clock.put(LATER + 10 * SECOND)
            await driver.api("PUT", "/orders/ORD-1", json={"amount": "1501.00", "currency": "KES"})
            await build(driver, as_of=None)
            signer = await open_signer(driver.context)
            return Bundles(redacted, full, await build(driver), signer.key)

    return asyncio.run(world())


@pytest.fixture(scope="session")
def forger(tmp_path_factory: pytest.TempPathFactory) -> EvidenceKey:
    """Return somebody else's key."""
    return write_key(tmp_path_factory.mktemp("forger") / "key", secret=b"f" * 32)


Forge = Callable[..., bytes]


def forged_with(
    key: EvidenceKey,
    archive: bytes,
    change: Change,
    *,
    pem: str | None = None,
    rendering: bool = True,
) -> bytes:
    """Return a changed bundle, signed again by a key, in which everything fits again.

    pem        another key in the form that openssl reads
    rendering  whether what is rendered from the rest is rendered again, too
    """
    members = copy.copy(unpack(archive))
    change(members)
    members[KEY] = keys.public_key_text(key.public).encode()
    members[KEY_PEM] = (pem or key.public.pem()).encode()
    manifest = json.loads(members[MANIFEST])
    if rendering:
        with suppress(Wrong, *NOT_IN_FORM):
            members |= rendered_again(Bundle(members, manifest))
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in members.items()
        if name not in (MANIFEST, SIGNATURE)
    }
    members[MANIFEST] = rfc8785.dumps(manifest)
    signature = keys.minisign_signature(key, members[MANIFEST], comment="forged", about=ABOUT)
    return pack({**members, SIGNATURE: signature.encode()})


@pytest.fixture(scope="session")
def forge(forger: EvidenceKey) -> Forge:
    """Return what changes a bundle and signs it with the forger's key, or with `key`."""

    def forging(archive: bytes, change: Change, key: EvidenceKey = forger, **words: Any) -> bytes:
        return forged_with(key, archive, change, **words)

    return forging


written: Callable[[Any], bytes] = rfc8785.dumps
"""Writes a document as a bundle has it."""


def changed(name: str, change: Callable[[Any], object]) -> Change:
    """Make a change of one JSON file."""

    def changing(members: Members) -> None:
        document = json.loads(members[name])
        change(document)
        members[name] = written(document)

    return changing


def in_manifest(members: Members, **said: Any) -> None:
    """Change members of the manifest."""
    members[MANIFEST] = written(json.loads(members[MANIFEST]) | said)


def refolded(members: Members) -> None:
    """Make the ledger what follows from the history."""
    members["ledger.json"] = written(ledger_of(json.loads(members["history.json"])))
