"""The checklist before real money is taken: checks by the program, and people's statements."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict

import httpx2

from app.access.operators import note_in_trail, permitted, vouch_for_founders
from app.access.proposals import check_reason
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import ConfigurationError, UsageError
from app.core.http import exchange
from app.core.ids import new_id
from app.core.reading import TRIAL
from app.core.text import is_human_text
from app.golive.signoff_store import Judged, Signoff, add_signoff, signoffs
from app.providers.kit import Signed
from app.providers.request import Incoming
from app.providers.schemes import TOKENS
from app.providers.source import Source
from reconcile.documents import InstantText
from reconcile.instants import MINUTE, SECOND, Instant

TRIAL_LIMIT_S: Final = 10.0
"""Seconds to wait for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Result of sending trial requests to a source's endpoint."""

    source: str
    tried: tuple[str, ...] = ()
    wrong: tuple[str, ...] | None = ()
    unreached: bool = False


def requests(
    source: Source, *, url: str, event_id: str, now: Instant
) -> Iterator[tuple[str, Signed, bool]]:
    """Yield each trial request, and whether the endpoint must accept the request."""
    good = source.signed(TRIAL, event_id=event_id, now=now, url=url)
    if not _is_genuine(source, good, url=url, now=now):
        raise ValueError("the provider signs something that the trial cannot produce")
    yield "unsigned", Signed([], TRIAL, good.url), False
    tampered = good._replace(body=good.body.replace(b"public", b"Public"))
    # Some providers' signatures don't cover the body, or it is wrapped and stays as it was.
    if not _is_genuine(source, tampered, url=url, now=now):
        yield "tampered", tampered, False
    timestamp = source.profile.timestamp
    if timestamp is not None:
        before = now - timestamp.past_s * SECOND - MINUTE
        yield "stale", source.signed(TRIAL, event_id=event_id, now=before, url=url), False
    yield "good", good, True


def _is_genuine(source: Source, request: Signed, *, url: str, now: Instant) -> bool:
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers]
    return source.verify(Incoming(headers, request.body, url=request.url or url), now=now) is None


ELSEWHERE: Final = (
    "the genuine request was accepted but did not reach this database: the address leads to "
    "another installation, such as a former one, or the reader is behind (see `tallyhook doctor`)"
)


NO_WEBHOOKS: Final = (
    "{url} answered with status 404, like an address that receives no webhooks of this source: "
    "check that TALLYHOOK_PUBLIC_URL names this service, that the proxy passes the path on "
    "unchanged, and that `tallyhook serve` was restarted after the source was configured"
)


async def try_endpoint(
    client: httpx2.AsyncClient,
    source: Source,
    *,
    url: str,
    now: Instant,
    arrived: Callable[[str], Awaitable[bool]],
) -> Trial:
    """Send each trial request, and compare the answers."""
    # Their requests are unsigned, or must name an account that only the provider's events name.
    if source.profile.signature.mac in {"none", *TOKENS} or source.profile.account.where:
        return Trial(source=source.name, wrong=None)
    try:
        asked = list(requests(source, url=url, event_id=new_id("trial_", now), now=now))
    except (ConfigurationError, ValueError):
        return Trial(source=source.name, wrong=None)
    wrong = []
    for name, request, accepted in asked:
        answer = await exchange(
            client,
            "POST",
            request.url or url,
            headers={**dict(request.headers), "content-type": "application/json"},
            content=request.body,
            limit_s=TRIAL_LIMIT_S,
        )
        if answer.status is None:  # the others won't get through, either
            why = answer.why.replace("_", " ")
            return Trial(
                source=source.name, wrong=(f"no answer came from {url} ({why})",), unreached=True
            )
        if answer.status == 404:  # the others would get it too
            return Trial(source=source.name, wrong=(NO_WEBHOOKS.format(url=url),))
        if not (answer.taken if accepted else answer.status == 401):
            wrong.append(f"the {name} request was answered with {answer.why.replace('_', ' ')}")
        elif accepted and not await arrived(hashlib.sha256(request.body).hexdigest()):
            wrong.append(ELSEWHERE)
    return Trial(source=source.name, tried=tuple(name for name, _, _ in asked), wrong=tuple(wrong))


UNREACHED: Final = (
    "Check that `tallyhook serve` runs, that TALLYHOOK_PUBLIC_URL names its address, and that "
    "DNS, TLS and the proxy lead from here to that address."
)

State = Literal["passed", "failed", "not_run_yet", "to_sign"]

PROGRAM: Final = "tallyhook"
"""Start of a signer's name if a program signed."""

SIGNER: Final = f"{PROGRAM} golive"

WHOLE: Final = "golive"
"""Name of the result of a whole checklist."""

