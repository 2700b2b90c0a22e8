"""Which locations of a profile its signature covers: what is not signed, anyone can write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from app.providers.grammar import Reference, read_template, references
from app.providers.paths import EACH, Path, Where, compile_path

_WHOLE_BODY: Final = frozenset(
    {"body", "body_or_query", "form_received", "form_sorted", "form_joined"}
)
_WHOLE_QUERY: Final = frozenset({"url", "body_or_query"})
_PREFIXES: Final = frozenset({"raw", "compact", "canonical"})
_OF_BODY: Final = frozenset({"json", "root", "form", "digest"})
_TOO_WEAK: Final = frozenset({"crc32"})

PRICES: Final = {
    "payment": ("payment_currency",),
    "refund": ("refund_currency",),
    "refunded_total": ("refund_currency", "payment_currency"),
    "order": ("order_currency",),
}
"""The amounts of a profile, each with the keys of its currency, of which the first counts."""


class Coverage:
    """What one profile signs.

    signed    the references of the signed content; None where a named verifier sees to it
    items     the path of the events in the body, empty where the body is the event
    per_item  whether each event carries its own signature
    """

    def __init__(self, signed: str | None, *, items: str | None, per_item: bool) -> None:
        found = [] if signed is None else references(read_template(signed))
        self._everything = signed is None
        self._signed = [each for each in found if not _TOO_WEAK & set(each.filters)]
        self._items: Path = compile_path(items, each=True) if items and not per_item else ()

    def covers(self, location: str) -> bool:
        """Whether nothing at this location can be changed without the signature failing."""
        if self._everything:
            return True
        if "{" in location:
            named = references(read_template(location))
            return all(self._covers(each.name, each.argument) for each in named)
        kind, _, name = location.partition(":")
        return self._covers(kind, name)

    def covers_body(self) -> bool:
        """Whether the whole body is covered."""
        return self._everything or any(_is_whole_body(each) for each in self._signed)

    def _covers(self, kind: str, name: str) -> bool:
        if kind == "text" or (kind in _OF_BODY and self.covers_body()):
            return True
        if kind in ("json", "root"):
            path = compile_path(name)
            return self._covers_path(self._items + path if kind == "json" else path)
        if kind == "query" and any(_is_whole_query(each) for each in self._signed):
            return True
        return any(each.name == kind and each.argument == name for each in self._signed)

    def _covers_path(self, path: Path) -> bool:
        if EACH in path:
            return False
        for place, step in enumerate(path):
            if isinstance(step, Where) and not self._is_signed(path):
                # Of one object: both the member that is asked and what is then taken are signed.
                asked = (*path[:place], step.name)
                return self._covers_path(asked) and self._covers_path(
                    path[:place] + path[place + 1 :]
                )
        return self._is_signed(path)

    def _is_signed(self, path: Path) -> bool:
        for each in self._signed:
            if each.name in _PREFIXES | {"json"} and each.argument:
                signed = compile_path(each.argument)
                if path == signed or (each.name in _PREFIXES and path[: len(signed)] == signed):
                    return True
        return False


def _is_whole_body(reference: Reference) -> bool:
    return reference.name in _WHOLE_BODY or (reference.name in _PREFIXES and not reference.argument)


def _is_whole_query(reference: Reference) -> bool:
    return reference.name in _WHOLE_QUERY or (reference.name == "query" and not reference.argument)


def what_counts(values: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The keys whose value decides what an event is worth, each with its locations."""
    for key in ("kind", "order", "session", "payment", "movement", "capture"):
        yield f"event.{key}", values["event"][key]
    for amount, currencies in PRICES.items():
        if values["amounts"][amount]:
            for key in (amount, *currencies):
                yield f"amounts.{key}", values["amounts"][key]
