"""The API of an order's case: checklist, letter and list of attachments, as the commands print
them. No file is served here."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.evidence_routes import AT_ONCE, MOST_S
from app.api.request_body import chosen, instant_parameter, order_reference, order_unknown
from app.context.context import AppContext
from app.context.work import Elsewhere
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.evidence.attachments import attachments_of, listing
from app.evidence.dispute import FAMILIES
from app.evidence.dispute_case import CaseRequest, dispute_case, stated_family
from app.evidence.dispute_letter import LetterDocument, letter_of
from app.finance.read_lines import lines_naming


class CaseRoutes:
    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._work = elsewhere(
            purpose="reading",
            at_once=AT_ONCE,
            died="the process that wrote the letter has ended before its time: ask again",
            most_s=MOST_S,
            too_long=f"the letter was not written within {MOST_S:.0f} s: ask again",
        )

    async def case(self, request: Request, program: str) -> Response:
        """GET /api/v1/cases/{reference}?family=&respond_by=&as_of="""
        asked = _asked(request)
        try:
            found = await dispute_case(self._context, asked)
        except NotFoundError as error:
            raise order_unknown(error) from None
        return _answer(found.document())

    async def letter(self, request: Request, program: str) -> Response:
        """GET /api/v1/letters/{reference}?family=&respond_by=&as_of="""
        asked = _asked(request)
        try:
            return _answer(await self._work(_letter, asked))
        except NotFoundError as error:
            raise order_unknown(error) from None
        except UsageError as error:
            words = str(error).replace("--as-of", "as_of")
            raise ApiProblem(409, "letter_not_possible", f"{words}.") from None

    async def attachments(self, request: Request, program: str) -> Response:
        """GET /api/v1/attachments/{reference}"""
        try:
            found = await attachments_of(self._context, order=order_reference(request))
        except NotFoundError as error:
            raise order_unknown(error) from None
        return _answer(listing(found))


async def _letter(context: AppContext, asked: CaseRequest) -> LetterDocument:
    found = await letter_of(context, asked, lines=lines_naming)
    return {**found.document, "checklist": found.case.document()}


def _asked(request: Request) -> CaseRequest:
    return CaseRequest(
        order=order_reference(request),
        as_of=instant_parameter(request, "as_of"),
        family=stated_family(chosen(request, "family", FAMILIES)),
        respond_by=instant_parameter(request, "respond_by"),
    )


def _answer(document: Mapping[str, Any]) -> Response:
    behind = document.get("checklist", document).get("behind_s")
    return JSONResponse(document, headers={"Tallyhook-Behind": str(behind)} if behind else {})
