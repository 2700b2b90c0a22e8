"""Page of the days that imported files cover. Actions declare coverage and withdraw a
declaration."""

from collections.abc import Sequence
from typing import Final

from app.console.view import Act, Document, Field, Form, View
from app.core.errors import NotFoundError
from app.finance import coverage
from app.finance.imports import ImportKind
from reconcile.periods import Calendar

NAMED: tuple[tuple[ImportKind, str], ...] = (
    ("statement", "statements of a source"),
    ("bank", "files of a bank account"),
    ("book", "an order book"),
)


async def coverage_document(view: View) -> Document:
    """Return the content of `GET /coverage`: all covered spans, by kind and name."""
    lines = await coverage.list_coverage(view.context)
    calendar = Calendar(view.context.calendar_zone)
    lines.sort(key=lambda line: (line.kind, line.name, line.wallet or "", line.since or 0))
    return {
        "zone": calendar.name,
        "coverage": [
            line.document()
            | {
                "days": coverage.days_of_span(line, calendar),
                "declared": line.since is not None and line.who != coverage.BY_FILE,
            }
            for line in lines
        ],
    }


def covered_days(lines: Sequence[coverage.CoverageLine], calendar: Calendar) -> list[str]:
    """Return a phrase about the covered days of each line."""
    return [
        f"{' '.join(filter(None, (line.name or 'no named source', line.wallet)))}: "
        f"{coverage.days_of_span(line, calendar) or 'days that the file does not state'}"
        + ("" if line.since is None or line.who == coverage.BY_FILE else ", as you declare")
        for line in lines
    ]


async def ask_declare_coverage(view: View) -> Form:
    lines = await coverage.list_coverage(view.context)
    known = {(line.kind, line.name): line for line in lines}
    words = dict(NAMED)
    choices = [
        (f"{kind} {name}", f"{name or 'no named source'}: {words[kind]}")
        for kind, name in sorted(known)
    ]
    return Form(
        "What files cover",
        "/coverage",
        "From then on, everything that is dated within these days, but is in no file of this "
        "name, counts as missing. Reports state that you declared these days. Declare only days "
        "that the files really cover."
        if choices
        else "Nothing is imported yet whose coverage could be declared.",
        ready=bool(choices),
        fields=(
            Field("name", "Files of", choices=tuple(choices)),
            Field("wallet", "Sub-account", hint="If empty: all sub-accounts.", required=False),
            *day_fields(required=True),
        ),
    )


def day_fields(*, required: bool) -> tuple[Field, ...]:
    """Return the two form fields for the first and the last covered day."""
    return (
        Field(
            "first_day",
            "The first day that it covers",
            hint="Such as 2026-10-01." if required else "Only for a file that does not state it.",
            required=required,
        ),
        Field(
            "last_day",
            "The last day that it covers",
            hint="The whole day is included.",
            required=required,
        ),
    )


async def do_declare_coverage(view: View, reason: str) -> str:
    kind, _, name = view.given.get("name", "").partition(" ")
    known = {each: each for each, _ in NAMED}
    if kind not in known:
        raise NotFoundError("choose whose files cover these days")
    asked = coverage.Declaration(
        kind=known[kind],
        name=name,
        wallet=view.given.get("wallet", "").strip() or None,
        first=view.given.get("first_day", ""),
        last=view.given.get("last_day", ""),
        reason=reason,
        by=view.person.name,
    )
    await coverage.declare_coverage(view.context, asked)
    return "/coverage"


async def ask_withdraw_coverage(view: View) -> Form:
    number = view.number("number")
    lines = await coverage.list_coverage(view.context)
    line = next((each for each in lines if each.number == number), None)
    if line is None:
        raise NotFoundError("this coverage is not in force")
    days = coverage.days_of_span(line, Calendar(view.context.calendar_zone))
    return Form(
        f"{line.name}, {days}",
        "/coverage",
        "From then on, these days are not covered unless another file or person says so.",
    )


async def do_withdraw_coverage(view: View, reason: str) -> str:
    number = view.number("number") or 0
    await coverage.withdraw_coverage(view.context, number, reason=reason, by=view.person.name)
    return "/coverage"


ACTS: Final = (
    Act(
        "Declare which days files cover",
        "coverage_declared",
        ask_declare_coverage,
        do_declare_coverage,
    ),
    Act(
        "Take back which days files cover",
        "coverage_withdrawn",
        ask_withdraw_coverage,
        do_withdraw_coverage,
        button="Take it back",
    ),
)
