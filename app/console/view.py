"""Define pages, actions, requests, and the resources of pages."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlencode

import httpx2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from app.access.company_account import FRESH_FOR, CompanyProvider
from app.access.operators import MAY, MAY_READ, Action, Reading, Role, last_done
from app.access.proposals import Proposals
from app.access.sessions import Way
from app.console.live import Live
from app.console.uploads import ReceivedFile, Uploads
from app.context.context import AppContext, Work
from app.core.errors import UsageError
from app.core.jobs import Job, Jobs
from app.core.references import composed
from app.core.zones import typed_instant
from reconcile.instants import Instant

# --- the console's jobs ---------------------------------------------------------------------------

JobKind = Literal[
    "import", "run", "preview", "look", "bank", "withdrawal", "withdraw", "close", "approve",
    "checks", "journal", "trends", "verify",
]  # fmt: skip


# --- pages and actions ----------------------------------------------------------------------------

ROWS: Final = 50
"""Number of rows on a page of a listing."""

CSV_PAGE: Final = 5_000
"""Number of rows that are loaded at a time for a listing's CSV file."""

FORMATS: Final = ("html", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Resources that pages and actions use."""

    context: AppContext
    origin: str
    """Scheme and host as browsers see them."""
    hosts: frozenset[str]
    """Allowed values of the Host header."""
    loopback: bool
    """True if only this machine can reach the console."""
    cookie: str
    """Name of the session cookie."""
    mark_key: str = field(repr=False)
    """Secret key of this process, which signs challenges and previews."""
    proposals: Proposals
    work: Work
    """Runs a job's work, usually in another process."""
    makes: Work
    """Runs the work of a document. Never waits for an import."""
    reads_rules: Work
    """Runs work with a time limit, for parsing TOML."""
    approve: Callable[[str, str, str, str], Awaitable[None]]
    """Approves a proposal whose act takes long."""
    jobs: Jobs
    uploads: Uploads
    live: Live
    company: CompanyProvider | None = None
    """Provider of the company's accounts, if there is one."""
    transport: httpx2.AsyncBaseTransport | None = None
    """HTTP transport for test events in tests. None for the network."""

    @property
    def secure(self) -> bool:
        return self.origin.startswith("https://")


T = TypeVar("T")
Word = TypeVar("Word", bound=str)

Filters = Mapping[str, tuple[str, ...] | None]
"""Filters of a list, with the allowed words; None for any text."""

ROLES_OF: Final[Mapping[str, frozenset[Role]]] = {
    str(name): roles for name, roles in (*MAY.items(), *MAY_READ.items())
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Signed-in operator, with the time and way of signing in."""

    name: str
    role: str
    began_at: Instant
    """Start of the session, which stays when the cookie is renewed."""
    way: Way
    proved_at: Instant
    """Time when the operator last proved their identity."""

    def may(self, what: Action | Reading) -> bool:
        """Return whether the person's role permits an action or permits reading something."""
        return self.role in ROLES_OF[what]

    def proved_within(self, now: Instant) -> bool:
        """Return whether the person proved their identity recently enough for an irreversible
        act."""
        return now - self.proved_at < FRESH_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An operator's request for a page or an action."""

    console: Console
    person: Person
    request: Request
    subject: str = ""
    """Name in the address, such as an order's reference. Empty if there is none."""
    format: str = "html"
    """Html, json or csv."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Fields of the form."""
    files: Sequence[ReceivedFile] = ()
    """Files of the form."""
    behind_s: int = 0
    """Age in seconds of the oldest unread delivery; 0 if there is none."""

    @property
    def file(self) -> ReceivedFile | None:
        """Return the first uploaded file in the form, or None."""
        return next(iter(self.files), None)

    @property
    def cookie(self) -> str:
        """Return the session's cookie. If this request renewed the session, return the new
        cookie."""
        renewed: str | None = getattr(self.request.state, "renewed", None)
        return renewed or self.request.cookies.get(self.console.cookie, "")

    @property
    def context(self) -> AppContext:
        return self.console.context

    @property
    def rows(self) -> int:
        """Return the number of rows to load at a time for a listing."""
        return CSV_PAGE if self.format == "csv" else ROWS

    def at(self, **params: str | None) -> "View":
        """Return a copy of this view with changed parameters of the address.

        None removes a parameter.
        """
        kept = {**self.request.query_params, **params}
        query = urlencode({name: value for name, value in kept.items() if value is not None})
        scope = {**self.request.scope, "query_string": query.encode()}
        return replace(self, request=Request(scope))

    async def job(
        self, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]], mark: str = ""
    ) -> Job:
        """Begin a background job, and wait briefly for its end.

        subject  what the job is about, such as a month
        mark     text that identifies the job's input

        Raises UsageError if the job failed, or an equal job is running.
        """
        jobs = self.console.jobs
        job = jobs.begin(kind, subject, by=self.person.name, work=work, mark=mark)
        await jobs.wait(job)
        return job

    async def shared_job(
        self, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]]
    ) -> Job:
        """Return a job of this kind, which all operators share.

        Raises UsageError if the job failed.
        """
        jobs, mark = self.console.jobs, await last_done(self.context)
        job = jobs.shared(kind, subject, by=self.person.name, mark=mark, work=work)
        await jobs.wait(job)
        return job

    def word(self, name: str) -> str | None:
        """Return a parameter of the address, or None for an empty one."""
        return composed(self.request.query_params.get(name, "")) or None

    def needed(self, name: str) -> str:
        """Return a parameter of the address. Raise UsageError if the parameter is missing."""
        return stated(name, self.word(name))

    def choice(self, name: str, among: Mapping[Word, Any] | tuple[Word, ...]) -> Word | None:
        """Return a parameter that must be one of the values in `among`.

        Raises UsageError for any other value.
        """
        word = self.word(name)
        if word is not None and word not in among:
            raise UsageError(f"{name} is none of: {', '.join(among)}")
        return next((each for each in among if each == word), None)

    def filters(self, known: Filters) -> dict[str, Any]:
        """Return the value of each known filter.

        Raises UsageError for a value that is not allowed.
        """
        return {
            name: self.word(name) if among is None else self.choice(name, among)
            for name, among in known.items()
        }

    def number(self, name: str) -> int | None:
        """Return a parameter as a whole number, or None. Raise UsageError for other text."""
        given = self.word(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 18):
            raise UsageError(f"{name} must be a whole number")
        return int(given)

    def instant(self, name: str) -> Instant | None:
        """Return a moment that a person typed. Raises UsageError for other text."""
        given = self.word(name)
        if given is None:
            return None
        try:
            return typed_instant(given.strip(), self.context.calendar_zone)
        except ValueError as error:
            raise UsageError(str(error)) from None


