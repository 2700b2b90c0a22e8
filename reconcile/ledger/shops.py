"""Decide which shop a payment belongs to on a shared provider account."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from reconcile.ledger.events import UNCONFIRMED, ClaimKind, Event
from reconcile.ledger.placing import keys_of

Aside = Literal["other", "unknown"]

OPENS: Final[frozenset[ClaimKind]] = frozenset(
    ("pending", "authorized", "succeeded", "declined", "expired", "timed_out")
)
"""Claims about a payment's start or success."""

EventKey = tuple[str, str, str]
Mark = tuple[str, str, str]
"""Reference that an event names: source, kind and reference."""


class Shops(NamedTuple):
    """Decision on which shop each event belongs to, by event key."""

    aside: Mapping[EventKey, Aside]
    """True if the event belongs to another or to an unknown shop."""
    rests_on: Mapping[EventKey, tuple[str, ...]]
    """Ids of other evidence that an event belongs to our shop."""


NOBODY_ASKS: Final = Shops({}, {})


def judge_shops(events: Collection[Event]) -> Shops:
    """Decide which shop the payment of each event belongs to."""
    if all(event.shop is None for event in events):
        return NOBODY_ASKS
    stated: dict[Mark, list[Event]] = defaultdict(list)
    ties: dict[Mark, dict[Mark, str]] = defaultdict(dict)
    ours: dict[Mark, str] = {}
    for event in events:
        if event.standing == UNCONFIRMED:
            continue
        marks = _marks(event)
        for mark in marks:
            stated[mark].append(event)
            if event.shop == "ours":
                ours[mark] = min(event.event_id, ours.get(mark, event.event_id))
            for other in marks:
                if other != mark:
                    known = ties[mark].get(other, event.event_id)
                    ties[mark][other] = min(event.event_id, known)
    verdicts: dict[Mark, Aside | Literal["ours"] | None] = {}
    for mark in stated:
        if mark not in verdicts:
            reached = _reached([mark], ties)
            verdict = _verdict([event for each in reached for event in stated[each]])
            verdicts |= dict.fromkeys(reached, verdict)
    aside: dict[EventKey, Aside] = {}
    rests_on: dict[EventKey, tuple[str, ...]] = {}
    for event in events:
        marks = _marks(event)
        verdict = verdicts.get(marks[0], verdicts.get(marks[-1]))
        if event.standing == UNCONFIRMED:
            # Anyone may have sent an unconfirmed event: it decides nothing and follows the others.
            if verdict == "other" or (verdict is None and event.shop == "other"):
                aside[event.key] = "other"
        elif verdict == "ours":
            if event.shop != "ours":
                paths = [(*path, ours[m]) for m, path in _reached(marks, ties).items() if m in ours]
                rests_on[event.key] = min(paths, key=lambda path: (len(path), path))
        elif verdict is not None:
            aside[event.key] = verdict
    return Shops(aside, rests_on)


def _marks(event: Event) -> list[Mark]:
    return [*keys_of(event)] or [(event.source, "event", event.event_id)]


def _reached(
    marks: Iterable[Mark], ties: Mapping[Mark, Mapping[Mark, str]]
) -> dict[Mark, tuple[str, ...]]:
    found: dict[Mark, tuple[str, ...]] = dict.fromkeys(marks, ())
    wanted = list(found)
    for mark in wanted:
        for other, tie in sorted(ties.get(mark, {}).items()):
            if other not in found:
                found[other] = (*found[mark], tie)
                wanted.append(other)
    return found


def _verdict(events: Iterable[Event]) -> Aside | Literal["ours"] | None:
    decisive: set[str | None] = set()
    others: set[str | None] = set()
    for event in events:
        (decisive if event.claim in OPENS else others).add(event.shop)
    for said in (decisive, others):
        if "other" in said:
            return "other"
        if "ours" in said:
            return "ours"
    return "unknown" if "unstated" in decisive | others else None
