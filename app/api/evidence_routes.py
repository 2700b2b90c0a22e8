"""The API of evidence: an order's evidence bundle, and the documents about a dispute."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from anyio import CancelScope, to_thread
from starlette.responses import Response, StreamingResponse

from app.access.tokens import Holder
from app.api.operations import ORDER_UNKNOWN, Answer, AsOfAsked, Moment, Operation
from app.context.context import AppContext, Elsewhere
from app.core.errors import UsageError
from app.core.problems import ApiProblem
from app.evidence.attachments import AttachmentListDocument, attachments_of, listing
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.dispute import Family
from app.evidence.dispute_case import CaseDocument, CaseRequest, dispute_case
from app.evidence.dispute_letter import LetterDocument, letter_of
from app.finance.read_lines import lines_naming
from reconcile.instants import Instant

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024

AT_ONCE: Final = 1

MOST_S: Final = 120.0
"""Time limit for building one evidence bundle, in seconds."""


class EvidenceRoutes:
    """Endpoint that builds evidence bundles, each in a separate process."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._work = elsewhere(
            purpose="writing",
            at_once=AT_ONCE,
            died="the process that built the bundle ended unexpectedly: request the bundle again",
            most_s=MOST_S,
            too_long=f"the bundle was not built within {MOST_S:.0f} s: request the bundle again",
        )

    async def build_bundle(self, reference: str, who: Holder, asked: AsOfAsked) -> Response:
        """Build an order's evidence bundle, a ZIP file that anyone can check. The bundle has no
        personal data.

        The roles finance, support and admin may build a bundle. The audit trail records the
        builder. Bundles are built one at a time, and each takes some seconds.
        """
        folder = await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix=_PREFIX))
        try:
            file = Path(folder, "bundle.zip")
            await self._built(reference, file, as_of=asked.as_of, by=who.name)
            opened = file.open("rb")  # noqa: ASYNC230  # closed with its last part
        finally:
            with CancelScope(shield=True):  # also if the client has hung up
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
                "the bundle is too large to be sent: build it on the machine with `tallyhook "
                "evidence build`"
            )


async def _build(context: AppContext, asked: BundleRequest, file: Path) -> None:
    built = await build_evidence(context, asked, lines=lines_naming)
    await to_thread.run_sync(file.write_bytes, built.archive)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART_BYTES):
            yield part


_PREFIX: Final = "tallyhook-evidence-"
_PART_BYTES: Final = 64 * 1024
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)


# --- cases and letters ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAsked(AsOfAsked):
    family: Annotated[Family | None, "Kind of the dispute, if its reason is unclear."] = None
    respond_by: Annotated[Moment, "The bank's deadline for your answer, if no event states it."] = (
        None
    )

    def of(self, order: str) -> CaseRequest:
        return CaseRequest(
            order=order, as_of=self.as_of, family=self.family, respond_by=self.respond_by
        )


class CaseRoutes:
    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._work = elsewhere(
            purpose="reading",
            at_once=AT_ONCE,
            died="the process that wrote the letter ended unexpectedly: request the letter again",
            most_s=MOST_S,
            too_long=f"the letter was not written within {MOST_S:.0f} s: request the letter again",
        )

    async def get_case(self, reference: str, asked: CaseAsked) -> Answer[CaseDocument]:
        """Return the checklist of evidence for an order's dispute. The checklist states which
        evidence is missing."""
        found = (await dispute_case(self._context, asked.of(reference))).document()
        return Answer(found, _behind(found))

    async def get_letter(self, reference: str, asked: CaseAsked) -> Answer[LetterDocument]:
        """Return the text of the letter that answers a dispute, without the letter's
        attachments."""
        try:
            found = await self._work(_letter, asked.of(reference))
        except UsageError as error:
            words = str(error).replace("--as-of", "as_of")
            raise ApiProblem(409, "letter_not_possible", f"{words}.") from None
        return Answer(found, _behind(found["checklist"]))

    async def list_attachments(self, reference: str) -> AttachmentListDocument:
        """List the files attached to an order and its breaks, without their content."""
        return listing(await attachments_of(self._context, order=reference))


async def _letter(context: AppContext, asked: CaseRequest) -> LetterDocument:
    found = await letter_of(context, asked, lines=lines_naming)
    return {**found.document, "checklist": found.case.document()}


def _behind(case: CaseDocument) -> dict[str, str]:
    return {"Tallyhook-Behind": str(case["behind_s"])} if "behind_s" in case else {}


OPERATIONS: Final = (
    Operation(
        "GET",
        "/api/v1/evidence/{reference:path}",
        EvidenceRoutes.build_bundle,
        "operator",
        may="evidence_built",
        answers={
            200: "The bundle. Check it with `tallyhook evidence verify FILE`",
            409: (
                "The bundle cannot be built with these parameters, or is too large to be sent; "
                "`detail` says why"
            ),
        },
        unknown=ORDER_UNKNOWN,
        refused=(409, "evidence_refused"),
        media=("application/zip",),
    ),
    Operation(
        "GET",
        "/api/v1/cases/{reference:path}",
        CaseRoutes.get_case,
        "evidence",
        unknown=ORDER_UNKNOWN,
        alone=True,
    ),
    Operation(
        "GET",
        "/api/v1/letters/{reference:path}",
        CaseRoutes.get_letter,
        "evidence",
        tag="cases",
        answers={409: "The letter cannot be written; `detail` says why"},
        unknown=ORDER_UNKNOWN,
    ),
    Operation(
        "GET",
        "/api/v1/attachments/{reference:path}",
        CaseRoutes.list_attachments,
        "evidence",
        tag="cases",
        unknown=ORDER_UNKNOWN,
        alone=True,
    ),
)
