"""The checklist before real money moves: what a program can check, and what a person must state.

Statements are only added. What a program finds wrong cannot be signed away; what it cannot check
here (`to_sign`) counts once a person has signed it by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import httpx2

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import ConfigurationError, UsageError
from app.core.http import exchange
from app.core.ids import new_id
from app.core.reading import TRIAL
from app.core.text import is_human_text
from app.golive.signoff_store import Signoff, add_signoff, signoffs
from app.providers.named.contract import Signed
from app.providers.request import Incoming
from app.providers.schemes import TOKENS
from app.providers.source import Source
from reconcile.instants import MINUTE, SECOND, Instant, format_instant

TRIAL_LIMIT_S: Final = 10.0
"""Seconds for one answer, as long as providers commonly wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one source's endpoint did. `wrong`: what it should not have done; None: not to be tried,
    because nothing here can sign as this provider does. `unreached`: nothing answered."""

    source: str
    tried: tuple[str, ...] = ()
    wrong: tuple[str, ...] | None = ()
    unreached: bool = False


def requests(
    source: Source, *, url: str, event_id: str, now: Instant
) -> Iterator[tuple[str, Signed, bool]]:
    """(name, request, whether it is to be accepted). Raises ConfigurationError or ValueError where
    this provider's requests cannot be made."""
    good = source.signed(TRIAL, event_id=event_id, now=now, url=url)
    if not _is_genuine(source, good, url=url, now=now):
        raise ValueError("the provider signs something that a trial does not have")
    yield "unsigned", Signed([], TRIAL, good.url), False
    tampered = good._replace(body=good.body.replace(b"public", b"Public"))
    # Some providers' signatures do not cover the body, or it is wrapped and stays as it was.
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
    "the good request was accepted and did not come into this database: the address leads to "
    "another installation, such as one that was moved away from, or the reader is behind (see "
    "`tallyhook doctor`)"
)


NO_WEBHOOKS: Final = (
    "{url} was answered with status 404, as an address that receives no webhooks of this source: "
    "does TALLYHOOK_PUBLIC_URL name this service, does the proxy pass the path on as it came, and "
    "was `tallyhook serve` started again since the source was configured?"
)


async def try_endpoint(
    client: httpx2.AsyncClient,
    source: Source,
    *,
    url: str,
    now: Instant,
    arrived: Callable[[str], Awaitable[bool]],
) -> Trial:
    """Send each and compare. arrived: whether a delivery of this source whose body has this SHA-256
    has been read from the inbox since."""
    # What is signed by nobody, or must name an account that only the provider's own events do.
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
        if answer.status is None:  # nor will the others come through
            why = answer.why.replace("_", " ")
            return Trial(
                source=source.name, wrong=(f"no answer came from {url} ({why})",), unreached=True
            )
        if answer.status == 404:  # and the others would be told the same
            return Trial(source=source.name, wrong=(NO_WEBHOOKS.format(url=url),))
        if not (answer.taken if accepted else answer.status == 401):
            wrong.append(f"the {name} request was answered with {answer.why.replace('_', ' ')}")
        elif accepted and not await arrived(hashlib.sha256(request.body).hexdigest()):
            wrong.append(ELSEWHERE)
    return Trial(source=source.name, tried=tuple(name for name, _, _ in asked), wrong=tuple(wrong))


UNREACHED: Final = (
    "Is `tallyhook serve` running, does TALLYHOOK_PUBLIC_URL name its address, and do DNS, TLS and "
    "the proxy lead to it from here?"
)
"""What is to be looked at where nothing answered."""

State = Literal["passed", "failed", "not_run_yet", "to_sign"]

PROGRAM: Final = "tallyhook"
"""How signers begin that are no person."""

SIGNER: Final = f"{PROGRAM} golive"

WHOLE: Final = "golive"
"""The item under which it is written down how a whole run of the checklist ended."""

