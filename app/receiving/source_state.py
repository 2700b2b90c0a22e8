"""State of each source, from its last deliveries and rejections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict

from app.context.configured import accounts
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.database.gaps import Gap, accepted_gaps, spans_of
from app.providers.connecting import where_to_put_the_reference
from app.providers.doctor import Account
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile
from app.receiving import source_state_store
from app.receiving.caught_up import behind_s, spoken_age
from app.receiving.diagnose import diagnose_delivery
from app.receiving.refusal_store import newest_rejections
from reconcile.documents import InstantText
from reconcile.instants import DAY, Instant, format_instant

SourceWord = Literal[
    "ok", "refusing", "not_placed", "not_ours", "flooded", "quiet", "never_delivered"
]

LOOKED_AT: Final = 200
"""Number of latest deliveries of a source among which payments are searched."""

PAYMENTS: Final = 20
"""Number of payment events by which a source is judged."""

EXPLAINED: Final = 3
"""Number of latest rejections that are examined for an explanation."""


class SourceStateDocument(TypedDict):
    source: str
    state: SourceWord
    since: InstantText | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """State of one source."""

    source: str
    state: SourceWord
    since: Instant | None
    """Beginning of the state, or last accepted delivery (`quiet`); None for the remaining
    states."""
    last: Instant | None
    sentence: str
    do: str | None
    """Instruction for people, if something must be done."""
    explanation: str | None = None

    @property
    def whole_sentence(self) -> str:
        """Return the sentence, followed by the explanation of rejections if there is one."""
        if self.explanation is None:
            return self.sentence
        return f"{self.sentence} The latest: {self.explanation}"

    def document(self) -> SourceStateDocument:
        """Return the state as JSON values, without the instruction `do`."""
        return document_of(SourceStateDocument, self, sentence=self.whole_sentence)


async def source_arrivals(context: AppContext) -> Mapping[str, source_state_store.SourceArrivals]:
    return await context.database.on_snapshot(
        source_state_store.arrivals_by_source, context.sources
    )


async def source_states(context: AppContext) -> list[SourceState]:
    """Return the state of every configured source, sorted by name."""
    now, behind = context.clock.now(), await behind_s(context, patience="none")
    gaps = [
        gap for gap in await context.database.on_snapshot(accepted_gaps) if gap.until > now - DAY
    ]
    arrivals = await source_arrivals(context)
    latest = await context.database.on_snapshot(
        source_state_store.last_events, list(context.sources), looked_at=LOOKED_AT
    )
    return [
        judged(
            name,
            context.sources[name].profile,
            arrivals[name],
            latest[name],
            now=now,
            behind=behind,
            not_kept=await context.database.on_snapshot(
                source_state_store.not_kept_in, [name], since=now - DAY, until=now
            ),
            gaps=gaps,
        )
        for name in sorted(context.sources)
    ]


def judged(
    name: str,
    profile: Profile,
    came: source_state_store.SourceArrivals,
    latest: list[source_state_store.LastEvent],
    *,
    now: Instant,
    behind: int,
    not_kept: int = 0,
    gaps: Sequence[Gap] = (),
) -> SourceState:
    """Return the state of one source.

    latest    latest deliveries of the source, newest first
    behind    age in seconds of the oldest unread delivery of any source; 0 without one
    not_kept  number of the last day's requests above the limit of an unsigned source
    gaps      accepted gaps that overlap the last day
    """
    state, since, sentence, do = _judged(profile, came, latest, now=now)
    if behind:
        sentence += (
            " Some accepted deliveries have not been read yet, the oldest for "
            f"{spoken_age(behind)}, so their effect is not known."
        )
    if gaps:
        sentence += f" Its deliveries {spans_of(gaps)} may be lost."
    if not_kept:
        count = counted(not_kept, "unsigned request was", "unsigned requests were")
        sentence += f" {count} not stored in the last day, so genuine callbacks may be missing."
        if state in ("ok", "quiet", "never_delivered"):
            state, since = "flooded", None
            do = (
                "let only the provider's addresses through, and name sessions and payments with "
                "PUT /api/v1/orders: requests that name them have a separate allowance"
            )
    return SourceState(
        source=name, state=state, since=since, last=came.last_read_at, sentence=sentence, do=do
    )


_Judgement = tuple[SourceWord, Instant | None, str, str | None]


def _judged(
    profile: Profile,
    came: source_state_store.SourceArrivals,
    latest: list[source_state_store.LastEvent],
    *,
    now: Instant,
) -> _Judgement:
    last = came.last_accepted_at
    if came.refusing_since is not None:
        accepted = "none was ever accepted" if last is None else "none was accepted since"
        refused = counted(came.refused_since_then, "delivery was", "deliveries were")
        begun = format_instant(came.refusing_since)
        return (
            "refusing",
            came.refusing_since,
            f"{refused} refused from {begun} on, and {accepted}.",
            "correct the cause, then run `tallyhook deliveries reverify`, which accepts the "
            "genuine ones; if the provider's own list lacks them, somebody else sent them",
        )
    if last is None:
        return (
            "never_delivered",
            None,
            "No delivery of it was ever accepted, and none was refused in the last ninety days.",
            "register the address with the provider, subscribe to its events and make a test "
            "payment",
        )
    unread = bool(latest) and all(each.unreadable for each in latest)
    anyones = profile.signature.mac == UNSIGNED or profile.unconfirmed
    recently = came.last_read_at is not None and now - came.last_read_at <= DAY
    if unread and anyones and recently:
        return (
            "ok",
            None,
            "A message of the last day was readable; later ones, which anyone can send, were not.",
            None,
        )
    if unread:
        return (
            "not_placed",
            latest[-1].received_at,
            f"None of its last {counted(len(latest), 'delivery', 'deliveries')} could be read.",
            "find out why with `tallyhook deliveries list --verdict unreadable`, correct its "
            "profile, and run `tallyhook reindex` while the service is stopped",
        )
    payments = [each for each in latest if each.of_payment][:PAYMENTS]
    others = [each for each in payments if each.others]
    if others and not any(each.placed and not each.others for each in payments):
        return (
            "not_ours",
            payments[-1].received_at,
            "Its deliveries are accepted, but none of its last "
            f"{counted(len(payments), 'event', 'events')} of payments is this shop's: "
            f"{len(others)} state another shop or seller, or none.",
            "compare ACCOUNT and ONLY of the source with what the events state, correct them, and "
            "run `tallyhook reindex` while the service is stopped",
        )
    if payments and not any(each.placed for each in payments):
        of = counted(len(payments), "event", "events")
        return (
            "not_placed",
            payments[-1].received_at,
            f"Its deliveries are accepted, but none of its last {of} of payments is in an order.",
            f"{where_to_put_the_reference(profile)}; `tallyhook deliveries list --no-order` shows "
            "them",
        )
    if now - last > DAY:
        return (
            "quiet",
            last,
            f"Its last delivery came at {format_instant(last)}.",
            "if there were orders since, check the provider's own list of deliveries: "
            "deliveries may fail there, or the address may be switched off",
        )
    placed = "and its payments are in orders" if payments else "but no payment is among them yet"
    return "ok", None, f"Its deliveries arrive and are read, {placed}.", None


async def explained_states(context: AppContext) -> list[SourceState]:
    """Return every source's state, with an explanation for rejected deliveries."""
    found = await source_states(context)
    known = accounts(context.settings) if any(s.state == "refusing" for s in found) else {}
    for number, each in enumerate(found):
        if each.state == "refusing":
            async with context.database.reading() as connection:
                newest = await newest_rejections(connection, each.source, limit=EXPLAINED)
            found[number] = replace(each, explanation=await _explained(context, newest, known))
    return found


async def _explained(
    context: AppContext, newest: list[str], known: Mapping[str, Account]
) -> str | None:
    unexplained = None
    for delivery in newest:
        try:
            found = await diagnose_delivery(context, delivery, accounts=known)
        except (UsageError, NotFoundError):  # stored in part, or no longer in the ring
            continue
        if found.diagnoses:
            return found.diagnoses[0].sentence
        unexplained = unexplained or found.unexplained
    return unexplained
