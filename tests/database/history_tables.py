"""Evidence of several orders as tables: the parts, and the history of each order.

A part is an event, or a record of an opened session or a named reference: `n`, `r:opened`,
`r:named`. After it stand what it names: orders A to C, payments p and q, sessions s and t, another
source. `a=x` is the part `a` with the event id x.
"""

from typing import Any, Final

from reconcile.ledger.events import Event
from reconcile.ledger.records import Record
from tests.database.builders import reference_named, said, session_opened

_TABLES: Final = {
    "a payment names its order later": ("n p; a A p", "A: n a"),
    "a chain from session to payment": ("n1 p; n2 s p; a A s", "A: n1 n2 a"),
    "a chain with both ends in one transaction": (
        "n1 s p; n2 s; n3 s q; n4 q; a A p",
        "A: n1 n2 n3 n4 a",
    ),
    "a chain that begins with a record": ("n1 p; n2 s p; r:opened A s", "A: n1 n2 r"),
    "a payment that two orders claim": ("a A p; b B p; n p; c B q", "A: a b n; B: a b n c"),
    "a chain out of a contested payment": (
        "a A p; b B p; n1 s p; n2 s",
        "A: a b n1 n2; B: a b n1 n2",
    ),
    "one id with bodies of two orders": ("a=x A p; b=x B q", "A: a b; B: a b"),
    "one id with a nameless body of another order": ("a=x A p; n=x q; b B q", "A: a n b; B: n b a"),
    "a session that a record and another order's event claim": (
        "r:opened A s; b B s; n s",
        "A: r b n; B: r b n",
    ),
    "a session that records of two orders claim": (
        "r:opened A s; q:opened B s; n s",
        "A: r q n; B: r q n",
    ),
    "a payment that the shop names": ("n1 p; n2 s p; r:named A p", "A: n1 n2 r"),
    "a session that the shop names, of which the payment comes alone": (
        "n1 s; n2 s p; n3 p; r:named A s",
        "A: n1 n2 n3 r",
    ),
    "a payment that the shop names for one order, and its session for another": (
        "r:named A p; q:named B s; n s p",
        "A: r q n; B: r q n",
    ),
    "a payment that the shop names, and another order's event": (
        "r:named A p; b B p; n p",
        "A: r b n; B: r b n",
    ),
    "a payment that the shop names at another source": (
        "r:named A p other; b B p; n p",
        "A: r; B: b n",
    ),
    "the same references at another source": ("a A p; n p other; b B p other", "A: a; B: n b"),
    "a payment and a session of one name": ("a A payment=x; b B session=x", "A: a; B: b"),
    "three orders in a row": (
        "a A p; n1 s p; b B s q; n2 t q; c C t",
        "A: a n1 b; B: a n1 b n2 c; C: n2 b c",
    ),
}

_KINDS: Final = {
    **dict.fromkeys("ABC", "order"),
    **dict.fromkeys("pq", "payment"),
    **dict.fromkeys("st", "session"),
    "other": "source",
}


def _part(text: str) -> tuple[str, Event | Record]:
    head, *words = text.split()
    name, _, kind = head.partition(":")
    name, _, event_id = name.partition("=")
    named: dict[str, Any] = {}
    for word in words:
        field, _, value = word.rpartition("=")
        named[field or _KINDS[word]] = value
    if kind == "opened":
        return name, session_opened(**named)
    return name, reference_named(**named) if kind else said(event_id or name, **named)


TABLES: Final = {
    name: (
        dict(map(_part, parts.split("; "))),
        dict(history.split(": ") for history in histories.split("; ")),
    )
    for name, (parts, histories) in _TABLES.items()
}
"""Parts by name of the table, and those that each order's history must hold."""
