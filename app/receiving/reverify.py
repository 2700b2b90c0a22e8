"""Verify stored rejections again after a correction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.access.operator_store import acts_since
from app.access.operators import SERVICE, note_in_trail, who_may
from app.context.context import AppContext
from app.core.clock import CLOCKS_DIFFER
from app.core.errors import ConfigurationError
from app.core.jobs import silent
from app.database.statements import run
from app.providers.request import Incoming
from app.providers.source import ProviderReply, Source
from app.receiving import verify
from app.receiving.append_store import Appended, Arrival, accepted_of, keep_arrivals
from app.receiving.caught_up import behind_s
from app.receiving.framing import Received
from app.receiving.header_codec import read_request, restored
from app.receiving.pace import Pace
from app.receiving.refusal_store import Rejection, delete_rejections, kept_rejections
from app.receiving.refusals import AGES
from app.receiving.source_state_store import note_sources
from reconcile.instants import EARLIEST, SECOND, Instant, parse_instant

AT_ONCE: Final = 100

FIRST_ACCEPTED: Final = 20


@dataclass(slots=True, kw_only=True)
class Reverified:
    """Result of verifying stored rejections again."""

    judged: int = 0
    accepted: list[tuple[str, str]] = field(default_factory=list)
    """Id and verdict of each rejection that became a delivery."""
    refused: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    """Number of rejections of which too little was stored."""

    def refuse(self, verdict: str) -> None:
        """Count one more delivery that is still rejected."""
        self.refused[verdict] = self.refused.get(verdict, 0) + 1


async def reverify(
    context: AppContext,
    *,
    only: str | None,
    progress: Callable[[int], None] = silent,
    by: str | None = None,
    why: str = "",
) -> Reverified:
    """Verify all stored rejections, and store the genuine ones as deliveries.

    Raise ConfigurationError for an unknown source, and UsageError if permission is missing.
    """
    if only is not None and only not in context.sources:
        raise ConfigurationError(
            [f"TALLYHOOK_SOURCES__{only.upper()}__PROFILE: no source with this name is configured"]
        )
    who = await who_may(context, by=by, action="deliveries_reverified")
    await behind_s(context)  # refused deliveries pass through the inbox, too
    done = await _pass(context, only=only, progress=progress)
    async with context.database.writing() as connection:
        await note_in_trail(
            connection,
            who,
            action="deliveries_reverified",
            subject=only or "all sources",
            at=context.clock.now(),
            reason=why,
            facts={"judged": done.judged, "accepted": len(done.accepted)},
        )
    return done


async def _pass(
    context: AppContext,
    *,
    only: str | None,
    progress: Callable[[int], None],
) -> Reverified:
    done, pace = Reverified(), Pace(first=FIRST_ACCEPTED, most=AT_ONCE)
    spans = await _spans_ahead(context)
    async for page in _pages(context):
        wanted = [each for each in page if only is None or each.source == only]
        await _judge_page(context, wanted, spans=spans, done=done, pace=pace)
        progress(len(page))
    return done


async def _pages(context: AppContext) -> AsyncIterator[list[Rejection]]:
    after = ""
    while True:
        async with context.database.reading() as connection:
            page = await kept_rejections(connection, after=after, at_once=AT_ONCE)
        if not page:
            return
        after = page[-1].delivery_id
        yield page


async def _spans_ahead(context: AppContext) -> list[tuple[Instant, Instant]]:
    async with context.database.reading() as connection:
        entries = await acts_since(
            connection, EARLIEST, who=SERVICE.name, actions=["clock_put_right"]
        )
    return [
        (parse_instant(str(each.facts["since"])), each.at)
        for each in entries
        if each.facts["since"] != "unknown"
    ]


async def previewed(context: AppContext, *, only: str | None) -> Reverified:
    """Return the result that `reverify` would have, without any change."""
    done, spans = Reverified(), await _spans_ahead(context)
    async for page in _pages(context):
        for each in page:
            if only in (None, each.source):
                done.judged += 1
                judged = _judged(context, each, spans)
                if judged is None:
                    done.cut += 1
                elif isinstance(judged, verify.RefusedDelivery):
                    done.refuse(judged.verdict)
                elif judged:
                    done.accepted.append((each.delivery_id, each.verdict))
        await asyncio.sleep(0)  # let other requests run
    return done


async def count_genuine(
    context: AppContext,
    *,
    since: Instant,
    until: Instant,
) -> int:
    """Return the number of rejections that would be accepted now."""
    count, spans = 0, await _spans_ahead(context)
    async for page in _pages(context):
        for each in page:
            if since <= each.received_at < until:
                judged = _judged(context, each, spans)
                count += isinstance(judged, list) and bool(judged)
    return count


async def _judge_page(
    context: AppContext,
    page: list[Rejection],
    *,
    spans: Sequence[tuple[Instant, Instant]],
    done: Reverified,
    pace: Pace,
) -> None:
    accepted: list[tuple[Rejection, list[Arrival]]] = []
    for rejection in page:
        done.judged += 1
        judged = _judged(context, rejection, spans)
        if judged is None:
            done.cut += 1
        elif isinstance(judged, verify.RefusedDelivery):
            done.refuse(judged.verdict)
        else:
            accepted.append((rejection, judged))
    while accepted:
        part, accepted = accepted[: pace.size], accepted[pace.size :]
        async with pace.writing(context.database, pieces=len(part)) as connection:
            done.accepted += await _accept(connection, part)
        context.signals.evidence_arrived.set()


def _judged(
    context: AppContext, rejection: Rejection, spans: Sequence[tuple[Instant, Instant]]
) -> verify.RefusedDelivery | list[Arrival] | None:
    source, environment = context.sources.get(rejection.source), context.database.environment or ""
    if source is None:
        return verify.RefusedDelivery("source_unknown", "no source with this name is configured")
    if rejection.size != len(rejection.body) or rejection.verdict == "body_too_large":
        return None
    kept = read_request(rejection.headers, rejection.body)
    incoming = kept._replace(
        headers=restored(kept.headers, source.tokens),
        url=kept.url or f"/webhooks/{source.name}",
    )
    came = rejection.received_at
    begun = min((since for since, until in spans if since <= came <= until), default=came)
    bounds = min(begun, Instant(came - CLOCKS_DIFFER)), max(came, context.clock.now())
    refused = _refusal_within(source, incoming, came, bounds, environment=environment)
    if refused is not None:
        return [] if isinstance(refused, ProviderReply) else refused
    received = Received(
        delivery_id=rejection.delivery_id,
        received_at=came,
        source=source.name,
        headers=verify.kept_head(incoming, source),
        body=rejection.body,
        url=incoming.url,
    )
    return verify.read_delivery(source, received, environment=environment)


def _refusal_within(
    source: Source,
    incoming: Incoming,
    at: Instant,
    bounds: tuple[Instant, Instant],
    *,
    environment: str,
) -> verify.RefusedDelivery | ProviderReply | None:
    earliest, latest = bounds
    while True:
        refused = verify.refusal_of(source, incoming, now=at, environment=environment)
        if not isinstance(refused, verify.RefusedDelivery) or refused.verdict not in AGES:
            return refused
        if refused.verdict == "timestamp_too_old":
            latest = at
        else:
            earliest = at
        if latest - earliest < SECOND:
            return refused
        at = Instant(earliest + (latest - earliest) // 2)


async def _accept(
    connection: Any, accepted: list[tuple[Rejection, list[Arrival]]]
) -> list[tuple[str, str]]:
    # Only what is still in the ring: another pass or a flood may have removed some.
    gone = await delete_rejections(connection, [rejection.delivery_id for rejection, _ in accepted])
    arrivals = [
        arrival
        for rejection, several in accepted
        if rejection.delivery_id in gone
        for arrival in several
    ]
    verdicts = await keep_arrivals(connection, arrivals)
    await run(connection, note_sources, accepted_of(Appended(arrivals, verdicts, {})))
    return [(a.delivery_id, verdict) for a, verdict in zip(arrivals, verdicts, strict=True)]