STATED: Final[Mapping[str, str]] = {
    "support_ownership": "who answers customers and the provider, and how they are reached",
    "legal_documents": "that contract, terms, privacy notice and refund policy are in force",
    "rollback": "how payments are turned off again, who decides it, and that it was tried",
}
"""What only a person can know, and what is to be stated."""

REHEARSED: Final[Mapping[str, str]] = {
    "idempotency": "that the same start twice gives one session",
    "duplicates": "that webhooks which come repeatedly release an order once",
    "rehearsal": "that every scenario was rehearsed, and where",
}
"""What `tallyhook rehearse` finds out; in live, where it may have no test numbers, a person may
state it of the rehearsal in the sandbox."""

SHOWN_BY: Final[Mapping[str, str]] = {"idempotency": "success", "duplicates": "duplicate webhook"}
"""The scenario that finds it out, of what one alone does."""

CHECKED: Final = ("api_keys", "webhook_verification", "environment_separation")
"""What a run finds out."""

ITEMS: Final = (*CHECKED, *REHEARSED, *STATED)

UNTRIED: Final = " (not run yet)"
"""Behind the name of what a run could not check, where it is written down how the run ended."""

MAX_NOTE: Final = 2_000
"""Characters of a note: a paragraph, and where the papers are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """One line of the checklist. `sentence` says why, and what is to be done; `sources`: for whose
    sake it is to be signed, where a source can be added later."""

    item: str
    state: State
    sentence: str
    by: str | None = None
    at: Instant | None = None
    note: str | None = None
    sources: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "item": self.item,
            "state": self.state,
            "by": self.by,
            "at": None if self.at is None else format_instant(self.at),
            "note": self.note,
            "sentence": self.sentence,
        }


NO_SOURCE: Final = "No source is configured: `tallyhook connect` makes one; then run the checks."


def webhook_item(trials: Sequence[Trial], *, public_url: str) -> ChecklistItem:
    """What the public endpoint did, of all sources together."""
    name = "webhook_verification"
    if not public_url:
        return ChecklistItem(
            item=name,
            state="not_run_yet",
            sentence="Set TALLYHOOK_PUBLIC_URL, then run the checks: the endpoint is tried from "
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
            sentence=f"Nothing here can sign as the provider of {', '.join(untried)} does: have it "
            f"send a test event, see it in `tallyhook deliveries list`, and sign: {_signing(name)}",
            sources=tuple(untried),
        )
    tried = ", ".join(dict.fromkeys(word for trial in trials for word in trial.tried))
    return ChecklistItem(item=name, state="passed", sentence=f"Tried at {public_url}: {tried}.")


def separation_item(environment: str, *, unmarked: Sequence[str]) -> ChecklistItem:
    """`unmarked`: sources whose events do not say of which environment they are."""
    name = "environment_separation"
    if unmarked:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence=f"Events of {', '.join(unmarked)} do not say their environment: sign that its "
            f"sandbox has other secrets and another address: {_signing(name)}",
            sources=tuple(unmarked),
        )
    return ChecklistItem(
        item=name,
        state="passed",
        sentence=f"Database, secrets, token and events are of {environment} alone.",
    )


def keys_item(
    problems: Sequence[str], *, sources: bool = True, starts_payments: bool = True
) -> ChecklistItem:
    """The configuration's own problems with tokens and secrets; none: they are in order.

    sources          whether there is a source, whose secrets they are
    starts_payments  whether sessions are opened from here, which takes a token; where none are, a
                     person states that it is meant so
    """
    name = "api_keys"
    if problems:
        return ChecklistItem(item=name, state="failed", sentence="; ".join(problems) + ".")
    if not sources:
        return ChecklistItem(item=name, state="not_run_yet", sentence=NO_SOURCE)
    if not starts_payments:
        return ChecklistItem(
            item=name,
            state="to_sign",
            sentence="The secrets are set, and fit; TALLYHOOK_CHECKOUT__BASE_URL and its token are "
            "not, so no payment can be started from here. Set both; or, if the shop starts its "
            f"payments itself, state that: {_signing(name)}",
        )
    return ChecklistItem(item=name, state="passed", sentence="Token and secrets are set, and fit.")


def _signing(name: str) -> str:
    return f"tallyhook golive sign {name} --by NAME --note TEXT"


async def last_checklist(
    context: AppContext, checked: Sequence[ChecklistItem] | None = None
) -> list[ChecklistItem]:
    """The list as it was last found and stated; nothing is checked, and nothing written down.

    checked  what a run has found just now; None: what is written down of the last one, which says
             no reasons
    """
    async with context.database.reading() as connection:
        signed = await signoffs(connection)
    if checked is None:
        checked = _found(next((each for each in reversed(signed) if each.item == WHOLE), None))
    return _assembled(signed, checked, live=context.database.environment == "live")


def _found(last: Signoff | None) -> list[ChecklistItem]:
    """What a run finds out, as the last one left it."""
    if last is None:
        sentence = "It was never checked: run the checks, or `tallyhook golive` on the machine."
        return [
            ChecklistItem(item=name, state="not_run_yet", sentence=sentence) for name in CHECKED
        ]
    left = last.note.removeprefix("open: ").split(", ")
    return [_left(name, last, left) for name in CHECKED]


def _left(name: str, last: Signoff, left: Sequence[str]) -> ChecklistItem:
    """How one stood when the list last changed; whether it can be signed, a run says."""
    state: State = "failed" if name in left else "passed"
    if f"{name}{UNTRIED}" in left:
        state = "not_run_yet"
    again = "run the checks to see why, and what to do."
    sentence = {
        "passed": "It held when the list was last run.",
        "failed": f"It was open when the list last changed: {again}",
        "not_run_yet": f"It could not be checked when the list last changed: {again}",
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
    return [_signed(each, by_person.get(each.item), later=_later(signed, each)) for each in items]


ASKED_FOR: Final = "to sign for: "
"""How the note begins that says for which sources a signature was asked for."""


def _later(signed: Sequence[Signoff], item: ChecklistItem) -> list[str]:
    """Sources of the item for which nobody was asked yet when it was last signed. One that was
    signed before anybody was asked is for those of whom was asked next."""
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


async def _note_asked(
    context: AppContext, checked: Sequence[ChecklistItem], signed: Sequence[Signoff]
) -> list[Signoff]:
    """Write down for which sources a signature is asked for now, where that is not what was."""
    before = {each.item: each.note for each in signed if each.note.startswith(ASKED_FOR)}
    fresh = [
        Signoff(
            item=each.item,
            state="failed",
            at=context.clock.now(),
            signer=SIGNER,
            note=ASKED_FOR + ", ".join(each.sources),
        )
        for each in checked
        if each.sources and before.get(each.item) != ASKED_FOR + ", ".join(each.sources)
    ]
    if fresh:
        async with context.database.writing() as connection:
            for each in fresh:
                await add_signoff(connection, each)
    return fresh


async def checklist(context: AppContext, checked: Sequence[ChecklistItem]) -> list[ChecklistItem]:
    """The whole list, from what was checked now and what is written down; how it ended is, too."""
    async with context.database.reading() as connection:
        signed = await signoffs(connection)
    signed += await _note_asked(context, checked, signed)
    items = _assembled(signed, checked, live=context.database.environment == "live")
    whole = [each for each in signed if each.item == WHOLE]
    await _write_down(context, items, before=whole[-1] if whole else None)
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
    sentence = "Run `tallyhook rehearse` on the machine; it finds this out."
    if "rehearsal" in by_program:
        sentence = (
            f"No rehearsal has found it out: it takes the scenario {SHOWN_BY[name]!r}, for which "
            "TALLYHOOK_REHEARSAL__NUMBERS, where it is set, must have a number. Then run "
            "`tallyhook rehearse` on the machine."
        )
    return ChecklistItem(item=name, state="not_run_yet", sentence=sentence)


def _ask(name: str) -> str:
    what = {**STATED, **REHEARSED}[name]
    return f"State {what}: {_signing(name)}"


def _signed(item: ChecklistItem, signoff: Signoff | None, *, later: Sequence[str]) -> ChecklistItem:
    if item.state != "to_sign" or signoff is None:
        return item
    if later:
        signed = f"{signoff.signer} signed before {', '.join(later)} was a source here."
        return replace(item, sentence=f"{signed} {item.sentence}")
    return replace(
        item,
        state="passed",
        by=signoff.signer,
        at=signoff.at,
        note=signoff.note,
        sentence="Stated by a person.",
    )


async def _write_down(
    context: AppContext, items: Sequence[ChecklistItem], *, before: Signoff | None
) -> None:
    """How the run ended, for `serve` and readiness, where it is not what was known."""
    untried = {each.item for each in items if each.state == "not_run_yet"}
    left = [f"{each}{UNTRIED}" if each in untried else each for each in open_items(items)]
    note = f"open: {', '.join(left)}" if left else "complete"
    if before is None or before.note != note:
        state: Literal["passed", "failed"] = "failed" if left else "passed"
        signoff = Signoff(item=WHOLE, state=state, at=context.clock.now(), signer=SIGNER, note=note)
        async with context.database.writing() as connection:
            await add_signoff(connection, signoff)


def open_items(items: Sequence[ChecklistItem]) -> list[str]:
    """The names of those that are not passed."""
    return [item.item for item in items if item.state != "passed"]


async def note_checks(context: AppContext, *, by: str) -> None:
    """Note in the trail that somebody has the checks run, which ask the provider and the shop, and
    send trials to the public address. Raises UsageError for who may not."""
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="golive_checked")
        await note_in_trail(
            connection, who, action="golive_checked", subject=WHOLE, at=context.clock.now()
        )


async def sign(context: AppContext, item: str, *, by: str, note: str) -> None:
    """Add a person's statement. Raises UsageError for an item that is none, and without a name and
    a note, and for who may not."""
    if item not in ITEMS:
        raise UsageError(f"{item!r} is none of: {', '.join(ITEMS)}")
    note = note.strip()
    if by != by.strip():  # a name that was proved stays one: `strip` gives a plain text
        by = by.strip()
    if not by or len(by) > 200 or by.startswith(PROGRAM) or not is_human_text(by):
        raise UsageError("--by is a person's name, of 1 to 200 characters")
    if not note or len(note) > MAX_NOTE or "\0" in note:
        raise UsageError(f"--note says what is stated, in 1 to {MAX_NOTE:,} characters")
    signoff = Signoff(item=item, state="passed", at=context.clock.now(), signer=by, note=note)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="item_signed")
        await add_signoff(connection, signoff)
        await note_in_trail(
            connection, who, action="item_signed", subject=item, at=signoff.at, reason=note
        )


async def what_a_signature_is_worth(context: AppContext, item: str) -> str | None:
    """Why what a person has stated of an item does not count, or may not: one or two sentences.
    None where it counts."""
    found = next(each for each in await last_checklist(context) if each.item == item)
    if item in CHECKED:
        return (
            "It counts where `tallyhook golive` lists the item as to be signed; what that finds "
            "wrong, or could not try, stays open. Run it to see."
        )
    if found.by is not None and not found.by.startswith(PROGRAM):
        return None
    if found.state == "passed":
        return "Nothing rests on that: `tallyhook rehearse` has found it in order."
    return f"That does not count here. {found.sentence}"


async def unfinished(context: AppContext) -> str | None:
    """Why a live instance should not take money yet, one sentence; None elsewhere, or when the last
    run of the checklist was complete."""
    if context.database.environment != "live":
        return None
    async with context.database.reading() as connection:
        runs = [each for each in await signoffs(connection) if each.item == WHOLE]
    if runs and runs[-1].state == "passed":
        return None
    found = runs[-1].note if runs else "it was never run"
    return f"the go-live checklist is not complete ({found}); run `tallyhook golive`"
