"""Commands on the delivery log, such as list, show, diagnose and reverify."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import operators, printing, running
from app.cli.local import YesOption, check_target, sending, tell_answer
from app.core.errors import UsageError
from app.core.text import counted
from reconcile.instants import format_instant

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.core.http import Exchange

group = typer.Typer(help="Deliveries from providers, and their verdicts.", no_args_is_help=True)

COLUMNS = (
    "delivery",
    "received_at",
    "source",
    "verdict",
    "kind",
    "order",
    "claim",
    "money",
    "event",
    "size",
    "problem",
)


@group.command("list")
def list_deliveries(
    verdict: Annotated[str | None, typer.Option(help="Only deliveries with this verdict.")] = None,
    source: Annotated[str | None, typer.Option(help="Only deliveries of this source.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only events of this kind, as the provider names it.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="Only events linked to this order.")] = None,
    no_order: Annotated[
        bool, typer.Option("--no-order", help="Only events that are not linked to an order.")
    ] = False,
    before: Annotated[
        str | None, typer.Option(help="Only deliveries older than the one with this id.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of deliveries.")
    ] = 50,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List deliveries, newest first, each with its verdict and its event."""
    from app.orders.delivery_log import VERDICTS, list_deliveries, listed_delivery, order_cell

    if verdict is not None and verdict not in VERDICTS:
        raise UsageError(f"{verdict!r} is none of: {', '.join(VERDICTS)}")
    page = running.reading(
        list_deliveries,
        limit=limit,
        before=before,
        verdict=verdict,
        source=source,
        kind=kind,
        order=order,
        no_order=no_order,
    )
    rows = [listed_delivery(entry) for entry in page.entries]
    if form in (printing.Format.table, printing.Format.csv):
        for row, entry in zip(rows, page.entries, strict=True):
            row["order"] = order_cell(entry)
    printing.emit_up_to(limit, rows, columns=COLUMNS, form=form)
    if page.searched is not None:
        printing.note(
            f"Only {page.searched:,} deliveries were searched. Continue with --before {page.older}."
        )


