"""The API of deliveries, notifications, held orders and the log's witnesses, for people with a
token of their own. It never shows a body, and only headers that are not secret."""

from dataclasses import dataclass
from typing import Annotated, Final

from app.access.operators import MAY_READ
from app.access.tokens import Holder
from app.api.operations import (
    AS_SENT,
    BeforeName,
    Limit,
    NewestAsked,
    Operation,
    role_missing,
)
from app.api.proposal_routes import BecauseDocument
from app.api.request_body import path_number
from app.context.context import AppContext
from app.evidence.witnesses import WitnessesDocument, witness_document
from app.orders import delivery_log, notify_shop
from app.orders.accept_findings import release_hold
from app.orders.delivery_log import ArrivalPageDocument, WholeArrivalDocument
from app.orders.notify_shop import SentDocument, SentPageDocument
from app.orders.read_orders import LedgerDocument, order_document
from reconcile.instants import format_known
from reconcile.ledger.records import HoldReason


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveriesAsked:
    """A page of deliveries, newest first."""

    verdict: Annotated[delivery_log.Verdict | None, "Only this verdict."] = None
    source: Annotated[str | None, AS_SENT, "Only of this source."] = None
    kind: Annotated[str | None, AS_SENT, "Only events of this kind, in the provider's word."] = None
    order: Annotated[str | None, "Only events in this order's ledger."] = None
    no_order: Annotated[bool, "Only events in no order's ledger."] = False
    before: BeforeName = None
    limit: Limit = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsAsked(NewestAsked):
    """A page of notifications, newest first."""

    state: Annotated[notify_shop.State | None, "Only in this state."] = None
    order: Annotated[str | None, "Only of this order."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAsked:
    """A hold to release."""

    held_for: Annotated[HoldReason | None, "What it is held for."] = None


class LogRoutes:
    """The endpoints."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def list_deliveries(self, who: Holder, asked: DeliveriesAsked) -> ArrivalPageDocument:
        """Return arrivals, without refused ones for a caller who may not see them."""
        page = await delivery_log.list_deliveries(
            self._context,
            verdict=asked.verdict,
            source=asked.source,
            kind=asked.kind,
            order=asked.order,
            no_order=asked.no_order,
            refused=who.role in MAY_READ["refused_deliveries"],
            limit=asked.limit,
            before=asked.before,
        )
        found = [delivery_log.listed_delivery(each) for each in page.entries]
        return {"deliveries": found, "next": page.older}

    async def get_delivery(self, delivery: str, who: Holder) -> WholeArrivalDocument:
        """Return one arrival. Reading a refused one is an audit entry."""
        entry = await delivery_log.show_delivery(self._context, delivery)
        if delivery_log.is_refused(entry):
            if who.role not in MAY_READ["refused_deliveries"]:
                raise role_missing(who)
            await delivery_log.note_reading(self._context, entry, by=who.name)
        phones, headers = await delivery_log.masked_parts(self._context, entry)
        return {
            **delivery_log.listed_delivery(entry),
            "digest": entry.digest,
            "phones": phones,
            "pruned_at": format_known(entry.pruned_at),
            "headers": headers,
        }

    async def list_notifications(self, asked: NotificationsAsked) -> SentPageDocument:
        found = await notify_shop.list_notifications(
            self._context,
            state=asked.state,
            limit=asked.limit,
            order=asked.order,
            before=asked.before,
        )
        following = found[-1].seq if len(found) == asked.limit else None
        sent = [notify_shop.notification_document(each) for each in found]
        return {"notifications": sent, "next": following}

    async def redeliver(
        self, notification: str, who: Holder, body: BecauseDocument
    ) -> SentDocument:
        number = path_number(notification)
        await notify_shop.redeliver(self._context, [number], by=who.name, why=body["reason"])
        (again,) = await notify_shop.list_notifications(
            self._context, state=None, limit=1, before=number + 1
        )
        return notify_shop.notification_document(again)

    async def release_order(
        self, reference: str, who: Holder, asked: ReleaseAsked, body: BecauseDocument
    ) -> LedgerDocument:
        await release_hold(
            self._context,
            reference,
            held_for=asked.held_for,
            reason=body["reason"],
            by=who.name,
        )
        return await order_document(self._context, reference)

    async def list_witnesses(self) -> WitnessesDocument:
        return await witness_document(self._context)


OPERATIONS: Final = (
    Operation(
        path="/api/v1/deliveries",
        endpoint=LogRoutes.list_deliveries,
        scope="operator",
        may="deliveries",
        name="deliveries.listDeliveries",
        summary="What arrived, newest first, without bodies",
        more="Refused ones are there for who may see them: roles finance and support. With `kind` "
        "or `no_order` a page may have fewer than `limit`, or none, although there are more: "
        "`next` is null only where all were looked at.",
        answers={200: "A page of arrivals"},
        refused=(422, "parameter_invalid"),  # the order is restricted
    ),
    Operation(
        path="/api/v1/deliveries/{delivery}",
        endpoint=LogRoutes.get_delivery,
        scope="operator",
        may="deliveries",
        name="deliveries.getDelivery",
        summary="One arrival with its headers, in which secrets and customers' numbers are masked",
        more="The trail says who looked at a refused one.",
        answers={200: "The arrival"},
        unknown=(
            "delivery_unknown",
            "There is no delivery of this name; old refused ones are deleted.",
        ),
    ),
    Operation(
        path="/api/v1/notifications",
        endpoint=LogRoutes.list_notifications,
        scope="operator",
        may="notifications",
        name="notifications.listNotifications",
        summary="What the shop is notified of, newest first, and whether it took it",
        answers={200: "A page of notifications"},
    ),
    Operation(
        method="POST",
        path="/api/v1/notifications/{notification}/redeliver",
        endpoint=LogRoutes.redeliver,
        scope="operator",
        may="notifications_redelivered",
        name="notifications.redeliver",
        summary="Send it again, with the id that it had, and three more days to be taken",
        answers={
            200: "The notification, which waits to be sent",
            422: "No reason is given",
        },
        unknown=("notification_unknown", "There is no notification of this number."),
    ),
    Operation(
        method="POST",
        path="/api/v1/orders/{reference:path}/release",
        endpoint=LogRoutes.release_order,
        scope="operator",
        may="orders_released",
        name="orders.releaseOrder",
        summary="Release a held order: it is published, and the shop notified, as for any other",
        answers={
            200: "The order, as it stands now",
            404: "It is unknown, or not held for this",
            422: "No reason is given, or no hold is named",
        },
        unknown=("not_held", ""),
        refused=(422, "parameter_invalid"),
    ),
    Operation(
        path="/api/v1/log/witnesses",
        endpoint=LogRoutes.list_witnesses,
        scope="operator",
        may="log",
        name="log.listWitnesses",
        summary="The witnesses that cosign the log's checkpoints, and the last checkpoint that "
        "left by each way",
        answers={200: "Witnesses, and what left"},
    ),
)
