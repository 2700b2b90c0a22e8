"""The API of unallocated payments, for operators by their own tokens: list, assign, dismiss."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.operators import MAY, MAY_READ
from app.access.proposals import REASON_MAX, Proposals
from app.access.tokens import Holder
from app.api.proposal_routes import MAX_BYTES, Loaded, role_missing
from app.api.request_body import (
    after_parameter,
    capped_body,
    chosen,
    json_object,
    limit_parameter,
    word_parameter,
)
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.finance.place_payment import Placing, place_payment
from app.orders.unallocated import UnallocatedRequest, list_unallocated, read_unallocated
from reconcile.ledger.records import DISMISSED_AS

ASSIGN_FORM: Final = (
    'Send {"order": REFERENCE, "reason": WHY}, and "replaces" with the `last_act` that you saw.'
)
DISMISS_FORM: Final = (
    'Send {"as": "to_refund" or "other_business", "reason": WHY}, "to" with the account of other '
    'business, and "replaces" with the `last_act` that you saw.'
)


class UnallocatedRoutes:
    """The endpoints."""

    def __init__(self, context: AppContext, proposals: Loaded) -> None:
        self._context = context
        self._proposals = proposals

    async def list(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/unallocated?source=&all=&not_ours=&after=&limit="""
        if operator.role not in MAY_READ["unallocated"]:
            raise role_missing(operator)
        asked = UnallocatedRequest(
            source=word_parameter(request, "source"),
            after=after_parameter(request),
            limit=limit_parameter(request, most=self._context.settings.page_max),
            everything=chosen(request, "all", ("true", "false")) == "true",
            not_ours=chosen(request, "not_ours", ("true", "false")) == "true",
        )
        try:
            page = await list_unallocated(self._context, asked)
        except UsageError as error:
            raise ApiProblem(422, "parameter_invalid", _sentence(error)) from None
        now = self._context.clock.now()
        found = [each.document(now=now) for each in page.payments]
        return JSONResponse({"payments": found, "next": page.next})

    async def assign(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/unallocated/{payment}/assign"""
        given = await self._given(request, operator, {"order", "reason"}, form=ASSIGN_FORM)
        return await self._place(
            Placing(
                kind="assign",
                payment=request.path_params["payment"],
                order=given["order"],
                reason=given["reason"],
                by=operator.name,
                replaces=given.get("replaces"),
            )
        )

    async def dismiss(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/unallocated/{payment}/dismiss"""
        given = await self._given(request, operator, {"as", "reason"}, form=DISMISS_FORM)
        why = {str(each): each for each in DISMISSED_AS}.get(given["as"])
        if why is None:
            raise ApiProblem(422, "request_invalid", DISMISS_FORM)
        return await self._place(
            Placing(
                kind="dismiss",
                payment=request.path_params["payment"],
                dismiss=why,
                to=given.get("to", ""),
                reason=given["reason"],
                by=operator.name,
                replaces=given.get("replaces"),
            )
        )

    async def _given(
        self, request: Request, operator: Holder, needed: set[str], *, form: str
    ) -> dict[str, str]:
        """Return the members of a body, all of them texts. Raise ApiProblem for any other body."""
        if operator.role not in MAY["payment_proposed"]:
            raise role_missing(operator)
        document: dict[str, Any] = json_object(await capped_body(request, most=MAX_BYTES))
        allowed = needed | {"replaces"} | ({"to"} if "as" in needed else set())
        if (
            not needed <= document.keys() <= allowed
            or not all(isinstance(each, str) for each in document.values())
            or not 0 < len(document["reason"].strip()) <= REASON_MAX
        ):
            raise ApiProblem(422, "request_invalid", form)
        return document

    async def _place(self, asked: Placing) -> Response:
        """Do the act, or propose it: 202 with the proposal."""
        try:
            proposal = await place_payment(self._context, asked)
            if proposal is None:
                found = await read_unallocated(self._context, asked.payment)
        except NotFoundError as error:
            raise ApiProblem(404, "not_found", _sentence(error)) from None
        except UsageError as error:
            raise ApiProblem(409, "placing_refused", _sentence(error)) from None
        if proposal is not None:
            proposals: Proposals = await self._proposals()
            return JSONResponse(proposals.document(proposal), status_code=202)
        return JSONResponse(found.document(now=self._context.clock.now()))


def _sentence(error: Exception) -> str:
    sentence = str(error)
    return f"{sentence[:1].upper()}{sentence[1:]}."
