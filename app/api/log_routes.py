"""The API of deliveries, notifications, held orders and the log's witnesses, for people with a
token of their own. It never shows a body, and only headers that are not secret."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.operators import MAY, MAY_READ, Reading
from app.access.tokens import Holder
from app.api.proposal_routes import asked_reason, role_missing
from app.api.request_body import (
    before_parameter,
    chosen,
    limit_parameter,
    order_reference,
    path_number,
    word_parameter,
)
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.evidence.witnesses import witness_document
from app.orders import delivery_log, notify_shop
from app.orders.accept_findings import release_hold
from app.orders.read_orders import order_document
from reconcile.instants import format_known
from reconcile.ledger.records import HOLD_REASONS


class LogRoutes:
    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def deliveries(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/deliveries?verdict=&source=&kind=&order=&no_order=&before=&limit=, newest
        first. Refused ones are omitted for a caller who may not see them."""
        _may_look(operator, "deliveries")
        try:
            page = await delivery_log.list_deliveries(
                self._context,
                verdict=chosen(request, "verdict", delivery_log.VERDICTS),
                source=request.query_params.get("source") or None,
                kind=request.query_params.get("kind") or None,
                order=word_parameter(request, "order"),
                no_order=chosen(request, "no_order", ("true", "false")) == "true",
                refused=operator.role in MAY_READ["refused_deliveries"],
                limit=limit_parameter(request, most=self._context.settings.page_max),
                before=request.query_params.get("before") or None,
            )
        except UsageError as error:  # the order is restricted
            raise ApiProblem(422, "parameter_invalid", f"{error}.") from None
        return JSONResponse(
            {
                "deliveries": [delivery_log.listed_delivery(each) for each in page.entries],
                "next": page.older,
            }
        )

    async def delivery(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/deliveries/{delivery}. Reading a refused one is an audit entry."""
        _may_look(operator, "deliveries")
        try:
            entry = await delivery_log.show_delivery(self._context, request.path_params["delivery"])
        except NotFoundError:
            raise ApiProblem(
                404,
                "delivery_unknown",
                "There is no delivery of this name; old refused ones are deleted.",
            ) from None
        if delivery_log.is_refused(entry):
            _may_look(operator, "refused_deliveries")
            await delivery_log.note_reading(self._context, entry, by=operator.name)
        phones, headers = await delivery_log.masked_parts(self._context, entry)
        return JSONResponse(
            delivery_log.listed_delivery(entry)
            | {
                "digest": entry.digest,
                "phones": phones,
                "pruned_at": format_known(entry.pruned_at),
                "headers": headers,
            }
        )

    async def notifications(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/notifications?state=&order=&before=&limit=, newest first."""
        _may_look(operator, "notifications")
        state, limit = (
            chosen(request, "state", notify_shop.STATES),
            limit_parameter(request, most=self._context.settings.page_max),
        )
        found = await notify_shop.list_notifications(
            self._context,
            state=next((each for each in notify_shop.STATES if each == state), None),
            limit=limit,
            order=word_parameter(request, "order"),
            before=before_parameter(request),
        )
        following = found[-1].seq if len(found) == limit else None
        return JSONResponse(
            {
                "notifications": [notify_shop.notification_document(each) for each in found],
                "next": following,
            }
        )

    async def redeliver(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/notifications/{notification}/redeliver"""
        if operator.role not in MAY["notifications_redelivered"]:
            raise role_missing(operator)
        reason = await asked_reason(request)
        try:
            number = path_number(request, "notification")
            await notify_shop.redeliver(self._context, [number], by=operator.name, why=reason)
        except NotFoundError:
            raise ApiProblem(
                404, "notification_unknown", "There is no notification of this number."
            ) from None
        (again,) = await notify_shop.list_notifications(
            self._context, state=None, limit=1, before=number + 1
        )
        return JSONResponse(notify_shop.notification_document(again))

    async def release(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/orders/{reference}/release?held_for="""
        if operator.role not in MAY["orders_released"]:
            raise role_missing(operator)
        order, reason = order_reference(request), await asked_reason(request)
        held_for = chosen(request, "held_for", HOLD_REASONS)
        try:
            await release_hold(
                self._context, order, held_for=held_for, reason=reason, by=operator.name
            )
        except NotFoundError as error:
            raise ApiProblem(404, "not_held", f"{error}.") from None
        except UsageError as error:
            raise ApiProblem(422, "parameter_invalid", f"{error}.") from None
        return JSONResponse(await order_document(self._context, order))

    async def witnesses(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/log/witnesses"""
        _may_look(operator, "log")
        return JSONResponse(await witness_document(self._context))


def _may_look(operator: Holder, reading: Reading) -> None:
    if operator.role not in MAY_READ[reading]:
        raise role_missing(operator)
