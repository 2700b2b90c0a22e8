"""Pages and actions for breaks and for late money, such as a refund that is still owed."""

from collections import Counter
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from app.access.bookmarks import bookmarks_of
from app.access.operators import MAY, known_operators
from app.access.proposal import Proposal
from app.console.case_pages import attachments_of_break
from app.console.orders_pages import saved_lists
from app.console.proposals_pages import proposed, waiting_about
from app.console.view import PROPOSE, Act, ActionResult, Document, Field, Filters, Form, View
from app.console.words import SETTLINGS, address, plain_money, spoken
from app.core.errors import NotFoundError, UsageError
from app.core.text import capital, counted
from app.finance import break_acts, break_choice, left_over, worklist
from app.finance.bank_match import Booked, booked_page, named_lines
from app.finance.break_acts import BreakAct
from app.finance.limits import Allowance
from reconcile.instants import format_instant
from reconcile.matching.breaks import STANDINGS, STATES, apart_words, break_sentence
from reconcile.matching.causes import BREAK_CAUSES, CAUSES
from reconcile.matching.rows import name_of
from reconcile.money import Money, to_json

LIVING: Final = STATES[:-1]

CONDITIONS: Final = ("cause", "state", "currency", "assignee")
"""Filters of the list of breaks."""

AGE_CONDITIONS: Final = {"week": "age<=7", "month": "age>7 age<=30", "older": "age>30"}

FILTERS: Final[Filters] = {
    "cause": BREAK_CAUSES,
    "state": LIVING,
    "age": tuple(worklist.AGES),
    "currency": None,
    "assignee": None,
    "order": tuple(worklist.ORDERS),
}

MOST_SKIPPED: Final = 1_000_000


async def breaks_document(view: View) -> Document:
    """Return the content of `GET /breaks?cause=&state=&age=&currency=&assignee=&order=&skip=`: the
    list of breaks."""
    filters, skip = view.filters(FILTERS), min(view.number("skip") or 0, MOST_SKIPPED)
    asked = {**filters, "order": filters["order"] or "money"}
    request = worklist.WorklistRequest(**asked, skip=skip, limit=view.rows)
    found = await worklist.worklist(view.context, request)
    now, run = view.context.clock.now(), found.run
    return {
        "filters": filters,
        "where": " ".join(
            [
                break_choice.condition_text({name: filters[name] for name in CONDITIONS}),
                *(AGE_CONDITIONS[age] for age in [filters["age"]] if age is not None),
            ]
        ).strip(),
        "saved": saved_lists(await bookmarks_of(view.context, view.person.name), "breaks"),
        "skip": skip or None,
        "run": run and {"number": run.number, "at": format_instant(run.at)},
        "found": found.found,
        "totals": [{"count": count, "money": to_json(money)} for count, money in found.totals],
        "causes": found.causes,
        "states": {state: found.states.get(state, 0) for state in LIVING},
        "breaks": [each.document(as_of=now) for each in found.shown],
        "next": skip + view.rows if found.found > skip + view.rows else None,
    }


async def break_document(view: View) -> Document:
    """Return the content of `GET /breaks/{break}`: a single break."""
    try:
        found = await break_acts.one_break(view.context, view.subject)
    except NotFoundError:
        raise NotFoundError(
            f"there is no break {view.subject!r}: look for it in the list of breaks"
        ) from None
    closed = found.life.state == "closed"
    booked = [each for each in found.seen.cites if each.startswith("bnk_")]
    lines = await named_lines(view.context, booked) if view.person.may("bank") else {}
    return {
        **found.whole_document(as_of=view.context.clock.now()),
        "bank": [
            {
                "line": name,
                "payer": line.counterparty,
                "text": line.text,
                "reference": line.reference,
            }
            for name, line in lines.items()
        ],
        "means": CAUSES[found.seen.cause].meaning,
        "partners": bool(CAUSES[found.seen.cause].partners),
        "matched": await break_acts.matches_of(view.context, found.identity),
        "late": found.seen.cause in worklist.LATE,
        "not_alone": None if closed else await _why_not_alone(view, found),
        "proposal": await waiting_about(view, found.identity),
        "attachments": await attachments_of_break(view, found.identity),
    }


async def late_document(view: View) -> Document:
    """Return the content of `GET /late?state=&skip=`: the late money."""
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
    last = await worklist.newest_run(view.context)
    return {
        "filters": {"state": wanted},
        "run": last and {"number": last.number, "at": format_instant(last.at)},
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
        "late": [
            worklist.late_document(each) | {"sentence": CAUSES[each.seen.cause].meaning}
            for each in fitting[skip : skip + view.rows]
        ],
        "next": skip + view.rows if len(fitting) > skip + view.rows else None,
    }


# --- actions on one break -------------------------------------------------------------------------


