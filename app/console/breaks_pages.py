"""Pages of breaks and of late money: the worklist of the newest run, one break, late money; and
what people do about breaks: assign, comment, accept, match by hand and take that back, decide about
several at once and about late money.
"""

from collections import Counter
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from app.access.bookmarks import bookmarks_of
from app.access.operators import MAY, known_operators
from app.access.proposal import Proposal
from app.console.case_pages import attachments_of_break
from app.console.orders_pages import saved_lists
from app.console.proposals_pages import proposed, waiting_about
from app.console.view import PROPOSE, ROWS, ActionResult, Asked, Document, Field, View
from app.console.words import CAUSES, SETTLINGS, address, plain_money, spoken
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.finance import break_acts, break_choice, worklist
from reconcile.instants import format_instant
from reconcile.matching.breaks import BREAK_CAUSES, STANDINGS, STATES, apart_words, break_sentence
from reconcile.matching.rows import name_of
from reconcile.money import Money, to_json
from reconcile.reporting.words import CAUSE_WORDS

LIVING: Final = STATES[:-1]
"""States that a break of the newest run may have."""

CONDITIONS: Final = ("cause", "state", "currency", "assignee")
"""Filters that also say of which breaks something is to be done to all."""

MOST_SKIPPED: Final = 1_000_000


async def breaks_document(view: View) -> Document:
    """GET /breaks?cause=&state=&currency=&assignee=&order=&skip="""
    filters = {
        "cause": view.choice("cause", BREAK_CAUSES),
        "state": view.choice("state", LIVING),
        "currency": view.word("currency"),
        "assignee": view.word("assignee"),
        "order": view.choice("order", tuple(worklist.ORDERS)),
    }
    skip = min(view.number("skip") or 0, MOST_SKIPPED)
    found = await worklist.worklist(
        view.context,
        worklist.WorklistRequest(
            cause=filters["cause"],
            state=next((each for each in LIVING if each == filters["state"]), None),
            currency=filters["currency"],
            assignee=filters["assignee"],
            order=filters["order"] or "money",
            skip=skip,
            limit=ROWS,
        ),
    )
    now = view.context.clock.now()
    return {
        "filters": filters,
        "where": break_choice.condition_text({name: filters[name] for name in CONDITIONS}),
        "saved": saved_lists(await bookmarks_of(view.context, view.person.name), "breaks"),
        "skip": skip or None,
        "run": None
        if found.run is None
        else {"number": found.run.number, "at": format_instant(found.run.at)},
        "found": found.found,
        "totals": [{"count": count, "money": to_json(money)} for count, money in found.totals],
        "causes": found.causes,
        "states": {state: found.states.get(state, 0) for state in LIVING},
        "breaks": [each.document(as_of=now) for each in found.shown],
        "next": skip + ROWS if found.found > skip + ROWS else None,
    }


async def break_document(view: View) -> Document:
    """GET /breaks/{break}"""
    try:
        found = await break_acts.one_break(view.context, view.subject)
    except NotFoundError:
        raise NotFoundError(
            f"there is no break {view.subject!r}: the list of breaks shows those that the newest "
            "run saw"
        ) from None
    document = found.document(as_of=view.context.clock.now()) | found.history()
    closed = found.life.state == "closed"
    return document | {
        "means": CAUSES[found.seen.cause],
        "matched": await break_acts.matches_of(view.context, found.identity),
        "late": found.seen.cause in worklist.LATE,
        "not_alone": None if closed else await break_acts.why_not_alone(view.context, found),
        "proposal": await waiting_about(view, found.identity),
        "attachments": await attachments_of_break(view, found.identity),
    }


