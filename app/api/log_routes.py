"""The API of deliveries, notifications to the shop, held orders and the log's witnesses."""

from dataclasses import asdict, dataclass
from typing import Annotated, Final

from app.access.operators import MAY_READ
from app.access.tokens import Holder
from app.api import operations
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
    verdict: Annotated[delivery_log.Verdict | None, "Only deliveries with this verdict."] = None
    source: Annotated[str | None, operations.AS_SENT, "Only deliveries of this source."] = None
    kind: Annotated[
        str | None, operations.AS_SENT, "Only events of this kind, as the provider names it."
    ] = None
    order: Annotated[str | None, "Only events linked to this order."] = None
    no_order: Annotated[bool, "Only events that are not linked to an order."] = False
    before: operations.BeforeName = None
    limit: operations.Limit = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsAsked(operations.NewestAsked):
    state: Annotated[notify_shop.State | None, "Only notifications in this state."] = None
    order: Annotated[str | None, "Only notifications of this order."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAsked:
    held_for: Annotated[HoldReason | None, "The reason of the hold."] = None


class LogRoutes:
    """Endpoints of deliveries, notifications, held orders and witnesses."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def list_deliveries(self, who: Holder, asked: DeliveriesAsked) -> ArrivalPageDocument:
        """List deliveries without their bodies, newest first.

        Only the roles finance and support see refused deliveries. With the filter `kind` or
        `no_order`, a page may be short or empty before the list ends: continue until `next` is
        null.
        """
        refused = who.role in MAY_READ["refused_deliveries"]
        page = await delivery_log.list_deliveries(self._context, **asdict(asked), refused=refused)
        found = [delivery_log.listed_delivery(each) for each in page.entries]
        return {"deliveries": found, "next": page.older}

    async def get_delivery(self, delivery: str, who: Holder) -> WholeArrivalDocument:
        """Return one delivery with its headers. Secrets and customers' phone numbers are masked.

        The audit trail records who opened a refused delivery.
        """
        entry = await delivery_log.show_delivery(self._context, delivery)
        if delivery_log.is_refused(entry):
            if who.role not in MAY_READ["refused_deliveries"]:
                raise operations.role_missing(who)
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
        """List the notifications to the shop, newest first. Each notification states whether the
        shop has accepted it."""
        found = await notify_shop.list_notifications(self._context, **asdict(asked))
        following = found[-1].seq if len(found) == asked.limit else None
        sent = [notify_shop.notification_document(each) for each in found]
        return {"notifications": sent, "next": following}

    async def redeliver(
        self, notification: str, who: Holder, body: BecauseDocument
    ) -> SentDocument:
        """Send a notification to the shop again, with the same id. The shop has three more days to
        accept it."""
        number = path_number(notification)
        await notify_shop.redeliver(self._context, [number], by=who.name, why=body["reason"])
        (again,) = await notify_shop.list_notifications(
            self._context, state=None, limit=1, before=number + 1
        )
        return notify_shop.notification_document(again)

    async def release_order(
        self, reference: str, who: Holder, asked: ReleaseAsked, body: BecauseDocument
    ) -> LedgerDocument:
        """Release a held order: its outcome is published, and the shop is notified."""
        await release_hold(
            self._context,
            reference,
            held_for=asked.held_for,
            reason=body["reason"],
            by=who.name,
        )
        return await order_document(self._context, reference)

    async def list_witnesses(self) -> WitnessesDocument:
        """List the log's witnesses, and the last checkpoint that was published to each place."""
        return await witness_document(self._context)


OPERATIONS: Final = (
    operations.Operation(
        "GET",
        "/api/v1/deliveries",
        LogRoutes.list_deliveries,
        "operator",
        may="deliveries",
        refused=(422, "parameter_invalid"),  # the order is restricted
    ),
    operations.Operation(
        "GET",
        "/api/v1/deliveries/{delivery}",
        LogRoutes.get_delivery,
        "operator",
        may="deliveries",
        unknown=(
            "delivery_unknown",
            "There is no delivery with this id. Old refused deliveries are deleted.",
        ),
    ),
    operations.Operation(
        "GET",
        "/api/v1/notifications",
        LogRoutes.list_notifications,
        "operator",
        may="notifications",
    ),
    operations.Operation(
        "POST",
        "/api/v1/notifications/{notification}/redeliver",
        LogRoutes.redeliver,
        "operator",
        may="notifications_redelivered",
        answers={200: "The notification, which is now waiting to be sent"},
        unknown=("notification_unknown", "There is no notification with this number."),
    ),
    operations.Operation(
        "POST",
        "/api/v1/orders/{reference:path}/release",
        LogRoutes.release_order,
        "operator",
        may="orders_released",
        answers={
            200: "The order in its current state",
            404: "The order is unknown, or not held for this reason",
            422: "The reason or the hold is missing",
        },
        unknown=("not_held", ""),
        refused=(422, "parameter_invalid"),
    ),
    operations.Operation(
        "GET", "/api/v1/log/witnesses", LogRoutes.list_witnesses, "operator", may="log"
    ),
)