@group.command("poisoned")
def list_poisoned(
    retry: Annotated[bool, typer.Option("--retry", help="Read these deliveries again.")] = False,
    by: operators.ByOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List accepted deliveries that `serve` failed to read three times. They are kept, and their
    orders are held."""
    from app.orders.set_aside import poisoned
    from app.orders.set_aside import retry as read_again

    found = running.reading(poisoned)
    printing.emit(
        [
            {
                "delivery": None if each.item is None else each.item.delivery_id,
                "received_at": None if each.item is None else format_instant(each.item.received_at),
                "source": None if each.item is None else each.item.source,
                "size": len(each.record),
                "held": " ".join(each.orders),
            }
            for each in found
        ],
        columns=("delivery", "received_at", "source", "size", "held"),
        form=form,
    )
    if retry and found:
        running.writing(read_again, by=by)
        printing.note("`serve` will read them again.")


@group.command(
    "judge", epilog="Example: tallyhook deliveries judge dlv_… --reason 'a payout notice'"
)
def judge_delivery(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    reason: Annotated[str, typer.Option(help="What the delivery contains, for the audit trail.")],
    by: operators.ByOption = None,
) -> None:
    """State that you know the content of an unreadable delivery, so that its orders are released.

    First look at `deliveries show` and the provider's dashboard. If the delivery is about money,
    correct the profile and run `reindex` instead.
    """
    from app.orders.set_aside import judge_unread

    count = running.writing(judge_unread, delivery, reason=reason, by=by)
    printing.note(
        f"Your judgement is stored. `serve` or `worker` will compute {counted(count, 'order')} "
        "again."
    )


@group.command("show")
def show_delivery(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show one delivery: verdict, reason, order, headers and masked phone number.

    The body is never shown.
    """
    from app.orders import delivery_log

    async def look(context: AppContext) -> tuple[Any, ...]:
        entry = await delivery_log.show_delivery(context, delivery)
        no_order = delivery_log.no_order_sentence(context, entry)
        return entry, no_order, *await delivery_log.masked_parts(context, entry)

    entry, no_order, phones, headers = running.reading(look)
    if delivery_log.is_refused(entry):
        running.writing(delivery_log.note_reading, entry, by=by)
    row = delivery_log.listed_delivery(entry) | {
        "digest": entry.digest,
        "phone": ", ".join(phones) or None,
        "pruned_at": None if entry.pruned_at is None else format_instant(entry.pruned_at),
    }
    if no_order is not None:
        printing.note(
            f"{no_order} The shop can also link this payment to an order, with `references` in "
            "PUT /api/v1/orders/REF. If the event contains the reference, correct `order` in "
            "the source's profile."
        )
    if printing.printed(row | {"headers": headers}, form):
        return
    shown = [{"what": name, "value": value} for name, value in row.items()]
    printing.emit(shown, columns=("what", "value"), form=form)
    for line in headers:
        printing.say(f"  {line}")


@group.command("diagnose")
def diagnose_delivery(
    delivery: Annotated[str, typer.Argument(help="The id of a refused delivery.")],
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Find the known mistake that explains why a delivery was refused.

    The delivery stays refused. The exit code is 1 if no known mistake explains the refusal.
    """
    from app.context.configured import accounts
    from app.receiving.diagnose import diagnose_delivery

    found = running.with_context(
        lambda context: diagnose_delivery(context, delivery, accounts=accounts(context.settings))
    )
    rows = [{"mistake": each.mistake, "sentence": each.sentence} for each in found.diagnoses]
    if form is printing.Format.csv:
        printing.emit(rows, columns=("mistake", "sentence"), form=form)
    elif form is not printing.Format.table:
        refused = found.rejection
        whole = {"delivery": refused.delivery_id, "source": refused.source}
        printing.document(whole | {"verdict": refused.verdict, "diagnoses": rows}, form)
    else:
        printing.say(
            f"{delivery} was refused: {found.rejection.verdict} ({found.rejection.problem})"
        )
        for row in rows:
            print(f"\n{row['mistake']}\n  {row['sentence']}")
    if not rows:
        printing.note(found.unexplained or "")
        raise typer.Exit(1)


@group.command(
    "replay", epilog="Example: tallyhook deliveries replay dlv_… --to http://127.0.0.1:9000/hook"
)
def replay_delivery(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    to: Annotated[str, typer.Option(help="The URL to send to, on this machine.")],
    yes: YesOption = False,
    by: operators.ByOption = None,
) -> None:
    """Send a delivery's stored request again. The exit code is 1 if the receiver refuses it.

    A receiver may refuse the old signature. The audit trail records the sender.
    """
    from app.core.recorded import send_on
    from app.receiving.kept_request import kept_request

    check_target(to, yes=yes, what="a customer's data")

    async def replay(context: AppContext) -> Exchange:
        kept = await kept_request(context, delivery, to=to, by=by)
        if kept.left_out:
            printing.note(
                f"Some parts are not stored, and were not sent: {', '.join(kept.left_out)}."
            )
        async with sending() as client:
            return await send_on(client, kept.request, to)

    tell_answer(running.writing(replay), to=to)


@group.command("reverify")
def reverify_deliveries(
    source: Annotated[str | None, typer.Option(help="Only deliveries of this source.")] = None,
    by: operators.ByOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Judge refused deliveries again, as of their arrival, after you corrected a setting.

    Genuine deliveries are stored as if they had been accepted on arrival. `serve` then computes the
    ledgers of their orders again; `refold` does so at once.
    """
    from app.config.load import load_settings
    from app.context.configured import compile_sources
    from app.receiving.reverify import reverify

    settings = load_settings()
    compile_sources(settings)  # before the database is opened: an error creates none
    with printing.progress("judging", None) as advance:
        judging = partial(reverify, only=source, progress=advance, by=by)
        done = running.with_context(judging, purpose="writing", loaded=settings)
    rows = [{"delivery": name, "verdict": verdict} for name, verdict in done.accepted]
    if form in (printing.Format.table, printing.Format.csv):
        printing.emit(rows, columns=("delivery", "verdict"), form=form)
    else:
        refused = dict(sorted(done.refused.items()))
        printing.document(
            {"judged": done.judged, "accepted": rows, "refused": refused, "cut": done.cut}, form
        )
    printing.note(
        f"Judged {counted(done.judged, 'delivery', 'deliveries')} again: {len(rows):,} accepted, "
        f"{sum(done.refused.values()):,} still refused, {done.cut:,} with too little stored data."
    )
    if rows:
        printing.note(
            "`serve` will compute their orders again. To do so now, run `tallyhook refold`."
        )