def stated(name: str, value: T | None) -> T:
    """Return `value`. Raise UsageError if `value` is None, because the parameter `name` is
    missing."""
    if value is None:
        raise UsageError(f"the address lacks the parameter {name}")
    return value


Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Page of the console."""

    path: str
    """Address of the page, perhaps with `/{subject}` at its end."""
    title: str
    reads: Reading
    """Permission that a role needs to see the page."""
    load: Callable[[View], Awaitable[Document | Response]]
    """Returns the document or a download. Raises NotFoundError, and UsageError for invalid
    parameters."""
    rows: str = ""
    """Name of the document's list for the .csv file. If empty, it is the name of the function
    `load`."""
    _: KW_ONLY
    template: str = ""
    """Template of the page. By default named like `load`."""
    group: str = ""
    """Group in the navigation menu. Empty for the top level."""
    live: bool = False
    """True if the page reloads when something arrives."""
    typed: tuple[str, ...] = ()
    """Parameters that a person types into a form."""
    form_on: str = ""
    """Page with the form for `typed`. Empty for this page."""
    following: Mapping[str, str] = field(default_factory=lambda: {"next": "before"})
    """Parameters of the next page's address, by the document's member with the value. None on the
    last page."""

    @property
    def _name(self) -> str:
        return self.load.__name__.removesuffix("_document")

    @property
    def template_name(self) -> str:
        return self.template or f"{self._name}.html"

    @property
    def rows_name(self) -> str:
        return self.rows or self._name

    @property
    def listed(self) -> bool:
        """Return whether the page is in the navigation menu."""
        return "{subject}" not in self.path


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a form, other than the reason for the action."""

    name: str
    label: str
    _: KW_ONLY
    kind: Literal["line", "area", "password", "file", "files", "hidden"] = "line"
    """One line or a choice, several lines, a new password, one file, several files, or a hidden
    value."""
    choices: tuple[tuple[str, str], ...] = ()
    """Value and label of each choice. Empty for free text."""
    value: str = ""
    """Initial value."""
    hint: str = ""
    """Help text beside the field."""
    required: bool = True
    """True if the field must be filled in."""
    echo: bool = True
    """True if a refused form shows the value again. False if it can be a phone number."""