async def _why_not_alone(view: View, found: break_acts.SeenBreak) -> str | None:
    allowance = await break_acts.allowance_now(view.context, by=view.person.name)
    return break_acts.too_much(allowance, found.seen)


async def _seen_break(view: View) -> break_acts.SeenBreak:
    return await break_acts.one_break(view.context, view.needed("break"))


def _form(
    found: break_acts.SeenBreak, *lines: str, back: str | None = None, **options: Any
) -> Form:
    money = to_json(found.seen.money)
    name, cause = found.seen.order or found.seen.payment, CAUSES[found.seen.cause].name
    return Form(
        cause if name is None else f"{name}: {cause[:1].lower()}{cause[1:]}",
        back or address("breaks", found.identity),
        break_sentence(found.seen),
        f"At stake: {plain_money(money)}." if money else "No amount is at stake.",
        f"Its state: {found.life.because}",
        *lines,
        **options,
    )


def _seen_field(*found: break_acts.SeenBreak) -> Field:
    mark = break_acts.mark_of(found)
    return Field("seen", "What was shown", kind="hidden", value=mark)


async def _people(view: View) -> list[str]:
    return [
        each.name
        for each in await known_operators(view.context)
        if each.disabled_at is None and each.role in MAY["break_assigned"]
    ]


async def ask_comment(view: View) -> Form:
    return _form(await _seen_break(view), why="What you found out")


async def do_comment(view: View, reason: str) -> str:
    found = await _seen_break(view)
    doing = BreakAct(kind="commented", by=view.person.name, reason=reason)
    await break_acts.act_on_breaks(view.context, [found.identity], doing)
    return address("breaks", found.identity)


async def match_document(view: View) -> Document:
    """Return the content of `GET /match/{break}?text=&amount=&from=&to=&line=…`: the unmatched
    lines and the chosen lines."""
    found = await break_acts.one_break(view.context, view.subject)
    sought = left_over.LineSearch(
        text=view.word("text") or "",
        amount=view.word("amount") or "",
        since=view.instant("from"),
        until=view.instant("to"),
    )
    chosen = view.request.query_params.getlist("line")
    others: list[Booked] = []
    if left_over.may_be_other_business(found.seen.cause) and view.person.may("bank"):
        match = partial(
            view.console.work, booked_page, stands="other_business", limit=left_over.OF_BANK
        )
        seen = await view.shared_job("bank", "other business", work=match)
        others = [] if seen.ended is None else seen.result.lines
    lines = await left_over.find_lines(
        view.context,
        found,
        sought,
        chosen=chosen,
        texts=view.person.may("bank"),
        other_business=others,
    )
    shown = [*lines.chosen, *lines.lines[: view.rows]]
    sum_of = [each.money.minor for each in lines.chosen]
    currency = found.seen.money.currency
    return {
        **found.document(as_of=view.context.clock.now()),
        "filters": {name: view.word(name) for name in ("text", "amount", "from", "to")},
        "found": len(lines.lines),
        "more": lines.more,
        "chosen": len(lines.chosen),
        "sum": None if lines.left is None else to_json(Money(minor=sum(sum_of), currency=currency)),
        "difference": None if lines.left is None else to_json(lines.left),
        "lines": [each.document(chosen=each in lines.chosen) for each in shown],
    }


# --- matching by hand -----------------------------------------------------------------------------


async def ask_match(view: View) -> Form:
    found, chosen = await _seen_break(view), view.request.query_params.getlist("line")
    if found.life.state == "closed" and not found.life.matched:
        return _form(found, "This break is closed: there is nothing to match.", ready=False)
    near = {name_of(each.line): each for each in found.seen.candidates}
    lines: list[str] = []
    for candidate in [near[name_of(each)] for each in chosen if name_of(each) in near]:
        lines += [
            f"The other line is {candidate.reference}, of {_money(candidate.money)}.",
            f"Differences between the two lines: {apart_words(candidate)}.",
        ]
    if len(chosen) > 1:
        lines.append(f"{counted(len(chosen), 'line')} are chosen.")
    line_field = Field(
        "line",
        "The left-over line",
        hint="Copy the line's id from the page of its break.",
    )
    return _form(
        found,
        *lines,
        "The match counts at once: this break closes, and so does the other line's break. If "
        "their sums differ, the next run reports the difference. You can undo the match.",
        fields=() if chosen else (line_field,),
        why="Why they belong together",
    )


async def do_match(view: View, reason: str) -> str:
    found = await _seen_break(view)
    chosen = view.request.query_params.getlist("line") or [view.given.get("line", "").strip()]
    if not all(chosen):
        raise UsageError("enter the id of the line")
    by = view.person.name
    await break_acts.match_lines(view.context, found.identity, lines=chosen, reason=reason, by=by)
    return address("breaks", found.identity)