async def late_money_document(view: View) -> Document:
    """GET /late?state=&skip="""
    wanted = view.choice("state", STANDINGS)
    found = []
    async for some in worklist.late_items(view.context, closed=wanted == "closed"):
        found += some
    states = Counter(worklist.settling_state(each) for each in found)
    fitting = [each for each in found if wanted in (None, worklist.settling_state(each))]
    fitting.sort(key=lambda each: (each.seen.money.currency, -each.seen.money.minor, each.identity))
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for each in fitting:
        name = (worklist.proposed_settling(each), each.seen.money.currency)
        count, minor = sums.get(name, (0, 0))
        sums[name] = (count + 1, minor + each.seen.money.minor)
    skip = min(view.number("skip") or 0, MOST_SKIPPED)
    return {
        "filters": {"state": wanted},
        "run": await _last_run(view),
        "skip": skip or None,
        "states": dict(states),
        "found": len(fitting),
        "totals": [
            {
                "proposed": action,
                "count": count,
                "money": to_json(Money(minor=minor, currency=currency)),
            }
            for (action, currency), (count, minor) in sorted(sums.items())
        ],
        "late": [_late(each) for each in fitting[skip : skip + ROWS]],
        "next": skip + ROWS if len(fitting) > skip + ROWS else None,
    }


async def _last_run(view: View) -> dict[str, Any] | None:
    """The run by which the list stands; None: there was none."""
    last = await worklist.newest_run(view.context)
    return None if last is None else {"number": last.number, "at": format_instant(last.at)}


def _late(found: Any) -> dict[str, Any]:
    return worklist.late_document(found) | {"sentence": CAUSES[found.seen.cause]}


# --- what is done about one -----------------------------------------------------------------------


async def _seen_break(view: View) -> break_acts.SeenBreak:
    """The break that a form is about."""
    return await break_acts.one_break(view.context, view.needed("break"))


def _shown_lines(found: break_acts.SeenBreak) -> tuple[str, ...]:
    """What it is about, and what is at stake."""
    money = to_json(found.seen.money)
    stake = f"At stake: {plain_money(money)}." if money else "No sum is at stake."
    return (break_sentence(found.seen), stake, f"Where it stands: {found.life.because}")


def _about(found: break_acts.SeenBreak) -> str:
    """What a form is about, as a person calls it."""
    name, cause = found.seen.order or found.seen.payment, CAUSE_WORDS[found.seen.cause]
    return cause if name is None else f"{name}: {cause[:1].lower()}{cause[1:]}"


def _seen_field(*found: break_acts.SeenBreak) -> Field:
    """Has a form decide about what it showed, or about nothing."""
    mark = break_acts.mark_of(found)
    return Field(name="seen", label="What was shown", kind="hidden", value=mark)


def _shown(view: View) -> str | None:
    return view.given.get("seen") or None


async def _people(view: View) -> list[str]:
    """Whose a break may be: who is in force, and may work on it."""
    return [
        each.name
        for each in await known_operators(view.context)
        if each.disabled_at is None and each.role in MAY["break_assigned"]
    ]


async def _assignee_field(view: View, value: str) -> Field:
    """The field of a form that assigns."""
    return Field(
        name="to",
        label="To whom",
        choices=(*((name, name) for name in await _people(view)), ("", "nobody")),
        value=value,
        required=False,
    )


async def _assignee_given(view: View) -> str:
    """Who was chosen; empty: nobody. Raises UsageError for who may not be."""
    to = view.given.get("to", "")
    if to and to not in await _people(view):
        raise UsageError("nobody of this name may work on breaks")
    return to


async def ask_assign(view: View) -> Asked:
    """Whose the break is to be."""
    found = await _seen_break(view)
    return Asked(
        subject=_about(found),
        lines=_shown_lines(found),
        back=address("breaks", found.identity),
        reason=False,
        fields=(
            await _assignee_field(view, found.life.assignee or view.person.name),
            _seen_field(found),
        ),
    )


async def do_assign(view: View, reason: str) -> str:
    """Make it somebody's."""
    found, to = await _seen_break(view), await _assignee_given(view)
    await break_acts.assign_break(
        view.context, found.identity, to=to, by=view.person.name, seen=_shown(view)
    )
    return address("breaks", found.identity)


