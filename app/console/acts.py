"""What people do from pages: an order's evidence bundle and proofs, telling the shop again,
judging refused deliveries again."""

from __future__ import annotations

import json
import re

from starlette.responses import Response

from app.console.view import Asked, Field, View
from app.console.words import address
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.evidence.bundle import Built, BundleRequest
from app.evidence.prove_sealed import prove_each
from app.orders.notify_shop import list_notifications, redeliver
from app.orders.read_orders import arrivals_of, order_document, published_of_order
from app.receiving.reverify import previewed, reverify


def _order(view: View) -> str:
    order = view.word("order")
    if order is None:
        raise UsageError("order: say which")
    return order


async def ask_evidence(view: View) -> Asked:
    """What a bundle is, and what it rests on."""
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
        fields=(
            Field(
                name="attachments",
                label="What is attached to the order",
                choices=(("", "is not in it"), ("yes", "is in it, by its digests")),
                required=False,
            ),
        ),
    )


async def do_evidence(view: View, reason: str) -> Response:
    """The bundle, redacted, as a download."""
    built = await _built(view)
    return _download(built.archive, f"evidence-{_file_name(built.order)}.zip", "application/zip")


async def _built(view: View) -> Built:
    asked = BundleRequest(
        order=_order(view),
        as_of=view.instant("as_of"),
        reason=None,
        by=view.person.name,
        attachments=view.given.get("attachments") == "yes",
    )
    return await view.console.build_evidence(asked)


def _file_name(order: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", order)[:80] or "order"


def _download(content: bytes, name: str, media: str) -> Response:
    return Response(
        content,
        media_type=media,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def ask_prove(view: View) -> Asked:
    """What is proved, and against what."""
    order = _order(view)
    count = len(await _sealed_of(view, order))
    what = counted(count, "delivery or outcome", "deliveries and outcomes")
    return Asked(
        subject=order,
        lines=(
            f"You get one JSON file: for {what} of this order the way from the leaf to the newest "
            "signed checkpoint of the log (RFC 9162). Whoever has the public key can check that "
            "nothing of it was changed since.",
        ),
        back=address("orders", order),
        ready=count > 0,
        reason=False,
    )


async def do_prove(view: View, reason: str) -> Response:
    """The proofs as a download. Raises UsageError where something is not sealed yet."""
    order = _order(view)
    try:
        found = await prove_each(view.context, await _sealed_of(view, order))
    except NotFoundError as error:
        raise UsageError(f"{error}; the running service seals what waits within seconds") from None
    content = json.dumps({"order": order, **found}, indent=1).encode()
    return _download(content, f"proof-{_file_name(order)}.json", "application/json")


async def _sealed_of(view: View, order: str) -> list[str]:
    """The leaves of an order: its deliveries, and the outcomes that were published of it."""
    arrivals = await arrivals_of(view.context, order)
    published = await published_of_order(view.context, order)
    return [
        *(each["delivery"] for each in arrivals),
        *(f"revision:{each.seq}" for each in published),
    ]


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