STATED: Final[Mapping[str, str]] = {
    "support_ownership": "who answers customers and the provider, and how to reach these people",
    "legal_documents": "that contract, terms, privacy notice and refund policy are in force",
    "rollback": "how to turn payments off again, who decides this, and that it was tried",
}
"""Checklist items that only a person can know."""

REHEARSED: Final[Mapping[str, str]] = {
    "idempotency": "that starting a payment twice gives one session",
    "duplicates": "that repeated webhooks release an order once",
    "rehearsal": "that every scenario was rehearsed, and where",
}
"""Checklist items that `tallyhook rehearse` or a person checks."""

SHOWN_BY: Final[Mapping[str, str]] = {"idempotency": "success", "duplicates": "duplicate webhook"}
"""Scenario that decides an item of the checklist."""

CHECKED: Final = (
    "api_keys",
    "webhook_verification",
    "environment_separation",
    "account_sharing",
    "acting_alone",
)

ITEMS: Final = (*CHECKED, *REHEARSED, *STATED)

UNTRIED: Final = " (not run yet)"

MAX_NOTE: Final = 2_000
"""Maximum length of a note in characters."""


class ChecklistItemDocument(TypedDict):
    item: str
    state: State
    by: str | None
    at: InstantText | None
    note: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """Item of the checklist with its present state."""

    item: str
    state: State
    sentence: str
    by: str | None = None
    at: Instant | None = None
    note: str | None = None
    sources: tuple[str, ...] = ()

    def document(self) -> ChecklistItemDocument:
        return document_of(ChecklistItemDocument, self)


NO_SOURCE: Final = "No source is configured: run `tallyhook connect`, then the checks."


def webhook_item(trials: Sequence[Trial], *, public_url: str) -> ChecklistItem:
    """Build the checklist's item on the public endpoint."""
    name = "webhook_verification"
    if not public_url:
        return ChecklistItem(
            item=name,
            state="not_run_yet",
            sentence="Set TALLYHOOK_PUBLIC_URL, then run the checks: they try the endpoint from "
            "outside.",
        )
    wrong = [f"{trial.source}: {each}" for trial in trials for each in trial.wrong or ()]
    untried = [trial.source for trial in trials if trial.wrong is None]
    if not trials:
        return ChecklistItem(item=name, state="not_run_yet", sentence=NO_SOURCE)
    if wrong:
        sentence = "; ".join(wrong)
        sentence += "" if sentence.endswith("?") else "."
        if any(trial.unreached for trial in trials):
            sentence += " " + UNREACHED
        return ChecklistItem(item=name, state="failed", sentence=sentence)
    if untried:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence=f"No trial can make the signature of the provider of {', '.join(untried)}. "
            "Let the provider send a test event, and find the event in `tallyhook "
            f"deliveries list`. Then sign this item: {_signing(name)}",
            sources=tuple(untried),
        )
    tried = ", ".join(dict.fromkeys(word for trial in trials for word in trial.tried))
    return ChecklistItem(item=name, state="passed", sentence=f"Tested at {public_url}: {tried}.")


def separation_item(environment: str, *, unmarked: Sequence[str]) -> ChecklistItem:
    """Build the checklist's item on the separation of environments."""
    name = "environment_separation"
    if unmarked:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence=f"Events of {', '.join(unmarked)} do not state their environment. If the "
            "sandbox uses other secrets and another address, sign this item: "
            f"{_signing(name)}",
            sources=tuple(unmarked),
        )
    return ChecklistItem(
        item=name,
        state="passed",
        sentence=f"Database, secrets, token and events are all for {environment}.",
    )


def sharing_item(*, unknown: Sequence[str], apart: Sequence[str]) -> ChecklistItem:
    """Build the checklist's item on shared provider accounts."""
    name = "account_sharing"
    if unknown:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence="It is unknown whether another shop or system uses the account of "
            f"{', '.join(unknown)}. If so, the payments of the other shop could count as "
            "yours. Set SHARED of the source to yes or no. If nobody else uses the "
            f"account, you may sign this item instead: {_signing(name)}",
            sources=tuple(unknown),
        )
    shared = f" The settings separate the payments of {', '.join(apart)}." if apart else ""
    sentence = f"For every account it is known whether another shop uses it.{shared}"
    return ChecklistItem(item=name, state="passed", sentence=sentence)


def limits_item(*, currencies: Sequence[str]) -> ChecklistItem:
    """Build the checklist's item on one person's limits."""
    name = "acting_alone"
    if not currencies:
        return ChecklistItem(
            item=name,
            state="failed",
            sentence="One person may write off any amount alone: set accept_alone_max of your "
            "currencies in the matching rules (`tallyhook reconcile rules save FILE`).",
        )
    sentence = (
        "One person alone may write off amounts up to a limit in "
        f"{', '.join(sorted(currencies))}, and in no other currency."
    )
    return ChecklistItem(item=name, state="passed", sentence=sentence)


