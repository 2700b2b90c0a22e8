"""Evidence of several orders as tables: the parts, and the history of each order."""

from __future__ import annotations

from typing import Final

from reconcile.ledger.events import Event
from reconcile.ledger.records import Record
from tests.database.builders import reference_named, said, session_opened

TABLES: Final[dict[str, tuple[dict[str, Event | Record], dict[str, str]]]] = {
    "a payment names its order later": (
        {"n": said("n", payment="p"), "a": said("a", order="A", payment="p")},
        {"A": "n a"},
    ),
    "a chain from session to payment": (
        {
            "n1": said("n1", payment="p"),
            "n2": said("n2", session="s", payment="p"),
            "a": said("a", order="A", session="s"),
        },
        {"A": "n1 n2 a"},
    ),
    "a chain with both ends in one transaction": (
        {
            "n1": said("n1", session="s", payment="p"),
            "n2": said("n2", session="s"),
            "n3": said("n3", session="s", payment="q"),
            "n4": said("n4", payment="q"),
            "a": said("a", order="A", payment="p"),
        },
        {"A": "n1 n2 n3 n4 a"},
    ),
    "a chain that begins with a record": (
        {
            "n1": said("n1", payment="p"),
            "n2": said("n2", session="s", payment="p"),
            "r": session_opened("A", "s"),
        },
        {"A": "n1 n2 r"},
    ),
    "a payment that two orders claim": (
        {
            "a": said("a", order="A", payment="p"),
            "b": said("b", order="B", payment="p"),
            "n": said("n", payment="p"),
            "c": said("c", order="B", payment="q"),
        },
        {"A": "a b n", "B": "a b n c"},
    ),
    "a chain out of a contested payment": (
        {
            "a": said("a", order="A", payment="p"),
            "b": said("b", order="B", payment="p"),
            "n1": said("n1", session="s", payment="p"),
            "n2": said("n2", session="s"),
        },
        {"A": "a b n1 n2", "B": "a b n1 n2"},
    ),
    "one id with bodies of two orders": (
        {
            "a": said("x", order="A", payment="p"),
            "b": said("x", order="B", payment="q"),
        },
        {"A": "a b", "B": "a b"},
    ),
    "one id with a nameless body of another order": (
        {
            "a": said("x", order="A", payment="p"),
            "n": said("x", payment="q"),
            "b": said("b", order="B", payment="q"),
        },
        {"A": "a n b", "B": "n b a"},
    ),
    "a session that a record and another order's event claim": (
        {
            "r": session_opened("A", "s"),
            "b": said("b", order="B", session="s"),
            "n": said("n", session="s"),
        },
        {"A": "r b n", "B": "r b n"},
    ),
    "a session that records of two orders claim": (
        {
            "r": session_opened("A", "s"),
            "q": session_opened("B", "s"),
            "n": said("n", session="s"),
        },
        {"A": "r q n", "B": "r q n"},
    ),
    "a payment that the shop names": (
        {
            "n1": said("n1", payment="p"),
            "n2": said("n2", session="s", payment="p"),
            "r": reference_named("A", payment="p"),
        },
        {"A": "n1 n2 r"},
    ),
    "a session that the shop names, of which the payment comes alone": (
        {
            "n1": said("n1", session="s"),
            "n2": said("n2", session="s", payment="p"),
            "n3": said("n3", payment="p"),
            "r": reference_named("A", session="s"),
        },
        {"A": "n1 n2 n3 r"},
    ),
    "a payment that the shop names for one order, and its session for another": (
        {
            "r": reference_named("A", payment="p"),
            "q": reference_named("B", session="s"),
            "n": said("n", session="s", payment="p"),
        },
        {"A": "r q n", "B": "r q n"},
    ),
    "a payment that the shop names, and another order's event": (
        {
            "r": reference_named("A", payment="p"),
            "b": said("b", order="B", payment="p"),
            "n": said("n", payment="p"),
        },
        {"A": "r b n", "B": "r b n"},
    ),
    "a payment that the shop names at another source": (
        {
            "r": reference_named("A", payment="p", source="other"),
            "b": said("b", order="B", payment="p"),
            "n": said("n", payment="p"),
        },
        {"A": "r", "B": "b n"},
    ),
    "the same references at another source": (
        {
            "a": said("a", order="A", payment="p"),
            "n": said("n", source="other", payment="p"),
            "b": said("b", source="other", order="B", payment="p"),
        },
        {"A": "a", "B": "n b"},
    ),
    "a payment and a session of one name": (
        {"a": said("a", order="A", payment="x"), "b": said("b", order="B", session="x")},
        {"A": "a", "B": "b"},
    ),
    "three orders in a row": (
        {
            "a": said("a", order="A", payment="p"),
            "n1": said("n1", session="s", payment="p"),
            "b": said("b", order="B", session="s", payment="q"),
            "n2": said("n2", session="t", payment="q"),
            "c": said("c", order="C", session="t"),
        },
        {"A": "a n1 b", "B": "a n1 b n2 c", "C": "n2 b c"},
    ),
}
"""Each table: the parts, and which of them each order's history must hold."""
