"""The API of an order's case: checklist, letter and list of attachments.

The documents are those that the commands print. No file is served here.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from app.api.evidence_routes import AT_ONCE, MOST_S
from app.api.operations import ORDER_UNKNOWN, Answer, AsOfAsked, Moment, Operation
from app.context.context import AppContext, Elsewhere
from app.core.errors import UsageError
from app.core.problems import ApiProblem
from app.evidence.attachments import AttachmentListDocument, attachments_of, listing
from app.evidence.dispute import Family
from app.evidence.dispute_case import CaseDocument, CaseRequest, dispute_case
from app.evidence.dispute_letter import LetterDocument, letter_of
from app.finance.read_lines import lines_naming


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAsked(AsOfAsked):
    family: Annotated[
        Family | None, "Of which kind the dispute is, where its reason is unclear."
    ] = None
    respond_by: Annotated[
        Moment, "Until when the bank takes an answer, where no message says it."
    ] = None

    def of(self, order: str) -> CaseRequest:
        """Return the request for this order's case."""
        return CaseRequest(
            order=order, as_of=self.as_of, family=self.family, respond_by=self.respond_by
        )


class CaseRoutes:
    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._work = elsewhere(
            purpose="reading",
            at_once=AT_ONCE,
            died="the process that wrote the letter ended unexpectedly: ask again",
            most_s=MOST_S,
            too_long=f"the letter was not written within {MOST_S:.0f} s: ask again",
        )

    async def get_case(self, reference: str, asked: CaseAsked) -> Answer[CaseDocument]:
        """Return the evidence that a bank asks for in a dispute, and which evidence is missing."""
        found = (await dispute_case(self._context, asked.of(reference))).document()
        return Answer(found, _behind(found))

    async def get_letter(self, reference: str, asked: CaseAsked) -> Answer[LetterDocument]:
        """Return the text of the letter about a dispute, without its attachments."""
        try:
            found = await self._work(_letter, asked.of(reference))
        except UsageError as error:
            words = str(error).replace("--as-of", "as_of")
            raise ApiProblem(409, "letter_not_possible", f"{words}.") from None
        return Answer(found, _behind(found["checklist"]))

    async def list_attachments(self, reference: str) -> AttachmentListDocument:
        """List the attachments of an order and its breaks; the files are not served."""
        return listing(await attachments_of(self._context, order=reference))


async def _letter(context: AppContext, asked: CaseRequest) -> LetterDocument:
    found = await letter_of(context, asked, lines=lines_naming)
    return {**found.document, "checklist": found.case.document()}


def _behind(case: CaseDocument) -> dict[str, str]:
    return {"Tallyhook-Behind": str(case["behind_s"])} if "behind_s" in case else {}


OPERATIONS: Final = (
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
        answers={409: "It cannot be written; the sentence says why"},
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