async def ask_comment(view: View) -> Asked:
    """What was found out."""
    found = await _seen_break(view)
    return Asked(
        subject=_about(found),
        lines=_shown_lines(found),
        back=address("breaks", found.identity),
        why="What you found out",
    )


async def do_comment(view: View, reason: str) -> str:
    """Add it to the break's history."""
    found = await _seen_break(view)
    await break_acts.comment_break(view.context, found.identity, note=reason, by=view.person.name)
    return address("breaks", found.identity)


async def ask_accept(view: View) -> Asked:
    """What is written off, and whether one person may do that."""
    found = await _seen_break(view)
    lines, ready, button = _shown_lines(found), True, ""
    if found.life.state in ("closed", "accepted"):
        lines, ready = (*lines, f"It is {found.life.state}: there is nothing to accept."), False
    elif (because := await break_acts.why_not_alone(view.context, found)) is not None:
        lines = (
            *lines,
            f"{because[:1].upper()}{because[1:]}. You propose it in your name, and it is written "
            "off when another operator approves it.",
        )
        button = PROPOSE
    else:
        lines = (
            *lines,
            "It is written off in your name: it leaves what is to be done, and reports count it as "
            "accepted. It opens again as soon as its money changes.",
        )
    return Asked(
        subject=_about(found),
        lines=lines,
        back=address("breaks", found.identity),
        ready=ready,
        fields=(_seen_field(found),),
        button=button,
    )


async def do_accept(view: View, reason: str) -> str | ActionResult:
    """Write it off, or propose that."""
    found = await _seen_break(view)
    proposal = await break_acts.accept_break(
        view.context, found.identity, reason=reason, by=view.person.name, seen=_shown(view)
    )
    return address("breaks", found.identity) if proposal is None else proposed(proposal)


# --- matching by hand -----------------------------------------------------------------------------


async def ask_match(view: View) -> Asked:
    """What is matched with what, and what keeps the two apart."""
    found, line = await _seen_break(view), view.word("line")
    back = address("breaks", found.identity)
    lines = _shown_lines(found)
    if found.life.state == "closed":
        closed = (*lines, "It is closed: there is nothing to match.")
        return Asked(subject=_about(found), lines=closed, back=back, ready=False)
    near = {name_of(each.line): each for each in found.seen.candidates}
    candidate = None if line is None else near.get(name_of(line))
    if candidate is not None:
        lines = (
            *lines,
            f"The other line is {candidate.reference}, of {_money(candidate.money)}.",
            f"What keeps the two apart: {apart_words(candidate)}.",
        )
    fields = () if line is not None else (
        Field(
            name="line",
            label="The left-over line",
            hint="The id of a line, as the page of the break that is about it shows it.",
        ),
    )  # fmt: skip
    return Asked(
        subject=_about(found),
        lines=(
            *lines,
            "Nothing changes at once: the next run takes the two as one and the same, and closes "
            "the break if their money fits. It can be taken back.",
        ),
        back=back,
        fields=fields,
        why="Why they belong together",
    )


async def do_match(view: View, reason: str) -> str:
    """Match the break with the line."""
    found = await _seen_break(view)
    line = (view.word("line") or view.given.get("line", "")).strip()
    if not line:
        raise UsageError("say which line")
    await break_acts.match_break(
        view.context, found.identity, line=line, reason=reason, by=view.person.name
    )
    return address("breaks", found.identity)


async def ask_unmatch(view: View) -> Asked:
    """Which match is taken back."""
    found = await _seen_break(view)
    matched = await break_acts.matches_of(view.context, found.identity)
    back = address("breaks", found.identity)
    if not matched:
        none = (*_shown_lines(found), "No match by hand stands.")
        return Asked(subject=_about(found), lines=none, back=back, ready=False)
    return Asked(
        subject=_about(found),
        lines=(
            *_shown_lines(found),
            "The next run opens again what the two leave without each other.",
        ),
        back=back,
        fields=(
            Field(
                name="line",
                label="The line that does not belong to it",
                choices=tuple((each, each) for each in matched),
                value=view.word("line") or matched[0],
            ),
        ),
    )


