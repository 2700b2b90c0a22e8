"""A ledger for reading on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.cli.output import Format, emit, say


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
