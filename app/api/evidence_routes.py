"""The API of evidence: an order's bundle, for a person with their own token."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from anyio import CancelScope, to_thread
from starlette.responses import Response, StreamingResponse

from app.access.tokens import Holder
from app.api.operations import ORDER_UNKNOWN, AsOfAsked, Operation
from app.context.context import AppContext, Elsewhere
from app.core.errors import UsageError
from app.evidence.bundle import BundleRequest, build_evidence
from app.finance.read_lines import lines_naming
from reconcile.instants import Instant

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
"""Largest bundle in an answer, in bytes. Most have less than 100 KiB. The command builds larger
bundles, up to 256 MiB."""


AT_ONCE: Final = 1
"""Bundles, and likewise letters, that are built concurrently. Each build reads everything that was
received for an order."""

MOST_S: Final = 120.0
"""Longest duration of one build, in seconds. A bundle of an order with twenty deliveries takes two,
including the start of its process."""


class EvidenceRoutes:
    """The endpoint. A separate process builds bundles, so that deliveries stay acknowledged."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._work = elsewhere(
            purpose="writing",
            at_once=AT_ONCE,
            died="the process that built the bundle ended unexpectedly: ask again",
            most_s=MOST_S,
            too_long=f"the bundle was not built within {MOST_S:.0f} s: ask again",
        )

    async def build_bundle(self, reference: str, who: Holder, asked: AsOfAsked) -> Response:
        """Build an order's evidence: a ZIP that a stranger can check, without personal data.

        For the roles finance, support and admin; the trail says who built it. It takes some
        seconds, and one is built at a time.
        """
        folder = await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix=_PREFIX))
        try:
            file = Path(folder, "bundle.zip")
            await self._built(reference, file, as_of=asked.as_of, by=who.name)
            opened = file.open("rb")  # noqa: ASYNC230  # closed with its last part
        finally:
            with CancelScope(shield=True):  # whoever has hung up leaves nothing behind
                await to_thread.run_sync(lambda: shutil.rmtree(folder))
        name = f"evidence-{_UNSAFE.sub('_', reference)[:80]}.zip"
        return StreamingResponse(
            _parts(opened),
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    async def _built(self, order: str, file: Path, *, as_of: Instant | None, by: str) -> None:
        await self._work(_build, BundleRequest(order=order, as_of=as_of, by=by), file)
        if file.stat().st_size > MAX_BUNDLE_BYTES:  # noqa: ASYNC240
            raise UsageError(
                "the bundle is too large to be answered: `tallyhook evidence build` writes it"
            )


async def _build(context: AppContext, asked: BundleRequest, file: Path) -> None:
    built = await build_evidence(context, asked, lines=lines_naming)
    await to_thread.run_sync(file.write_bytes, built.archive)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of an unlinked file, which disappears once it is closed."""
    with file:
        while part := file.read(_PART_BYTES):
            yield part


_PREFIX: Final = "tallyhook-evidence-"
_PART_BYTES: Final = 64 * 1024
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)

OPERATIONS: Final = (
    Operation(
        "GET",
        "/api/v1/evidence/{reference:path}",
        EvidenceRoutes.build_bundle,
        "operator",
        may="evidence_built",
        answers={
            200: "The bundle: `tallyhook evidence verify FILE` checks it",
            409: "It cannot be built so, or is too large to be answered",
        },
        unknown=ORDER_UNKNOWN,
        refused=(409, "evidence_refused"),
        media=("application/zip",),
    ),
)
