"""Renders documents: as HTML by a template, as JSON whole, as CSV one list of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from app.console import words
from app.console.imports_pages import KINDS, WHOSE
from app.console.view import Act, Console, Document, Page, View
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.pages.charts import Series, stacked
from app.evidence.letter import Drawing, Spoken, Times, drawing, letter_zone
from reconcile.instants import format_instant
from reconcile.ledger.vocabulary import FINDINGS
from reconcile.reporting.words import SIDE_WORDS

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What was typed into a form that leads to an address, and the sentence beside it."""

    sentence: str
    typed: Mapping[str, str]


class Pages:
    """The templates, with the filters of one console."""

    def __init__(self, console: Console, menu: tuple[Page, ...], acts: Mapping[str, Act]) -> None:
        self._console = console
        self._menu = menu
        self._acts = acts
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates", encoding="utf-8"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(_filters(console))
        self._templates.globals.update(
            address=words.address,
            with_words=words.with_words,
            outcome_sentences=words.OUTCOMES,
            verdict_sentences=words.VERDICTS,
            cause_sentences=words.CAUSES,
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
            merchant=console.context.settings.merchant,
            zone=str(console.context.calendar_zone),
            now=lambda: format_instant(console.context.clock.now()),
            arrivals_chart=self._arrivals_chart,
            timeline=self._timeline,
            acts=acts,
        )

    def html(
        self, view: View, page: Page, document: Document, *, mistake: Mistake | None = None
    ) -> Response:
        """A page for a person. mistake: what is wrong with what was typed into a form of it."""
        values = {
            "title": page.title,
            "doc": document,
            "view": view,
            "person": view.person,
            "menu": self._entries(view, page),
            "beside": self._beside(view, page),
            "here": page,
            "done": self._done(view),
            "live": page.live,
            "own": _own(view, page),
            "mistake": mistake,
        }
        return self._answer(page.template, values, 200 if mistake is None else 400)

    def _entries(self, view: View, page: Page | None) -> list[dict[str, Any]]:
        """The navigation: pages by their own word, and each group by its first page."""
        entries: dict[str, dict[str, Any]] = {}
        for each in self._menu:
            if view.person.may_read(each.reads):
                fresh = {"word": each.group or each.menu, "path": each.path, "here": False}
                entry = entries.setdefault(each.group or each.path, fresh)
                entry["here"] = entry["here"] or (page is not None and _is_under(page, each))
        return list(entries.values())

    def _beside(self, view: View, page: Page) -> list[dict[str, Any]]:
        """The pages of the group that this page is of."""
        own = (each.group for each in self._menu if _is_of(page, each))
        group = page.group or next(own, "")
        return [
            {"word": each.menu, "path": each.path, "here": _is_of(page, each)}
            for each in self._menu
            if group and each.group == group and view.person.may_read(each.reads)
        ]

    def _done(self, view: View) -> str | None:
        """What was just done, by its action's own sentence."""
        act = self._acts.get(view.word("done") or "")
        return None if act is None or not act.done else act.done

    def of_person(
        self, view: View, template: str, *, title: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """A page beside the list of pages, such as a form, for who is signed in."""
        common = {
            "title": title,
            "view": view,
            "person": view.person,
            "menu": self._entries(view, None),
            "beside": [],
            "here": None,
            "done": None,
            "live": False,
            "own": None,
        }
        return self._answer(template, {**common, **values}, status)

    def plain(
        self, template: str, *, title: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """A page for nobody in particular."""
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
        """What went wrong, and what to do. back, button: the way on, and what it is called."""
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
            about=f"In the last hour came {total}, {refused} of them refused; one bar a minute.",
            labels=[
                words.clock_time(words.parsed(each["minute"]), self._console.context.calendar_zone)
                for each in arrivals
            ],
            series=[
                Series("taken", [each["taken"] for each in arrivals]),
                Series("refused", [each["refused"] for each in arrivals]),
            ],
        )

    def _timeline(self, events: list[dict[str, Any]]) -> Drawing:
        """When each event happened and when it reached us, in the console's zone."""

        spoken = [
            Spoken(
                number=number,
                at=words.parsed(each["occurred_at"] or each["received_at"]),
                received_at=words.parsed(each["received_at"]),
            )
            for number, each in enumerate(events, 1)
        ]
        return drawing(spoken, Times(letter_zone(self._console.context.calendar_zone)))


def _filters(console: Console) -> dict[str, Any]:
    return {
        "badge": words.badge,
        "money": words.money,
        "money_cell": words.money_cell,
        "words": words.marked,
        "called": words.called,
        "finding": words.finding,
        "moment": words.moment_in(console.context.calendar_zone),
        "booked": words.booked_in(console.context.calendar_zone),
        "size": words.size,
        "prose": words.prose_in(console.context.calendar_zone),
        "ended": words.ended,
        "of_forms": words.of_forms,
        "spoken": words.spoken,
    }


def _is_of(page: Page, entry: Page) -> bool:
    """Whether a page is the navigation's, or one of a thing that its list shows."""
    return page.path.split("/")[1] == entry.path.split("/")[1]


def _is_under(page: Page, entry: Page) -> bool:
    """The same, or a page of the part that the navigation's is of."""
    return _is_of(page, entry) or bool(page.group and page.group == entry.group)


def _own(view: View, page: Page) -> str:
    """The page's own address without its form, for links to the same in other forms."""
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
    """The document whole."""
    text = json.dumps(document, ensure_ascii=False)
    return Response(text, media_type="application/json")


def as_csv(document: Document, rows: str) -> Response:
    """One list of the document; amounts and their currencies in columns of their own, as numbers:
    a mark before a negative one would make it a text, which no sum of a spreadsheet counts."""
    flat = [_flat(each) for each in document[rows]]
    columns = list(dict.fromkeys(name for each in flat for name in each))
    lines = [BYTE_ORDER_MARK, csv_line(columns)]
    lines += [csv_line(each.get(name, "") for name in columns) for each in flat]
    return Response("".join(lines), media_type="text/csv")


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            numbers = {"amount"} if set(value) == {"amount", "currency"} else set[str]()
            flat |= {
                f"{name}_{inner}": each if inner in numbers else _cell(each)
                for inner, each in value.items()
            }
        else:
            flat[name] = _cell(value)
    return flat


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
    if isinstance(value, dict):  # one of several, such as a payout: by its name, where it has one
        return str(value.get("reference") or json.dumps(value, ensure_ascii=False))
    return str(value)