async def ask_unmatch(view: View) -> Form:
    found = await _seen_break(view)
    matched = await break_acts.matches_of(view.context, found.identity)
    if not matched:
        return _form(found, "This break was not matched by hand.", ready=False)
    line_field = Field(
        "line",
        "The line that does not belong to it",
        choices=tuple((each, each) for each in matched),
        value=view.word("line") or matched[0],
    )
    line = (
        "Both breaks are open again. If a run has closed them, the next run opens those that "
        "still differ."
    )
    return _form(found, line, fields=(line_field,))


async def do_unmatch(view: View, reason: str) -> str:
    found, line, by = await _seen_break(view), view.given.get("line", ""), view.person.name
    await break_acts.unmatch_break(view.context, found.identity, line=line, reason=reason, by=by)
    return address("breaks", found.identity)


# --- one break, or several at once ----------------------------------------------------------------

SHOWN: Final = 10
"""Number of breaks that the preview of a bulk action lists."""


def _list(view: View) -> str:
    given = parse_qsl(view.word("list") or "")
    query = urlencode([(name, value) for name, value in given if name in (*FILTERS, "skip")])
    return f"/breaks?{query}" if query else "/breaks"


async def _chosen(view: View) -> break_choice.ChosenBreaks:
    where = view.word("where")
    if where is not None:
        return await break_choice.few_breaks(view.context, where)
    ticked = view.request.query_params.getlist("break")
    return break_choice.ChosenBreaks(of=await break_acts.some_breaks(view.context, ticked))


def _back(view: View, chosen: break_choice.ChosenBreaks) -> str:
    if view.word("list") is None and len(chosen.of) == 1:
        return address("breaks", chosen.of[0].identity)
    return _list(view)