def keys_item(
    problems: Sequence[str], *, sources: bool = True, starts_payments: bool = True
) -> ChecklistItem:
    """Build the checklist's item on the token and the secrets."""
    name = "api_keys"
    if problems:
        return ChecklistItem(item=name, state="failed", sentence="; ".join(problems) + ".")
    if not sources:
        return ChecklistItem(item=name, state="not_run_yet", sentence=NO_SOURCE)
    if not starts_payments:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence="The secrets are set and valid, but TALLYHOOK_CHECKOUT__BASE_URL and its "
            "token are not set, so no payment can be started from here. Set both. If the "
            f"shop starts its payments itself, sign this item instead: {_signing(name)}",
        )
    return ChecklistItem(item=name, state="passed", sentence="Token and secrets are set and valid.")


def _signing(name: str) -> str:
    return f"tallyhook golive sign {name} --by NAME --note TEXT"


async def last_checklist(
    context: AppContext, checked: Sequence[ChecklistItem] | None = None
) -> list[ChecklistItem]:
    """Return the checklist without running checks or storing anything."""
    async with context.database.reading() as connection:
        signed = await signoffs(connection)
    if checked is None:
        last = next((each for each in reversed(signed) if each.item == WHOLE), None)
        checked = [_as_last_found(name, last) for name in CHECKED]
    return _assembled(signed, checked, live=context.database.environment == "live")


def _as_last_found(name: str, last: Signoff | None) -> ChecklistItem:
    if last is None:
        sentence = (
            "This has never been checked: run the checks, or `tallyhook golive` on the machine."
        )
        return ChecklistItem(item=name, state="not_run_yet", sentence=sentence)
    left = last.note.removeprefix("open: ").split(", ")
    state: State = "failed" if name in left else "passed"
    if f"{name}{UNTRIED}" in left:
        state = "not_run_yet"
    again = "run the checks to see why, and what to do."
    sentence = {
        "passed": "This was in order at the last check.",
        "failed": f"This was open at the last change of the list: {again}",
        "not_run_yet": f"This could not be checked at the last change of the list: {again}",
    }[state]
    return ChecklistItem(item=name, state=state, sentence=sentence, by=last.signer, at=last.at)


def _assembled(
    signed: Sequence[Signoff], checked: Sequence[ChecklistItem], *, live: bool
) -> list[ChecklistItem]:
    by_program = {each.item: each for each in signed if each.signer.startswith(PROGRAM)}
    by_person = {each.item: each for each in signed if not each.signer.startswith(PROGRAM)}
    items = [
        *checked,
        *(_rehearsed(name, by_program, live=live) for name in REHEARSED),
        *(ChecklistItem(item=name, state="to_sign", sentence=_ask(name)) for name in STATED),
    ]
    for place, item in enumerate(items):
        signoff = by_person.get(item.item)
        if item.state != "to_sign" or signoff is None:
            continue
        if later := _later(signed, item):
            before = f"{signoff.signer} signed before {', '.join(later)} was added as a source."
            items[place] = replace(item, sentence=f"{before} {item.sentence}")
            continue
        items[place] = replace(
            item,
            state="passed",
            by=signoff.signer,
            at=signoff.at,
            note=signoff.note,
            sentence="A person has signed this.",
        )
    return items


ASKED_FOR: Final = "to sign for: "


def _later(signed: Sequence[Signoff], item: ChecklistItem) -> list[str]:
    asked: list[str] | None = None
    covered: list[str] | None = None
    waiting = False
    for each in signed:
        if each.item != item.item:
            continue
        if not each.signer.startswith(PROGRAM):
            covered, waiting = asked, asked is None
        elif each.note.startswith(ASKED_FOR):
            asked = each.note.removeprefix(ASKED_FOR).split(", ")
            covered, waiting = (asked, False) if waiting else (covered, waiting)
    return [] if covered is None else [name for name in item.sources if name not in covered]


async def checklist(context: AppContext, checked: Sequence[ChecklistItem]) -> list[ChecklistItem]:
    """Store and return the checklist after its checks."""
    async with context.database.reading() as connection:
        signed = await signoffs(connection)
    at = context.clock.now()
    last = {each.item: each.note for each in signed if each.note.startswith(ASKED_FOR)}
    asked = [(each.item, ASKED_FOR + ", ".join(each.sources)) for each in checked if each.sources]
    fresh = [
        Signoff(item=item, state="failed", at=at, signer=SIGNER, note=note)
        for item, note in asked
        if last.get(item) != note
    ]
    signed += fresh
    items = _assembled(signed, checked, live=context.database.environment == "live")
    untried = {each.item for each in items if each.state == "not_run_yet"}
    left = [f"{each}{UNTRIED}" if each in untried else each for each in open_items(items)]
    note = f"open: {', '.join(left)}" if left else "complete"
    if note != next((each.note for each in reversed(signed) if each.item == WHOLE), None):
        state: Judged = "failed" if left else "passed"
        fresh.append(Signoff(item=WHOLE, state=state, at=at, signer=SIGNER, note=note))
    if fresh:
        async with context.database.writing() as connection:
            for each in fresh:
                await add_signoff(connection, each)
    return items


