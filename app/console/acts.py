"""What people do from pages: an order's evidence bundle, telling the shop again, judging refused
deliveries again."""

from __future__ import annotations

import re

from starlette.responses import Response

from app.console.view import Asked, View
from app.console.words import address
from app.core.errors import UsageError
from app.core.text import counted
from app.evidence.bundle import BundleRequest
from app.orders.notify_shop import list_notifications, redeliver
from app.orders.read_orders import order_document
from app.receiving.reverify import previewed, reverify


def _order(view: View) -> str:
    order = view.word("order")
    if order is None:
        raise UsageError("order: say which")
    return order


async def ask_evidence(view: View) -> Asked:
    """What a bundle is."""
    order, as_of = _order(view), view.instant("as_of")
    ledger = await order_document(view.context, order, as_of=as_of)
    return Asked(
        subject=order,
        lines=(
            " ".join(ledger["plain"]["answer"]),
            "You get one ZIP file. With it a stranger can check, without this program and without "
            "a network, what was received and what was concluded.",
            "Phone numbers and names are masked in it. The trail keeps that you took it.",
        ),
        back=address("orders", order),
        reason=False,
    )


async def do_evidence(view: View, reason: str) -> Response:
    """The bundle, redacted, as a download."""
    order, as_of = _order(view), view.instant("as_of")
    asked = BundleRequest(order=order, as_of=as_of, reason=None, by=view.person.name)
    built = await view.console.build_evidence(asked)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", order)[:80] or "order"
    return Response(
        built.archive,
        media_type="application/zip",
        headers={"Content-Disposition": f'attachment; filename="evidence-{name}.zip"'},
    )


async def ask_tell_again(view: View) -> Asked:
    """Which notification would be sent, and what it says."""
    order = _order(view)
    ledger = await order_document(view.context, order)
    found = await list_notifications(view.context, state=None, limit=1, order=order)
    if not found:
        lines: tuple[str, ...] = (
            "The shop was never to be told of this order: no address is set to which it is told.",
        )
    else:
        last = found[0]
        lines = (
            f"The shop is sent its last notification of this order once more: {last.outcome}.",
            f"It was published as number {last.seq}; what became of it so far: {last.state}, "
            f"after {counted(last.tries, 'try', 'tries')}.",
            " ".join(ledger["plain"]["answer"]),
            "A shop that follows the rules takes a number that it knows for what it is, and does "
            "nothing twice.",
        )
    return Asked(subject=order, lines=lines, back=address("orders", order), ready=bool(found))


async def do_tell_again(view: View, reason: str) -> str:
    """Send the last notification of an order again."""
    order = _order(view)
    found = await list_notifications(view.context, state=None, limit=1, order=order)
    if not found:
        raise UsageError("the shop was never to be told of this order")
    await redeliver(view.context, [found[0].seq], by=view.person.name, why=reason)
    return address("orders", order)


async def ask_reverify(view: View) -> Asked:
    """What would become of the refused deliveries, judged by the secrets and profiles of now."""
    source = view.choice("source", tuple(view.console.sources))
    found = await previewed(
        view.context,
        sources=view.console.sources,
        only=source,
        environment=view.console.environment,
    )
    lines = [
        f"{counted(found.judged, 'refused delivery is', 'refused deliveries are')} kept. Judged "
        f"by the secrets and profiles of now, {len(found.accepted)} would be accepted as of their "
        f"arrival, and {sum(found.refused.values())} stay refused."
    ]
    if found.cut:
        lines.append(f"Of {found.cut} too little was kept to judge them.")
    lines.append(
        "What is accepted is stored, the orders that it is of are judged again, and the shop is "
        "told what changes."
        if found.accepted
        else "There is nothing to do: correct the secret or the profile first."
    )
    return Asked(
        subject=source or "all sources",
        lines=tuple(lines),
        back="/deliveries",
        ready=bool(found.accepted),
    )


async def do_reverify(view: View, reason: str) -> str:
    """Judge them again, and store what is genuine."""
    await reverify(
        view.context,
        sources=view.console.sources,
        only=view.choice("source", tuple(view.console.sources)),
        environment=view.console.environment,
        progress=lambda _: None,
        by=view.person.name,
        why=reason,
    )
    return "/deliveries"
