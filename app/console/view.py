"""Types of pages and actions, and the console with what they use.

A page is data: an address, a permission, a function that returns a document of JSON values, and a
template that renders the document. So the page and its `.json` have the same content, and its
`.csv` is one list of the document.
"""

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
"""Number of rows on a page of a listing. They stay under 50 KB."""

CSV_PAGE: Final = 5_000
"""Number of rows that are loaded at a time for a listing's CSV, which contains all rows."""

FORMATS: Final = ("html", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Resources that pages and actions use.

    origin       scheme and host as browsers see them
    hosts        allowed values of a request's Host header
    loopback     whether only this machine can reach the console
    cookie       name of the session cookie
    mark_key     key that signs marks of previews; valid only in this process
    work         runner of a job's function, usually in another process
    makes        runner like `work`, for a document that a person waits for; imports never delay it
    reads_rules  runner like `work`, with a time limit, because a TOML parser's time may grow with
                 the square of the text's length
    approve      function that approves a proposal whose act takes long; its arguments are the
                 proposal's id, the approver, the reason, and the text that the approver typed again
    company      provider of the company's accounts; None if people sign in with a password
    transport    replacement of the network for test events; None to use the network
    """

    context: AppContext
    origin: str
    hosts: frozenset[str]
    loopback: bool
    cookie: str
    mark_key: str = field(repr=False)
    proposals: Proposals
    work: Work
    makes: Work
    reads_rules: Work
    approve: Callable[[str, str, str, str], Awaitable[None]]
    jobs: Jobs
    uploads: Uploads
    live: Live
    company: CompanyProvider | None = None
    transport: httpx2.AsyncBaseTransport | None = None

    @property
    def secure(self) -> bool:
        return self.origin.startswith("https://")


T = TypeVar("T")
Word = TypeVar("Word", bound=str)

Filters = Mapping[str, tuple[str, ...] | None]
"""Filters of a list, with the allowed values of each; None allows any text."""

ROLES_OF: Final[Mapping[str, frozenset[Role]]] = {
    str(name): roles for name, roles in (*MAY.items(), *MAY_READ.items())
}
"""Roles that may take each action, or read each kind of data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The signed-in operator of a session, with how and when they proved their identity.

    began_at  beginning of the session, which does not change when the cookie is renewed
    """

    name: str
    role: str
    began_at: Instant
    way: Way
    proved_at: Instant

    def may(self, what: Action | Reading) -> bool:
        """Return whether the person's role may take an action or read something."""
        return self.role in ROLES_OF[what]

    def proved_within(self, now: Instant) -> bool:
        """Return whether the proof of identity is recent enough for an irreversible act."""
        return now - self.proved_at < FRESH_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request of an operator, for a page or with a submitted form.

    subject  name of the page's subject in the address, if any
    format   html, json or csv
    given    fields of the submitted form
    behind_s age in seconds of the oldest unread delivery; 0 if all are read
    """

    console: Console
    person: Person
    request: Request
    subject: str = ""
    format: str = "html"
    given: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[ReceivedFile] = ()
    behind_s: int = 0

    @property
    def file(self) -> ReceivedFile | None:
        """Return the uploaded file in the form; None if the person chose no file."""
        return next(iter(self.files), None)

    @property
    def cookie(self) -> str:
        """Return the session's cookie, which is new if this request renewed the session."""
        renewed: str | None = getattr(self.request.state, "renewed", None)
        return renewed or self.request.cookies.get(self.console.cookie, "")

    @property
    def context(self) -> AppContext:
        return self.console.context

    @property
    def rows(self) -> int:
        """Return the number of rows of a listing to load at a time."""
        return CSV_PAGE if self.format == "csv" else ROWS

    def at(self, **params: str | None) -> "View":
        """Return a copy of this view with changed address parameters. A parameter with the value
        None is removed."""
        kept = {**self.request.query_params, **params}
        query = urlencode({name: value for name, value in kept.items() if value is not None})
        scope = {**self.request.scope, "query_string": query.encode()}
        return replace(self, request=Request(scope))

    async def job(
        self, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]], mark: str = ""
    ) -> Job:
        """Begin a job in the operator's name, and wait briefly for its end. Raise UsageError if the
        job failed, or if a job with this kind and subject is still running."""
        jobs = self.console.jobs
        job = jobs.begin(kind, subject, by=self.person.name, work=work, mark=mark)
        await jobs.wait(job)
        return job

    async def shared_job(
        self, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]]
    ) -> Job:
        """Return a job of any operator that is running or still valid, or else begin a job. Wait
        briefly for its end. Raise UsageError if the job failed.

        An ended job is valid for GOOD_FOR, but not after the audit trail has grown. Each import,
        decision and run adds an audit entry, and may change the result.
        """
        jobs, mark = self.console.jobs, await last_done(self.context)
        job = jobs.shared(kind, subject, by=self.person.name, mark=mark, work=work)
        await jobs.wait(job)
        return job

    def word(self, name: str) -> str | None:
        """Return a parameter of the address; None if it is missing or empty."""
        return composed(self.request.query_params.get(name, "")) or None

    def needed(self, name: str) -> str:
        """Return a parameter of the address. Raise UsageError if it is missing."""
        return stated(name, self.word(name))

    def choice(self, name: str, among: Mapping[Word, Any] | tuple[Word, ...]) -> Word | None:
        """Return a parameter that must have one of these values; None if it is missing. Raise
        UsageError for any other value."""
        word = self.word(name)
        if word is not None and word not in among:
            raise UsageError(f"{name} is none of: {', '.join(among)}")
        return next((each for each in among if each == word), None)

    def filters(self, known: Filters) -> dict[str, Any]:
        """Return a list's filters by name, with None for each missing filter. Raise UsageError for
        a value that is not allowed."""
        return {
            name: self.word(name) if among is None else self.choice(name, among)
            for name, among in known.items()
        }

    def number(self, name: str) -> int | None:
        """Return a parameter as a whole number; None if the parameter is missing. Raise UsageError
        for any other text."""
        given = self.word(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 18):
            raise UsageError(f"{name} is a whole number")
        return int(given)

    def instant(self, name: str) -> Instant | None:
        """Parse a parameter as a moment that a person typed; None if it is missing. Raise
        UsageError for any other text."""
        given = self.word(name)
        if given is None:
            return None
        try:
            return typed_instant(given.strip(), self.context.calendar_zone)
        except ValueError as error:
            raise UsageError(str(error)) from None


