"""Render a page's document as HTML, JSON or CSV, and make downloads."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Final, cast

from jinja2 import FileSystemLoader, StrictUndefined
from starlette.responses import Response, StreamingResponse

from app.console import words
from app.console.imports_pages import KINDS, WHOSE
from app.console.locales import LocalEnvironment, shown_locale
from app.console.view import Act, Console, Document, Page, View
from app.console.words import file_part as file_part
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.ids import new_token
from app.core.pages.charts import Series, bars, stacked
from app.core.pages.letters import Drawing
from app.evidence.bundle_letter import Spoken, drawing
from app.evidence.letter_times import Times, letter_zone
from app.orders.customers import MAX_REASON
from app.receiving.caught_up import unread_notice
from reconcile.instants import format_instant, moment_of, parse_instant
from reconcile.ledger.vocabulary import FINDINGS
from reconcile.matching.causes import CAUSES
from reconcile.reporting.words import SIDE_WORDS

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class TypingError:
    """Mistake in a form on a page, with the text that the operator typed."""

    sentence: str
    typed: Mapping[str, str]


class Pages:
    """The console's page templates, with their filters and the navigation menu."""

    def __init__(self, console: Console, pages: tuple[Page, ...], acts: Mapping[str, Act]) -> None:
        self._console = console
        self._menu = [page for page in pages if page.listed]
        self._acts = acts
        self._templates = LocalEnvironment(
            loader=FileSystemLoader(FOLDER / "templates", encoding="utf-8"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        zone = console.context.calendar_zone
        self._templates.filters.update(
            badge=words.badge,
            money=words.money,
            money_cell=words.money_cell,
            words=words.marked,
            called=words.called,
            finding=words.finding,
            moment=words.moment_in(zone),
            booked=words.booked_in(zone),
            size=words.size,
            prose=words.prose_in(zone),
            ended=words.ended,
            of_forms=words.of_forms,
            spoken=words.spoken,
        )
        self._templates.globals.update(
            address=words.address,
            with_words=words.with_words,
            outcome_sentences=words.OUTCOMES,
            verdict_sentences=words.VERDICTS,
            causes=CAUSES,
            age_words=words.AGES,
            place_sentences=words.BANK_PLACES,
            side_sentences=words.SIDE_SENTENCES,
            state_sentences=words.BREAK_STATES,
            notification_sentences=words.NOTIFICATIONS,
            step_words=words.STEPS,
            action_words=words.ACTIONS,
            import_words=KINDS,
            whose_words=WHOSE,
            finding_sentences={code: each.summary for code, each in FINDINGS.items()},
            settling_words=words.SETTLINGS,
            side_words=SIDE_WORDS,
            taken_words=words.TAKEN,
            environment=console.context.database.environment,
            max_reason=MAX_REASON,
            merchant=console.context.settings.merchant,
            zone=str(console.context.calendar_zone),
            now=lambda: format_instant(console.context.clock.now()),
            unread_notice=unread_notice,
            new_form=partial(new_token, ""),
            shown_locale=shown_locale,
            arrivals_chart=self._arrivals_chart,
            settling_chart=_settling_chart,
            fees_chart=_fees_chart,
            timeline=self._timeline,
            acts=acts,
        )

    def html(
        self,
        view: View,
        page: Page,
        document: Document,
        *,
        mistake: TypingError | None = None,
    ) -> Response:
        """Render a document with the template of its page."""
        act = self._acts.get(view.word("done") or "")
        own = (each.group for each in self._menu if _same_list(page, each))
        group = page.group or next(own, "")
        beside = [
            {"word": each.title, "path": each.path, "here": _same_list(page, each)}
            for each in self._menu
            if group and each.group == group and view.person.may(each.reads)
        ]
        values = {
            "title": page.title,
            "doc": document,
            "view": view,
            "person": view.person,
            "menu": self._navigation(view, page),
            "beside": beside,
            "here": page,
            "done": None if act is None else act.done or None,
            "live": page.live,
            "own": _own(view, page),
            "mistake": mistake,
        }
        return self._answer(page.template_name, values, 200 if mistake is None else 400)

    def _navigation(self, view: View, page: Page | None) -> list[dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for each in self._menu:
            if view.person.may(each.reads):
                fresh = {"word": each.group or each.title, "path": each.path, "here": False}
                entry = entries.setdefault(each.group or each.path, fresh)
                if page is not None and (
                    _same_list(page, each) or (page.group and page.group == each.group)
                ):
                    entry["here"] = True
        return list(entries.values())

    def of_person(
        self, view: View, template: str, *, title: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Render a page outside the menu for a signed-in person."""
        common = {"view": view, "person": view.person, "menu": self._navigation(view, None)}
        return self.plain(template, title=title, values={**common, **values}, status=status)

    def plain(
        self, template: str, *, title: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Render a page without a menu, for people who are not signed in."""
        common: dict[str, Any] = {
            "title": title,
            "person": None,
            "menu": [],
            "beside": [],
            "here": None,
            "done": None,
            "live": False,
            "own": None,
        }
        return self._answer(template, {**common, **values}, status)

    def problem(
        self,
        status: int,
        sentence: str,
        *,
        view: View | None = None,
        back: str = "/",
        button: str = "To the first page",
    ) -> Response:
        """Render an error page. Its link leads to `back` and is labelled `button`."""
        values = {"sentence": sentence, "status": status, "back": back, "button": button}
        if view is None:
            return self.plain("problem.html", title="Not here", values=values, status=status)
        return self.of_person(view, "problem.html", title="Not here", values=values, status=status)

    def _answer(self, template: str, values: Mapping[str, Any], status: int) -> Response:
        text = self._templates.get_template(template).render(values)
        return Response(text, status_code=status, media_type="text/html")

    def _arrivals_chart(self, arrivals: list[dict[str, Any]]) -> Any:
        total = sum(each["taken"] + each["refused"] for each in arrivals)
        refused = sum(each["refused"] for each in arrivals)
        return stacked(
            "arrivals",
            title="Deliveries in the last hour",
            about=(
                f"{total} arrived in the last hour, {refused} of them were refused. Each bar is "
                "one minute."
            ),
            labels=[
                words.clock_time(parse_instant(each["minute"]), self._console.context.calendar_zone)
                for each in arrivals
            ],
            series=[
                Series("taken", [each["taken"] for each in arrivals]),
                Series("refused", [each["refused"] for each in arrivals]),
            ],
        )

    def _timeline(self, events: list[dict[str, Any]], first: int) -> Drawing:
        spoken = [
            Spoken(
                number=number,
                at=parse_instant(each["occurred_at"] or each["received_at"]),
                received_at=parse_instant(each["received_at"]),
            )
            for number, each in enumerate(events, first)
        ]
        return drawing(spoken, Times(letter_zone(self._console.context.calendar_zone)))


def _settling_chart(
    months: Sequence[str], source: str, currency: str, rows: Sequence[Mapping[str, Any]]
) -> Any:
    own = {row["month"]: row for row in rows}
    return stacked(
        f"settling-{source}-{currency}",
        title=f"Captures of {source} in {currency} and their settlement",
        about="Each bar is one month of capture; the table below has the same numbers.",
        labels=months,
        series=[
            Series(
                word,
                [int(Decimal(own[m][part]["amount"])) if m in own else 0 for m in months],
            )
            for word, part in (("settled", "settled"), ("open", "open"),
                               ("not covered", "not_covered"))
        ],
    )  # fmt: skip


def _fees_chart(
    months: Sequence[str], source: str, currency: str, rows: Sequence[Mapping[str, Any]]
) -> Any:
    gross, fee = defaultdict[str, Decimal](Decimal), defaultdict[str, Decimal](Decimal)
    for row in rows:
        gross[row["month"]] += Decimal(row["gross"]["amount"])
        fee[row["month"]] += Decimal(row["fee"]["amount"])
    return bars(
        f"fees-{source}-{currency}",
        title=f"Fees of {source} in {currency}, in hundredths of a percent of the gross",
        about="Each bar is one month, over all methods; the table below has each method.",
        labels=months,
        values=[max(0, round(fee[m] * 10_000 / gross[m])) if gross[m] else 0 for m in months],
    )


def _same_list(page: Page, entry: Page) -> bool:
    return page.path.split("/")[1] == entry.path.split("/")[1]


def _own(view: View, page: Page) -> str:
    query = "&".join(
        part for part in view.request.url.query.split("&") if part and not part.startswith("done=")
    )
    if "{subject}" in page.path:
        kind = page.path.split("/")[1]
        path = words.address(kind, view.subject, "{}")
    else:
        path = ("/now" if page.path == "/" else page.path) + ".{}"
    return path + (f"?{query}" if query else "")


def as_json(document: Document) -> Response:
    text = json.dumps(document, ensure_ascii=False)
    return Response(text, media_type="application/json")


SPOOLED_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of CSV rows in memory. Others go to a file."""

Following = Callable[[Document], Awaitable[Document | None]]
"""Function that loads the next page's document, if any."""


async def no_following(document: Document) -> Document | None:
    """Return None, because the document has only one page."""
    return None


def as_csv(
    document: Document, rows: str, *, zone: tzinfo, following: Following = no_following
) -> Response:
    """Return a list of the document as CSV, with the rows of all pages.

    rows       name of the list in the document
    following  loads the next page's document
    """
    return StreamingResponse(_csv_lines(document, rows, following, zone), media_type="text/csv")


async def _csv_lines(
    document: Document, rows: str, following: Following, zone: tzinfo
) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK
    columns, page = dict[str, None](), cast(Document | None, document)
    with SpooledTemporaryFile(SPOOLED_BYTES, "w+", encoding="utf-8") as kept:
        while page is not None:
            for row in page[rows]:
                flat = _flat(row, zone)
                columns |= dict.fromkeys(flat)
                kept.write(json.dumps(flat) + "\n")
            page = await following(page)
        yield csv_line(columns)
        kept.seek(0)
        for line in kept:
            found = json.loads(line)
            yield csv_line(found.get(name, "") for name in columns)


def download(content: bytes | str, name: str, media: str = "application/octet-stream") -> Response:
    """Return a response that the browser saves as a file."""
    disposition = f'attachment; filename="{name}"'
    return Response(content, media_type=media, headers={"Content-Disposition": disposition})


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _flat(row: Mapping[str, Any], zone: tzinfo) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            inner = _flat(value, zone)
            if set(value) == {"amount", "currency"}:
                inner["amount"] = value["amount"]
            flat |= {f"{name}_{each}": cell for each, cell in inner.items()}
        else:
            flat[name] = _cell(value)
            if name in _TIMES or name.endswith("_at"):
                timed = isinstance(value, str) and _INSTANT.fullmatch(value)
                flat[f"{name}_local"] = _local(value, zone) if timed else ""
    return flat


_TIMES: Final = frozenset({"at", "since", "until"})


def _local(value: str, zone: tzinfo) -> str:
    return f"{moment_of(parse_instant(value)).astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _cell(value: Any) -> str:
    if type(value) in (int, float):
        return str(value)
    if isinstance(value, list):
        return safe_cell(" ".join(map(_inner, value)))
    return safe_cell(_inner(value))


def _inner(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # one of several, such as a payout: by name if it has one
        return str(value.get("reference") or json.dumps(value, ensure_ascii=False))
    return str(value)
