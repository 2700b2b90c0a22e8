"""What a page is, what it is given, and what an action is; and what jobs do (`app.core.jobs`): what
reads everything, in another process.

A page is data: an address, who may read it, a function that makes a document of JSON values, and a
template that shows the document. So the page equals its `.json`, and its `.csv` is one list of it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from app.access.operators import MAY, MAY_READ, Action, Reading, Role, last_done
from app.access.proposals import Proposals
from app.console.live import Live
from app.console.uploads import ReceivedUpload, Uploads
from app.context.context import AppContext
from app.context.work import Work
from app.core.errors import UsageError
from app.core.jobs import Job, Jobs
from app.core.zones import typed_instant
from reconcile.instants import Instant

# --- what a console's jobs do ---------------------------------------------------------------------

JobKind = Literal[
    "import", "run", "preview", "look", "bank", "withdrawal", "withdraw", "close", "approve",
    "checks",
]  # fmt: skip


# --- pages and acts -------------------------------------------------------------------------------

ROWS: Final = 50
"""Rows of a listing's page; a page of them stays under 50 KB."""

FORMS: Final = ("html", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What pages work with.

    origin         scheme and host as browsers know them
    hosts          what may stand in a request's Host header
    loopback       whether it is for this machine alone
    cookie         the name of the sessions' cookie
    mark_key       with which a form that looks first marks what it looked at; of this process alone
    work           runs what reads everything; a real console does so in another process
    reads_rules    likewise, with a time limit: a TOML parser's time grows with the square
    approve        (proposal, by whom, why), for what takes long
    transport      by which test events go; None: by the network
    """

    context: AppContext
    origin: str
    hosts: frozenset[str]
    loopback: bool
    cookie: str
    mark_key: str = field(repr=False)
    proposals: Proposals
    work: Work
    reads_rules: Work
    approve: Callable[[str, str, str], Awaitable[None]]
    jobs: Jobs
    uploads: Uploads
    live: Live
    transport: httpx2.AsyncBaseTransport | None = None

    @property
    def secure(self) -> bool:
        """Whether browsers come by https."""
        return self.origin.startswith("https://")


_ROLES: Final[Mapping[str, frozenset[Role]]] = {
    str(name): roles for name, roles in (*MAY.items(), *MAY_READ.items())
}


def roles_of(what: Action | Reading) -> frozenset[Role]:
    """The roles that may do it, or look at it."""
    return _ROLES[what]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who is signed in. It is the session that says so, and nothing else."""

    name: str
    role: str

    def may(self, action: Action | Reading) -> bool:
        """Whether their role may do it, or look at it."""
        return self.role in _ROLES[action]

    def may_read(self, reading: Reading) -> bool:
        """Whether their role may look at it."""
        return self.role in MAY_READ[reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One look at a page: who looks, and at what. `subject` is what the address names, if it names
    anything; `given` are the fields of a form that was sent, `file` its file."""

    console: Console
    person: Person
    request: Request
    subject: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    file: ReceivedUpload | None = None

    @property
    def context(self) -> AppContext:
        """The open store, with policy and clock."""
        return self.console.context

    async def shared_job(
        self, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]]
    ) -> Job:
        """A job whose result all who ask share: the one that is under way or still good, else it is
        begun with `work`. It is good for GOOD_FOR, where nobody did anything since: an import, a
        decision or a run is an entry of the trail. Waits a little for its end.

        Raises UsageError where it came to nothing.
        """
        jobs, mark = self.console.jobs, await last_done(self.context)
        job = jobs.shared(kind, subject, by=self.person.name, mark=mark, work=work)
        await jobs.wait(job)
        return job

    def word(self, name: str) -> str | None:
        """A parameter of the address; None where it is left out or empty."""
        return self.request.query_params.get(name) or None

    def needed(self, name: str) -> str:
        """A parameter without which there is nothing to look at. Raises UsageError."""
        word = self.word(name)
        if word is None:
            raise UsageError(f"{name}: say which")
        return word

    def choice(self, name: str, among: Mapping[str, Any] | tuple[str, ...]) -> str | None:
        """A parameter that is one of some words. Raises UsageError for another."""
        word = self.word(name)
        if word is not None and word not in among:
            raise UsageError(f"{name} is none of: {', '.join(among)}")
        return word

    def number(self, name: str) -> int | None:
        """A parameter that is a whole number. Raises UsageError for anything else."""
        given = self.word(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 18):
            raise UsageError(f"{name} is a whole number")
        return int(given)

    def instant(self, name: str) -> Instant | None:
        """A parameter that is a moment, such as a person types it. Raises UsageError for anything
        else."""
        given = self.word(name)
        try:
            return (
                None if given is None else typed_instant(given.strip(), self.context.calendar_zone)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page.

    path      its address; one that ends in `/{subject}` names a thing
    reads     what a role must be allowed to look at
    load      makes the document, or a download. Raises NotFoundError, and UsageError for
              parameters that are off
    template  shows the document, which it knows as `doc`
    rows      the list of the document that is its .csv
    menu      its word in the navigation; None: it is reached from others
    group     the part of the navigation that it stands in; empty: its own word is at the top
    live      whether it is loaded again when something arrived
    typed     parameters of the address that are typed into a form: after a mistake in one, the page
              with the form is shown, with what was typed and the sentence
    form_on   the page with that form; empty: the same one
    """

    path: str
    title: str
    reads: Reading
    load: Callable[[View], Awaitable[Document | Response]]
    template: str
    rows: str
    menu: str | None = None
    group: str = ""
    live: bool = True
    typed: tuple[str, ...] = ()
    form_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a form beside the reason.

    kind     a line of text (or a choice), some lines, a file, or what the form sends back unseen
    choices  what may be chosen, as (value, word); none: it is written
    value    what stands in it at first
    hint     what may be written there
    echo     whether what was sent stands in it again; not what may be somebody's number
    """

    name: str
    label: str
    kind: Literal["line", "area", "file", "hidden"] = "line"
    choices: tuple[tuple[str, str], ...] = ()
    value: str = ""
    hint: str = ""
    required: bool = True
    echo: bool = True


PROPOSE: Final = "Propose it"
"""What the button of a form says that does nothing before another person approves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a form says before it is sent: what it is about, and what it will do.

    lines    sentences: the money and the consequence
    ready    whether there is anything to do
    reason   whether a reason is asked for, and `why` its label
    password whether the person's password is asked for once more: what is done cannot be taken back
    back     the page from which it came
    fields   what else is asked for
    preview  whether what was sent only looked: nothing is done, and it is asked again
    button   what the form's button says; empty: the action's
    """

    subject: str
    lines: tuple[str, ...]
    back: str
    ready: bool = True
    reason: bool = True
    why: str = "Why"
    password: bool = False
    fields: tuple[Field, ...] = ()
    preview: bool = False
    button: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Rows of plain texts under their headings; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What an action found or made, shown once as the answer to its form.

    lines   sentences
    secret  what is not to be seen again
    back    where to go on
    table   what it found of each of several things
    """

    title: str
    lines: tuple[str, ...]
    back: str
    secret: str = ""
    table: PageTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One action: a form at `/do/<name>`, which does it when it is sent.

    permission  what a role must be allowed to do; of an action that changes nothing, what it must
                be allowed to look at
    ask         what the form says. Raises as a page's `load` does
    do          does it, with the reason and the view's `given`; returns the page that shows the
                result, what is shown at once, or a download
    done        what that page says first
    file        whether its form has a file
    download    whether it comes to a file, and changes nothing: the form stays on the screen, and
                may be sent again, which is one more entry of the trail
    typed       parameters of the address that are typed into a form on the page `form_on`, as of
                a page
    kept        whether what was typed is kept over a sign-in where the session had ended; not
                where it may be somebody's number
    """

    name: str
    title: str
    button: str
    permission: Action | Reading
    ask: Callable[[View], Awaitable[Asked]]
    do: Callable[[View, str], Awaitable[str | ActionResult | Response]]
    done: str = ""
    file: bool = False
    download: bool = False
    typed: tuple[str, ...] = ()
    form_on: str = ""
    kept: bool = True