def stated(name: str, value: T | None) -> T:
    """Return a parameter's value. Raise UsageError if the value is None."""
    if value is None:
        raise UsageError(f"{name}: say which")
    return value


Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    path      address of the page. An address that ends in `/{subject}` names a subject; all other
              pages are in the navigation menu
    reads     permission that a role needs
    load      returns the document, or a download; raises NotFoundError, and UsageError for invalid
              parameters
    rows      name of the document's member with the rows of the page's .csv file. The file also
              contains the rows of all following pages. If empty, the name is that of `load` without
              `_document`
    following  how to load the next page: names of address parameters, by the name of the document's
               member that has the parameter's value. The member is None on the last page
    template  template that renders the document, which it names `doc`; if empty, the template named
              like `load`
    group     group in the navigation menu; empty if the page's title is at the top level
    live      whether the page reloads when something arrives
    typed     parameters that a person types into a form; after a mistake in one of them, the form's
              page is shown with the typed text and the error
    form_on   page with the form for `typed`; empty if the form is on this page
    """

    path: str
    title: str
    reads: Reading
    load: Callable[[View], Awaitable[Document | Response]]
    rows: str = ""
    _: KW_ONLY
    template: str = ""
    group: str = ""
    live: bool = False
    typed: tuple[str, ...] = ()
    form_on: str = ""
    following: Mapping[str, str] = field(default_factory=lambda: {"next": "before"})

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
    """A field of a form, in addition to the reason.

    kind     one line (or a choice), several lines, a new password, one file, several files, or a
             hidden value
    choices  (value, word) of each choice; empty for free text
    value    initial value
    echo     whether a refused form shows the value again; False if it may be a phone number
    """

    name: str
    label: str
    _: KW_ONLY
    kind: Literal["line", "area", "password", "file", "files", "hidden"] = "line"
    choices: tuple[tuple[str, str], ...] = ()
    value: str = ""
    hint: str = ""
    required: bool = True
    echo: bool = True


PROPOSE: Final = "Propose it"
"""Button of a form for an act that another person must approve."""


class Form:
    """Content of an action's form before it is submitted.

    back      page that led to the form
    lines     sentences about money and consequences
    ready     whether the form can be submitted
    reason    whether the form asks for a reason, with the label `why`
    password  whether the form asks for the password again because the action is irreversible
    preview   whether submitting the form only previews the action: the form is shown again, and
              nothing is changed
    button    text of the button; empty for the action's own text
    columns, rows  table that is shown above the fields
    picture, secret  QR code of a secret that only this person may see, and the secret
    passkey  passkey options in JSON; the browser's answer is sent in the field of this name
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
    """Result of an action, which is shown once as the answer to the action's form.

    back           page that the person can go to next
    lines          sentences
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
    """An action, with a form at `/do/<name>`. The name is that of the function `do`, without its
    prefix `do_`.

    permission  permission that a person's role needs; for an action that changes nothing, the
                permission to read
    ask         function that returns the form; it raises the same errors as a page's `load`
    do          function that takes the action with the reason and `view.given`. It returns the
                address of the page with the result, a result to show at once, or a download
    button      text of the form's button. If empty, the text is the verb of the title, such as "Pin
                it"
    done        sentence at the top of the page with the result
    file        whether the form has a file
    download    whether the action only makes a file. The form then stays open and may be sent
                again. Each time adds an entry to the audit trail
    typed, form_on  parameters that a person types into a form, and the page with the form; see
                    `Page`
    kept        whether typed text is kept while an expired session is renewed; False if the text
                may be a phone number
    """

    title: str
    permission: Action | Reading
    ask: Callable[[View], Awaitable[Form]]
    do: Callable[[View, str], Awaitable[str | ActionResult | Response]]
    _: KW_ONLY
    button: str = ""
    done: str = ""
    file: bool = False
    download: bool = False
    typed: tuple[str, ...] = ()
    form_on: str = ""
    kept: bool = True

    @property
    def name(self) -> str:
        return self.do.__name__.removeprefix("do_").replace("_", "-")

    @property
    def button_text(self) -> str:
        return self.button or f"{self.title.partition(' ')[0]} it"