def _preview(chosen: break_choice.ChosenBreaks) -> tuple[str, ...]:
    found = chosen.of
    totals = [
        f"{CAUSES[each.cause].name}: {counted(each.count, 'break')} of {_money(each.money)}."
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
    cause = CAUSES[found.seen.cause].name
    return (
        f"{about}: {cause[:1].lower()}{cause[1:]}, {_money(found.seen.money)}, {found.life.state}."
    )


def _form_of(
    view: View,
    chosen: break_choice.ChosenBreaks,
    *lines: str,
    fields: tuple[Field, ...] = (),
    **options: Any,
) -> Form:
    back, fields = _back(view, chosen), (*fields, _seen_field(*chosen.of))
    if len(chosen.of) == 1:
        shown = (*chosen.left_out(), *lines)
        return _form(chosen.of[0], *shown, back=back, fields=fields, **options)
    subject = counted(len(chosen.of), "break")
    return Form(subject, back, *_preview(chosen), *lines, fields=fields, **options)


def _none_chosen(view: View, error: UsageError) -> Form:
    if view.word("where") is not None and view.request.method != "POST":
        raise error
    ticked = view.word("where") is not None or view.word("break") is not None
    none = "No break is chosen: tick some in the list, or choose them below it."
    line = spoken(str(error)) if ticked else none
    return Form("Breaks", _list(view), line, ready=False)


async def _act(
    view: View, kind: Literal["assigned", "accepted"], *, value: str = "", reason: str = ""
) -> str | ActionResult:
    chosen = await _chosen(view)
    proposal = await break_acts.act_on_breaks(
        view.context,
        [each.identity for each in chosen.of],
        BreakAct(kind=kind, by=view.person.name, value=value, reason=reason),
        seen=view.given.get("seen", ""),
    )
    return _back(view, chosen) if proposal is None else proposed(proposal)


async def ask_assign(view: View) -> Form:
    try:
        chosen = await _chosen(view)
    except UsageError as error:
        return _none_chosen(view, error)
    one = chosen.of[0].life.assignee if len(chosen.of) == 1 else None
    to = Field(
        "to",
        "To whom",
        choices=(*((name, name) for name in await _people(view)), ("", "nobody")),
        value=one or view.person.name,
        required=False,
    )
    button = "" if len(chosen.of) == 1 else "Assign all of them"
    return _form_of(view, chosen, reason=False, fields=(to,), button=button)


async def do_assign(view: View, reason: str) -> str | ActionResult:
    to = view.given.get("to", "")
    if to and to not in await _people(view):
        raise UsageError("no operator of this name may work on breaks")
    return await _act(view, "assigned", value=to)


async def ask_accept(view: View) -> Form:
    try:
        chosen = await _chosen(view)
    except UsageError as error:
        return _none_chosen(view, error)
    allowance = await break_acts.allowance_now(view.context, by=view.person.name)
    if len(chosen.of) > 1:
        if against := _against(allowance, chosen.of):
            together = "They are accepted together or not at all."
            return _form_of(view, chosen, together, *against, ready=False)
        line = (
            "All of them are written off in your name with the same reason: they leave the open "
            "work, and reports count them as accepted. Each opens again as soon as its money "
            "changes."
        )
        return _form_of(view, chosen, line, button="Accept all of them")
    (found,) = chosen.of
    if found.life.state in ("closed", "accepted"):
        line = f"This break is {found.life.state}: there is nothing to accept."
        return _form_of(view, chosen, line, ready=False)
    if (because := break_acts.too_much(allowance, found.seen)) is not None:
        line = (
            f"{capital(because)}. You propose it in your name, and it is written off when another "
            "operator approves it."
        )
        return _form_of(view, chosen, line, button=PROPOSE)
    line = (
        "It is written off in your name: it leaves the open work, and reports count it as "
        "accepted. It opens again as soon as its money changes."
    )
    return _form_of(view, chosen, line)


def _against(allowance: Allowance, found: list[break_acts.SeenBreak]) -> list[str]:
    against = []
    for each in found:
        because = break_acts.too_much(allowance, each.seen)
        if each.life.state in ("closed", "accepted"):
            against.append(f"{_named(each)} Nothing is to be done about it.")
        elif because is not None:
            against.append(f"{_named(each)} One person may not accept it alone: {because}.")
    if against:
        return [
            "Go back and leave these out. Propose each of them on its own page:",
            *against[:SHOWN],
        ]
    together = allowance.why_not(*(each.seen.money for each in found))
    if together is None:
        return []
    return [f"{capital(together)}. Accept fewer, and propose the others on their own pages."]


async def do_accept(view: View, reason: str) -> str | ActionResult:
    """Accept the selected breaks, or propose their acceptance."""
    return await _act(view, "accepted", reason=reason)


# --- late money -----------------------------------------------------------------------------------

CONSEQUENCES: Final = {
    "refund": "Money that you give back stays on the list until the refund has arrived.",
    "accept": "Keep the money only if the order will be fulfilled after all.",
    "credit": "If you credit the money, the shop keeps it as a credit for the customer.",
}


async def ask_settle(view: View) -> Form:
    found = await _seen_break(view)
    if found.seen.cause not in worklist.LATE:
        line = "This break is not late money. Decide about it on its own page."
        return _form(found, line, ready=False)
    if found.life.state == "closed":
        line = "This break is closed: there is nothing to decide."
        return _form(found, line, back="/late", ready=False)
    lines: tuple[str, ...] = ()
    if (because := await _why_not_alone(view, found)) is not None:
        lines = (
            f"{capital(because)}: you can only propose to keep or credit it, and another operator "
            "must approve that. You decide alone to give it back.",
        )
    return _form(
        found,
        *lines,
        " ".join(CONSEQUENCES.values()),
        f"Proposed: {SETTLINGS[worklist.proposed_settling(found)].lower()}. Nothing is sent to the "
        "provider by this.",
        back="/late",
        fields=(
            Field(
                "action",
                "What happens to the money",
                choices=tuple(SETTLINGS.items()),
                value=worklist.proposed_settling(found),
            ),
            _seen_field(found),
        ),
    )


async def do_settle(view: View, reason: str) -> str | ActionResult:
    """Settle late money, or propose the settlement."""
    found, action = await _seen_break(view), view.given.get("action", "")
    if action not in SETTLINGS:
        raise UsageError("choose an action for the late money")
    done = await worklist.settle_late(
        view.context,
        found.identity,
        action=action,
        reason=reason,
        by=view.person.name,
        seen=view.given.get("seen", ""),
    )
    return proposed(done) if isinstance(done, Proposal) else "/late"


ACTS: Final = (
    Act(
        "Assign breaks",
        "break_assigned",
        ask_assign,
        do_assign,
        done="Assigned.",
        typed=("where",),
        form_on="/breaks",
    ),
    Act(
        "Comment on a break",
        "break_commented",
        ask_comment,
        do_comment,
        button="Add the comment",
        done="Your comment is in the history below.",
    ),
    Act(
        "Accept breaks",
        "break_accepted",
        ask_accept,
        do_accept,
        done="Accepted: nothing more is to be done.",
        typed=("where",),
        form_on="/breaks",
    ),
    Act(
        "Match by hand",
        "break_matched",
        ask_match,
        do_match,
        button="Match them",
        done="The lines are matched. If their sums differ, the next run reports the difference.",
    ),
    Act(
        "Take a match back",
        "break_unmatched",
        ask_unmatch,
        do_unmatch,
        button="Take it back",
        done="The lines are no longer matched.",
    ),
    Act(
        "Decide about late money",
        "late_money_settled",
        ask_settle,
        do_settle,
        done="Your decision about the late money is saved.",
    ),
)
