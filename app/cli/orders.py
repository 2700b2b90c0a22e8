"""Commands on orders: list, find, show and release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, FormatOption, document, emit, note, say
from reconcile.ledger.ledger import FINDING_CODES, OUTCOMES
from reconcile.ledger.records import HOLD_REASONS

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext


def print_ledger(ledger: Mapping[str, Any], told: Sequence[Mapping[str, Any]]) -> None:
    """Outcome first, then why, then the events, the money and who told us what.

    told  the records of the merchant's side, as JSON values
    """
    ship = "may be fulfilled" if ledger["fulfillable"] else "must not be fulfilled"
    say(f"{ledger['order']}: {ledger['outcome']}, {ship} (as of {ledger['as_of']})")
    print()
    for sentence in ledger["explanation"]:
        say(f"  {sentence}")
    print()
    if ledger["timeline"]:
        emit(
            ledger["timeline"],
            columns=("occurred_at", "received_at", "event", "kind", "attempt", "money", "note"),
            form=Format.table,
        )
    if ledger["entries"]:
        emit(
            ledger["entries"],
            columns=("at", "kind", "money", "attempt", "cites"),
            form=Format.table,
        )
    if told:
        emit(list(map(_record, told)), columns=("at", "told", "what", "by"), form=Format.table)
    if ledger["next_decision_at"] is not None:
        print(f"Next decision at {ledger['next_decision_at']}, unless something new is said.")
    if "pruned" in ledger:
        say(ledger["pruned"]["sentence"])
    print(f"Fingerprint {ledger['fingerprint']}")


def _record(told: Mapping[str, Any]) -> dict[str, Any]:
    """A row of what was told: what it names, and who told it."""
    named = [f"{kind} {told[kind]}" for kind in ("session", "payment") if kind in told]
    money = told.get("money")
    said = [] if money is None else [f"{money['currency']} {money['amount']}"]
    return {
        "at": told["at"],
        "told": told["kind"],
        "what": ", ".join([*said, *named]),
        "by": told.get("author"),
    }


group = typer.Typer(help="Orders and their explained ledgers.", no_args_is_help=True)

COLUMNS = ("order", "outcome", "fulfillable", "captured", "findings", "explanation")
FOUND = ("order", "outcome", "captured", "phone", "found", "explanation")


@group.command("list")
def list_orders(
    outcome: Annotated[
        str | None, typer.Option(help=f"Only one of: {', '.join(OUTCOMES)}.")
    ] = None,
    finding: Annotated[str | None, typer.Option(help="Only with this finding.")] = None,
    after: Annotated[str, typer.Option(help="Only references after this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Orders at most.")] = 100,
    form: FormatOption = Format.table,
) -> None:
    """List orders with their outcome and one line of explanation."""
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from app.orders import read_orders
    from reconcile.ledger.explain import ledger_summary

    for word, words in ((outcome, OUTCOMES), (finding, FINDING_CODES)):
        if word is not None and word not in words:
            raise UsageError(f"{word!r} is none of: {', '.join(words)}")
    ledgers = with_context(
        lambda context, settings: read_orders.list_orders(
            context,
            after=after,
            limit=limit,
            outcome=outcome,
            finding=finding,
        )
    )
    rows = [ledger_summary(ledger) for ledger in ledgers]
    for row in rows:
        row["captured"] = row["totals"]["captured"]
    emit(rows, columns=COLUMNS, form=form)
    if len(rows) == limit:
        note(f"There may be more: --after {rows[-1]['order']}")


@group.command("find", epilog="Such as: tallyhook orders find KES 1500.00 2026-11-20")
def find(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT",
            help="A reference or how it begins, a payment, a session, an event id, a phone number "
            "(+254 700 000 001), an amount (KES 1500.00), a day (2026-11-20), or an amount and a "
            "day.",
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Orders at most.")] = 20,
    form: FormatOption = Format.table,
) -> None:
    """Find an order by whatever the customer can tell of it, and say how it was found.

    Exit code 5 where nothing is found.
    """
    from app.bootstrap_sources import compile_sources
    from app.cli.running import with_context
    from app.orders.find_orders import find_orders

    found = with_context(
        lambda context, settings: find_orders(
            context, " ".join(words), sources=compile_sources(settings), limit=limit
        )
    )
    if form is Format.json:
        document(found.document(), form)
    else:
        rows = [hit | {"captured": hit["totals"]["captured"]} for hit in found.hits]
        emit(rows, columns=FOUND, form=form)
    note(f"Looked for: {'; '.join(found.looked_for)}.")
    for sentence in found.notes:
        note(sentence)
    if found.more:
        note(f"There are more than these {len(found.hits)}: raise --limit, or tell more.")
    if not found.hits:
        note("Nothing was found.")
        raise typer.Exit(5)


@group.command("show")
def show_order(
    reference: Annotated[str, typer.Argument(help="The order's reference.")],
    as_of: Annotated[
        str | None, typer.Option(help="As it could be known at this RFC 3339 moment.")
    ] = None,
    with_personal_data: Annotated[
        bool,
        typer.Option(
            "--with-personal-data",
            help="Show the customer's phone in full too; needs --reason, and is in the trail.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="Why the phone must be seen.")] = "",
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Show one order's ledger: what happened, why we say so, and what would change it."""
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from reconcile.instants import parse_instant

    try:
        instant = None if as_of is None else parse_instant(as_of)
    except ValueError as error:
        raise UsageError(f"--as-of: {error}") from None

    async def look(
        context: AppContext, settings: Settings
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        from app.bootstrap_sources import compile_sources
        from app.orders.customers import unmask
        from app.orders.read_orders import order_document, told_of

        shown = await order_document(context, reference, as_of=instant)
        told = await told_of(context, reference, as_of=instant)
        if not with_personal_data:
            return shown, told
        sources = compile_sources(settings)
        phones = await unmask(context, reference, sources=sources, reason=reason, by=by)
        return shown | {"customer": {"phones": phones}}, told

    found, told = with_context(look, purpose="writing" if with_personal_data else "reading")
    if form is not Format.table:
        document(found, form)
        return
    print_ledger(found, told)
    if with_personal_data:
        print("\nCustomer's phone: " + (", ".join(found["customer"]["phones"]) or "none is kept"))


@group.command("release", epilog="Such as: tallyhook orders release ORD-1042 --reason settled")
def release_orders(
    references: Annotated[
        list[str] | None, typer.Argument(help="The orders' references.", metavar="[REF]...")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every order that is held for this.")
    ] = False,
    held_for: Annotated[
        str,
        typer.Option(help=f"What they are held for: one of {', '.join(HOLD_REASONS)}."),
    ] = "rules_changed",
    reason: Annotated[str, typer.Option(help="Why they may go; the audit trail keeps it.")] = "",
    by: ByOption = None,
) -> None:
    """Let held orders go: they are published, and the shop is notified, as any other.

    An upgrade holds what only its rules make fulfillable; `orders list --finding held_back` shows
    what is held. Exit code 5, and nothing is released, where one of them is not held.
    """
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from app.core.text import counted
    from app.orders import holds
    from app.orders.customers import checked_reason

    if bool(references) == everything:
        raise UsageError("name the orders to release, or say --all")
    held = next((each for each in HOLD_REASONS if each == held_for), None)
    if held is None:
        raise UsageError(f"--held-for is one of: {', '.join(HOLD_REASONS)}")
    why = checked_reason(reason, []) if reason else ""
    count = with_context(
        lambda context, settings: (
            holds.release(context, set(references), reason=held, why=why, by=by)
            if references
            else holds.release_all(context, reason=held, why=why, by=by)
        ),
        purpose="writing",
    )
    if count:
        note(
            f"{counted(count, 'order')} released; the service or worker that runs publishes and "
            "notifies."
        )
    else:
        note(f"No order is held ({held}).")