async def do_unmatch(view: View, reason: str) -> str:
    """Take the match back."""
    found = await _seen_break(view)
    await break_acts.unmatch_break(
        view.context,
        found.identity,
        line=view.given.get("line", ""),
        reason=reason,
        by=view.person.name,
    )
    return address("breaks", found.identity)


# --- several breaks at once -----------------------------------------------------------------------

SHOWN: Final = 10
"""Breaks that a preview names; all are counted and added up."""


def _list(view: View) -> str:
    """The list as it was filtered where they were chosen."""
    known = (*CONDITIONS, "order", "skip")
    given = parse_qsl(view.word("list") or "")
    query = urlencode([(name, value) for name, value in given if name in known])
    return f"/breaks?{query}" if query else "/breaks"


async def _chosen(view: View) -> break_choice.ChosenBreaks:
    """Those that were ticked, or those of which something is so."""
    where = view.word("where")
    if where is not None:
        return await break_choice.few_breaks(view.context, where)
    ticked = view.request.query_params.getlist("break")
    return break_choice.ChosenBreaks(of=await break_acts.some_breaks(view.context, ticked))


def _preview(chosen: break_choice.ChosenBreaks) -> tuple[str, ...]:
    """How many of each cause and currency, and their money; the largest of them; and what is left
    out."""
    found = chosen.of
    totals = [
        f"{CAUSE_WORDS[each.cause]}: {counted(each.count, 'break')} of {_money(each.money)}."
        for each in break_choice.sums_of(found)
    ]
    named = [_named(each) for each in found[:SHOWN]]
    more = len(found) - len(named)
    return (
        *totals,
        *named,
        *((f"And {counted(more, 'more', 'more')}.",) if more else ()),
        *chosen.left_out(),
    )


def _money(money: Money) -> str:
    shown = to_json(money)
    return plain_money(shown) if shown else "no sum"


def _named(found: break_acts.SeenBreak) -> str:
    about = found.seen.order or found.seen.payment or found.identity
    cause = CAUSE_WORDS[found.seen.cause]
    return (
        f"{about}: {cause[:1].lower()}{cause[1:]}, {_money(found.seen.money)}, {found.life.state}."
    )


def _none_chosen(view: View, error: UsageError) -> Asked:
    """Why there is nothing to decide about, and the way back to the list. Raises it again where
    the mistake is in the condition's field, which the list shows."""
    if view.word("where") is not None and view.request.method != "POST":
        raise error
    ticked = view.word("where") is not None or view.word("break") is not None
    none = "No break is chosen: tick some in the list, or say which below it."
    line = spoken(str(error)) if ticked else none
    return Asked(subject="Breaks", lines=(line,), back=_list(view), ready=False)


async def ask_assign_all(view: View) -> Asked:
    """Whose these breaks are to be."""
    try:
        chosen = await _chosen(view)
    except UsageError as error:
        return _none_chosen(view, error)
    return Asked(
        subject=counted(len(chosen.of), "break"),
        lines=_preview(chosen),
        back=_list(view),
        reason=False,
        fields=(await _assignee_field(view, view.person.name), _seen_field(*chosen.of)),
    )


async def do_assign_all(view: View, reason: str) -> str:
    """Make all of them somebody's."""
    chosen, to = await _chosen(view), await _assignee_given(view)
    await break_acts.assign_breaks(
        view.context,
        [each.identity for each in chosen.of],
        to=to,
        by=view.person.name,
        seen=view.given.get("seen", ""),
    )
    return _list(view)


