"""Find unreadable messages and accepted gaps that can concern an order."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app.database.statements import PlainConnection
from app.orders.service_holds import gaps_in, judged_at, unread_naming
from app.orders.unallocated import fitting_payments
from app.receiving.source_state_store import arrivals_by_source, last_read, not_kept_in, refused_in
from app.receiving.unread_store import NO_VALUE, messages_with, problems_of
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.unheard import MessageNotRead, PaymentOfNoOrder, SourceHeard, Unheard

if TYPE_CHECKING:
    from app.providers.source import Source

MOST_SHOWN: Final = 100
"""Maximum number of messages shown for one order; a wrong profile makes all unreadable."""


def unheard_of(
    connection: PlainConnection,
    history: History,
    ledger: Ledger,
    *,
    sources: "Mapping[str, Source]",
) -> Unheard:
    """Return the unreadable messages and the gaps that may concern the order, as known at the
    ledger's instant.

    sources  all configured sources
    """
    until, order = ledger.as_of, history.order
    of_order = sorted(_sources_of(history) & set(sources)) or sorted(sources)
    naming = unread_naming(connection, {order: history}).get(order, [])
    found = [(each, True) for each in naming]
    if not ledger.has_captures:
        named = {each.delivery_id for each in naming}
        found += [
            (each, False)
            for each in messages_with(connection, [NO_VALUE])
            if each.source in of_order
            and each.delivery_id not in named
            and each.received_at > judged_at(history)
        ]
    found = [each for each in found if each[0].received_at <= until][:MOST_SHOWN]
    problems = problems_of(connection, [each.delivery_id for each, _ in found])
    states = arrivals_by_source(connection, {each: sources[each] for each in of_order})
    heard = []
    for source in of_order:
        since = states[source].refusing_since
        refusing = since is not None and since <= until
        heard.append(
            SourceHeard(
                source=source,
                last_read_at=last_read(connection, source, until=until),
                refusing_since=since if refusing else None,
                refused=states[source].refused_since_then if refusing else 0,
            )
        )
    fitting = [
        PaymentOfNoOrder(id=each.id, received_at=each.received_at, money=each.held)
        for each in fitting_payments(connection, history, ledger)
    ]
    since = _known_since(history, until)
    return Unheard(
        sources=tuple(heard),
        payments=tuple(fitting),
        messages=tuple(
            MessageNotRead(
                delivery=each.delivery_id,
                source=each.source,
                received_at=each.received_at,
                problem=problems.get(each.delivery_id, "it was set aside"),
                names_order=names,
            )
            for each, names in sorted(found, key=lambda pair: pair[0].received_at)
        ),
        refused=refused_in(connection, of_order, since=since, until=until),
        not_kept=not_kept_in(connection, of_order, since=since, until=until),
        gaps=gaps_in(connection, history, until=until),
    )


def _sources_of(history: History) -> set[str]:
    own = {d.event.source for d in history.deliveries if d.event.order in (None, history.order)}
    return own | {each.source for each in history.records if each.source is not None}


def _known_since(history: History, until: Instant) -> Instant:
    heard = [each.received_at for each in history.deliveries]
    return min([until, *heard, *(each.recorded_at for each in history.records)])