PROPOSE: Final = "Propose it"


class Form:
    """Content of an action's form.

    back      page that led to the form
    lines     sentences about money and consequences
    ready     whether the form can be submitted
    reason    whether the form asks for a reason
    why       label of the reason
    password  whether the form asks for the password again
    preview   whether submitting only shows a preview
    button    text of the button; empty for the action's own text
    columns, rows  table above the fields
    picture, secret  a secret that only this person may see, as a QR code and as text
    passkey  options for the browser's passkey request, in JSON
    """

    def __init__(
        self,
        subject: str,
        back: str,
        *lines: str,
        ready: bool = True,
        reason: bool = True,
        why: str = "Why",
        password: bool = False,
        fields: tuple[Field, ...] = (),
        preview: bool = False,
        button: str = "",
        columns: tuple[str, ...] = (),
        rows: tuple[tuple[str, ...], ...] = (),
        picture: Markup | None = None,
        secret: str = "",
        passkey: str = "",
    ) -> None:
        self.subject, self.back, self.lines = subject, back, lines
        self.ready, self.reason, self.why, self.password = ready, reason, why, password
        self.fields, self.preview, self.button = fields, preview, button
        self.columns, self.rows = columns, rows
        self.picture, self.secret, self.passkey = picture, secret, passkey


class ActionResult:
    """Result of an action, shown once.

    back           page that the person can go to next
    secret         secret that is shown only this once
    columns, rows  table of results; the first column names the row
    """

    def __init__(
        self,
        title: str,
        back: str,
        *lines: str,
        secret: str = "",
        columns: tuple[str, ...] = (),
        rows: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.title, self.back, self.lines = title, back, lines
        self.secret, self.columns, self.rows = secret, columns, rows


@dataclass(frozen=True, slots=True)
class Act:
    """Action of the console, whose form at `/do/<name>` has the function `do_<name>`."""

    title: str
    permission: Action | Reading
    ask: Callable[[View], Awaitable[Form]]
    """Returns the form. Raises NotFoundError, and UsageError for invalid parameters."""
    do: Callable[[View, str], Awaitable[str | ActionResult | Response]]
    """Takes the action. Returns an address, a result to show at once, or a download."""
    _: KW_ONLY
    button: str = ""
    """Text of the form's button. By default the title's verb."""
    done: str = ""
    """Sentence at the top of the page with the result."""
    file: bool = False
    """True if the form uploads a file."""
    download: bool = False
    """True if the action only makes a file. The form can then be sent again."""
    typed: tuple[str, ...] = ()
    """Parameters that a person types into a form."""
    form_on: str = ""
    """Page with the form for `typed`."""
    kept: bool = True
    """True if typed text is stored while an expired session is renewed. False if it can be a phone
    number."""

    @property
    def name(self) -> str:
        return self.do.__name__.removeprefix("do_").replace("_", "-")

    @property
    def button_text(self) -> str:
        return self.button or f"{self.title.partition(' ')[0]} it"