def _rehearsed(name: str, by_program: Mapping[str, Signoff], *, live: bool) -> ChecklistItem:
    found = by_program.get(name)
    if found is not None:
        return ChecklistItem(
            item=name,
            state=found.state,
            sentence=f"{found.note.rstrip('.')}.",
            by=found.signer,
            at=found.at,
        )
    if live:
        return ChecklistItem(item=name, state="to_sign", sentence=_ask(name))
    sentence = "Run `tallyhook rehearse` on the machine; it checks this."
    if "rehearsal" in by_program:
        sentence = (
            f"No rehearsal has checked this: it needs the scenario {SHOWN_BY[name]!r}. If "
            "TALLYHOOK_REHEARSAL__NUMBERS is set, add a number for that scenario. Then run "
            "`tallyhook rehearse` on the machine."
        )
    return ChecklistItem(item=name, state="not_run_yet", sentence=sentence)


def _ask(name: str) -> str:
    what = {**STATED, **REHEARSED}[name]
    return f"State {what}: {_signing(name)}"


def open_items(items: Sequence[ChecklistItem]) -> list[str]:
    """Return the names of the items that have not passed."""
    return [item.item for item in items if item.state != "passed"]


async def note_checks(context: AppContext, *, by: str) -> None:
    """Record in the audit trail that a person runs the checks."""
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="golive_checked")
        await note_in_trail(
            connection, who, action="golive_checked", subject=WHOLE, at=context.clock.now()
        )


async def sign(context: AppContext, item: str, *, by: str, note: str) -> None:
    """Store a person's signed statement on an item of the checklist. Raises UsageError for an
    unknown item, or without name, note or permission."""
    if item not in ITEMS:
        raise UsageError(f"{item!r} is not an item; the items are: {', '.join(ITEMS)}")
    note = note.strip()
    if by != by.strip():  # `strip` would make plain text of a proven name
        by = by.strip()
    if not by or len(by) > 200 or by.startswith(PROGRAM) or not is_human_text(by):
        raise UsageError("--by must be a person's name of 1 to 200 characters")
    if not note or len(note) > MAX_NOTE or "\0" in note:
        raise UsageError(f"--note must say what you state, in 1 to {MAX_NOTE:,} characters")
    signoff = Signoff(item=item, state="passed", at=context.clock.now(), signer=by, note=note)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="item_signed")
        await add_signoff(connection, signoff)
        await note_in_trail(
            connection, who, action="item_signed", subject=item, at=signoff.at, reason=note
        )


async def vouch(context: AppContext, one: str, other: str, *, reason: str) -> None:
    """State that two operators are two different people. Only the machine's owner may do this,
    during setup."""
    from app.finance.closed_periods import list_closed  # a receiver starts without it

    check_reason(reason, of="two founders", countries=context.countries)
    closed = await list_closed(context)
    async with context.database.writing() as connection:
        runs = [each for each in await signoffs(connection) if each.item == WHOLE]
        if closed or any(each.state == "passed" for each in runs):
            raise UsageError(
                "set-up is over, because the checklist was complete or a month is closed. One "
                "week after the invitation, the two operators may approve each other's proposals. "
                "Until then, other operators must approve these proposals"
            )
        at = context.clock.now()
        await vouch_for_founders(connection, (one, other), reason=reason, at=at)


async def what_a_signature_is_worth(context: AppContext, item: str) -> str | None:
    """Return why a signature has no effect, or None."""
    found = next(each for each in await last_checklist(context) if each.item == item)
    if item in CHECKED:
        return (
            "This signature counts if `tallyhook golive` lists the item as to be signed. If a "
            "check failed or was not possible, the item stays open. Run the command to see the "
            "item's state."
        )
    if found.by is not None and not found.by.startswith(PROGRAM):
        return None
    if found.state == "passed":
        return "This signature is not needed: `tallyhook rehearse` has found the item in order."
    return f"This signature does not count here. {found.sentence}"


async def unfinished(context: AppContext) -> str | None:
    """Return why a live instance should not take money, or None."""
    if context.database.environment != "live":
        return None
    async with context.database.reading() as connection:
        runs = [each for each in await signoffs(connection) if each.item == WHOLE]
    if runs and runs[-1].state == "passed":
        return None
    found = runs[-1].note if runs else "the checklist has never been run"
    return f"the go-live checklist is not complete ({found}); run `tallyhook golive`"
