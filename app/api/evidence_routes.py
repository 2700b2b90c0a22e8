"""The API of evidence: an order's bundle, for a person with a token of their own."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from anyio import CancelScope, to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.access.operators import MAY
from app.access.tokens import Holder
from app.api.proposal_routes import role_missing
from app.api.request_body import instant_parameter, order_reference, order_unknown
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from reconcile.instants import Instant

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
"""Largest bundle in an answer, in bytes. Most have less than 100 KiB; the command builds larger
ones, up to 256 MiB."""


class Builds(Protocol):
    """A function that builds a redacted bundle into a new file, in the name of `by`."""

    def __call__(
        self, order: str, file: Path, *, as_of: Instant | None, by: str
    ) -> Awaitable[None]:
        """Raise NotFoundError for an unknown order, UsageError for what cannot be built,
        UnreachableError where it failed this time."""


class EvidenceRoutes:
    """The endpoint. `load` is called at the first request: most receivers need no bundles."""

    def __init__(self, load: Callable[[], Awaitable[Builds]]) -> None:
        self._load = load

    async def bundle(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/evidence/{reference}?as_of=: a redacted bundle; the audit trail has who built
        it."""
        if operator.role not in MAY["evidence_built"]:
            raise role_missing(operator)
        order, as_of = order_reference(request), instant_parameter(request, "as_of")
        folder = await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix=_PREFIX))
        try:
            file = Path(folder, "bundle.zip")
            await self._built(order, file, as_of=as_of, by=operator.name)
            opened = file.open("rb")  # noqa: ASYNC230  # closed with its last part
        finally:
            with CancelScope(shield=True):  # whoever has hung up leaves nothing behind
                await to_thread.run_sync(lambda: shutil.rmtree(folder))
        name = f"evidence-{_UNSAFE.sub('_', order)[:80]}.zip"
        return StreamingResponse(
            _parts(opened),
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    async def _built(self, order: str, file: Path, *, as_of: Instant | None, by: str) -> None:
        build = await self._load()
        try:
            await build(order, file, as_of=as_of, by=by)
        except NotFoundError as error:
            raise order_unknown(error) from None
        except UsageError as error:
            raise ApiProblem(409, "evidence_refused", f"{error}.") from None
        if file.stat().st_size > MAX_BUNDLE_BYTES:  # noqa: ASYNC240
            raise ApiProblem(
                409,
                "evidence_refused",
                "The bundle is too large to be answered: `tallyhook evidence build` writes it.",
            )


def _parts(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file's bytes. It was unlinked before and disappears once closed."""
    with file:
        while part := file.read(_PART_BYTES):
            yield part


_PREFIX: Final = "tallyhook-evidence-"
_PART_BYTES: Final = 64 * 1024
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