async def ask_accept_all(view: View) -> Asked:
    """What is written off together, and what stands against that."""
    try:
        chosen = await _chosen(view)
    except UsageError as error:
        return _none_chosen(view, error)
    subject = counted(len(chosen.of), "break")
    if against := await _against(view, chosen.of):
        lines = (*_preview(chosen), "They are accepted together or not at all.", *against)
        return Asked(subject=subject, lines=lines, back=_list(view), ready=False)
    return Asked(
        subject=subject,
        lines=(
            *_preview(chosen),
            "All of them are written off in your name with the same reason: they leave what is to "
            "be done, and reports count them as accepted. Each opens again as soon as its money "
            "changes.",
        ),
        back=_list(view),
        fields=(_seen_field(*chosen.of),),
    )


async def _against(view: View, found: list[break_acts.SeenBreak]) -> list[str]:
    """Why they may not be accepted together, and what to do."""
    against = []
    alone = await break_acts.why_not_each(view.context, found)
    for each, because in zip(found, alone, strict=True):
        if each.life.state in ("closed", "accepted"):
            against.append(f"{_named(each)} Nothing is to be done about it.")
        elif because is not None:
            against.append(f"{_named(each)} One person may not accept it alone: {because}.")
    if against:
        return [
            "Go back and leave these out; what takes a second person is proposed on its own page:",
            *against[:SHOWN],
        ]
    together = await break_acts.why_not_together(view.context, found)
    return [] if together is None else [f"{together[:1].upper()}{together[1:]}."]


async def do_accept_all(view: View, reason: str) -> str:
    """Write all of them off."""
    chosen = await _chosen(view)
    await break_acts.accept_breaks(
        view.context,
        [each.identity for each in chosen.of],
        reason=reason,
        by=view.person.name,
        seen=view.given.get("seen", ""),
    )
    return _list(view)


# --- late money -----------------------------------------------------------------------------------

CONSEQUENCES: Final = {
    "refund": "Given back, it stays on the list until the refund has come.",
    "accept": "Kept, the order is served after all.",
    "credit": "Credited, it stays here in the customer's favour.",
}


async def ask_settle(view: View) -> Asked:
    """What becomes of late money, and what one person may decide."""
    found = await _seen_break(view)
    lines, back = _shown_lines(found), "/late"
    if found.seen.cause not in worklist.LATE:
        lines = (*lines, "This is no late money: it is decided on its own page.")
        return Asked(
            subject=_about(found),
            lines=lines,
            back=address("breaks", found.identity),
            ready=False,
        )
    if found.life.state == "closed":
        lines = (*lines, "It is closed: there is nothing to decide.")
        return Asked(subject=_about(found), lines=lines, back=back, ready=False)
    if (because := await break_acts.why_not_alone(view.context, found)) is not None:
        lines = (
            *lines,
            f"{because[:1].upper()}{because[1:]}: to keep or to credit it you propose, and another "
            "operator approves that. That it goes back, you decide alone.",
        )
    return Asked(
        subject=_about(found),
        lines=(
            *lines,
            " ".join(CONSEQUENCES.values()),
            f"Proposed: {SETTLINGS[worklist.proposed_settling(found)].lower()}. Nothing is sent "
            "to the provider by this.",
        ),
        back=back,
        fields=(
            Field(
                name="action",
                label="What becomes of it",
                choices=tuple(SETTLINGS.items()),
                value=worklist.proposed_settling(found),
            ),
            _seen_field(found),
        ),
    )


async def do_settle(view: View, reason: str) -> str | ActionResult:
    """Write the decision down, or propose it."""
    found, action = await _seen_break(view), view.given.get("action", "")
    if action not in SETTLINGS:
        raise UsageError("choose what becomes of it")
    done = await worklist.settle_late(
        view.context,
        found.identity,
        action=action,
        reason=reason,
        by=view.person.name,
        seen=_shown(view),
    )
    return proposed(done) if isinstance(done, Proposal) else "/late"
