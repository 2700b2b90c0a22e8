"""Commands for local testing: `trigger` and `listen`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from app.cli import printing, running
from app.core.errors import UnreachableError, UsageError
from app.core.text import counted

if TYPE_CHECKING:
    import httpx2

    from app.config.settings import Settings
    from app.core.http import Exchange
    from app.core.recorded import Recorded
    from app.providers.examples import Example, WantedEvent
    from app.providers.kit import Signed
    from app.providers.source import Source
    from reconcile.money import Money

SERVE: Final = "http://127.0.0.1:8080"

DEFAULT_PORT: Final = 8085
MAX_SHOWN: Final = 300


ToOption = Annotated[
    str | None,
    typer.Option(help="The URL to send to. Default: http://127.0.0.1:8080/webhooks/SOURCE."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Allow an address outside this machine.")]


@asynccontextmanager
async def sending() -> AsyncIterator[httpx2.AsyncClient]:
    """Open the HTTP client that forwards requests."""
    from app.core.http import outgoing_client
    from app.core.recorded import SEND_LIMIT_S

    async with outgoing_client(timeout_s=SEND_LIMIT_S) as client:
        yield client


def stays_here(to: str) -> bool:
    from app.core.hosts import is_loopback

    return is_loopback(urlsplit(to).hostname or "")


def check_target(to: str, *, yes: bool, what: str) -> None:
    """Raise UsageError for an invalid address, or for another machine's address without `yes`."""
    from app.core.recorded import target_of

    target_of(to, "")
    if not yes and not stays_here(to):
        raise UsageError(
            f"{to} is outside this machine, and {what} would be sent there: add --yes to allow it"
        )


def tell_answer(answer: Exchange, *, to: str) -> None:
    """Print an HTTP answer in one line. Raise UnreachableError without an answer, and exit with 1
    after a refusal."""
    if answer.status is None:
        why = (answer.problem or "").replace("_", " ")
        trusted = ""
        if to.startswith("https:"):
            trusted = ", and that this machine trusts its certificate"
        raise UnreachableError(
            f"{to} does not answer ({why}): check that the server runs and listens at this "
            f"address{trusted}"
        )
    body = answer.body.decode("utf-8", "replace").strip()
    cut = "…" if len(body) > MAX_SHOWN else ""
    printing.say(f"{answer.status} {body[:MAX_SHOWN]}{cut}".rstrip())
    if not answer.taken:
        raise typer.Exit(1)


# --- trigger --------------------------------------------------------------------------------------


def trigger(
    provider: Annotated[str, typer.Argument(help="A shipped profile's name.")],
    event: Annotated[
        str | None,
        typer.Argument(
            help="The kind of event, as the provider names it. Default: list the kinds."
        ),
    ] = None,
    order: Annotated[str | None, typer.Option(help="The order that the event is about.")] = None,
    session: Annotated[
        str | None, typer.Option(help="The session, if the provider's events name no order.")
    ] = None,
    amount: Annotated[
        str | None, typer.Option(help="Amount in major units, such as 1500.00.")
    ] = None,
    currency: Annotated[
        str | None, typer.Option(help="Currency, such as KES. Default: as in the example event.")
    ] = None,
    to: ToOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="The source whose secret signs the event. Needed if several sources have the "
            "profile PROVIDER."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="When the event happened, such as 2026-11-20T10:00:00Z. Default: now."),
    ] = None,
    yes: YesOption = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Send an event of a provider's documented shape, signed with the configured secret.

    The command works only in the sandbox. To repeat an event as providers do, with equal body and
    new signature, repeat the command with the same --at. Without --at, only the event's id stays
    equal. The exit code is 1 if the service refuses the event.
    """
    from app.providers.connecting import names_no_order
    from app.providers.examples import WantedEvent, find_example
    from app.providers.profile import load_profile

    load_profile(provider)
    if event is None:
        _list_events(provider, form)
        return
    example = find_example(provider, event)
    settings, signer = _signer(provider, source)
    address = to or f"{SERVE}{signer.path}"
    check_target(address, yes=yes or not _sends_its_secret(signer), what="the secret itself")
    money = _money(amount, currency)
    reference = order
    if reference is None and session is None and signer.profile.event.order:
        reference = _new_reference()
    wanted = WantedEvent(
        order=reference, session=session, amount=money, at=printing.moment(at, "--at")
    )
    signed = _signed(signer, settings, example, wanted, address=address)
    shown = to or f"{SERVE}{signer.shown_path}"
    printing.note(f"{example.word} of {reference or session or 'no order'} to {shown}")
    _post(signed, method=example.method, to=address)
    if _names_no_order(signer, signed, example):
        printing.note(names_no_order(signer.profile))
    if signer.profile.unconfirmed:
        printing.note(
            "The order stays pending: this provider must confirm each event, and does not know "
            "this made-up event."
        )


def _list_events(provider: str, form: printing.Format) -> None:
    from app.providers.examples import examples_of

    known = examples_of(provider)
    rows = [{"event": each.word, "name": each.name, "source": each.source} for each in known]
    printing.emit(rows, columns=("event", "name", "source"), form=form)


def _sends_its_secret(signer: Source) -> bool:
    from app.providers.schemes import TOKENS

    return signer.profile.signature.mac in TOKENS


def _signer(provider: str, given: str | None) -> tuple[Settings, Source]:
    from app.config.load import load_settings
    from app.context.configured import compile_sources

    settings = load_settings()
    if settings.environment != "sandbox":
        raise UsageError(
            "made-up events are allowed only in a sandbox: set "
            "TALLYHOOK_ENVIRONMENT=sandbox, or use another installation"
        )
    names = [n for n, each in settings.sources.items() if each.profile == provider]
    if given is not None:
        names = [n for n in settings.sources if n == given.lower()]
    if len(names) != 1:
        known = ", ".join(settings.sources) or "none"
        raise UsageError(
            f"give --source with one of {', '.join(names)}"
            if names
            else f"this source is not configured (configured: {known}). Run `tallyhook connect "
            f"{provider}` to add it"
        )
    return settings, compile_sources(settings)[names[0]]


def _money(amount: str | None, currency: str | None) -> Money | None:
    from reconcile.money import MoneyError, from_major

    if amount is None and currency is None:
        return None
    if amount is None or currency is None:
        raise UsageError("give both --amount and --currency, such as 1500.00 and KES")
    try:
        return from_major(amount, currency)
    except MoneyError as error:
        raise UsageError(f"--amount {error}") from None


def _new_reference() -> str:
    from app.core.clock import SystemClock
    from app.core.ids import new_id

    return new_id("TEST-", SystemClock().now())[:20].upper()


def _signed(
    signer: Source, settings: Settings, example: Example, wanted: WantedEvent, *, address: str
) -> Signed:
    from app.core.clock import SystemClock
    from app.providers.examples import shape_event

    path = urlsplit(address).path
    known_as = f"{settings.public_url}{path}" if settings.public_url else address
    return shape_event(signer, example, wanted, now=SystemClock().now(), url=known_as)


def _names_no_order(signer: Source, signed: Signed, example: Example) -> bool:
    from app.core.reading import Unreadable
    from app.providers.request import Incoming

    headers = [(name.lower().encode(), value.encode()) for name, value in signed.headers]
    incoming = Incoming(headers, signed.body, method=example.method, url=signed.url)
    try:
        reading = signer.read(incoming, digest="0" * 64)
    except Unreadable:
        return False
    return any(event.order is None and event.claim != "ignored" for event in reading.events)


def _post(signed: Signed, *, method: str, to: str) -> None:
    from app.core.recorded import Recorded, send_on

    query = urlsplit(signed.url).query
    request = Recorded(
        method=method,
        url=f"?{query}" if query else "",
        headers=signed.headers,
        body=signed.body,
    )

    async def post() -> Exchange:
        async with sending() as client:
            return await send_on(client, request, to)

    tell_answer(running.run_loop(post()), to=to)


# --- listen ---------------------------------------------------------------------------------------


def listen(
    forward: Annotated[
        str,
        typer.Option(
            help=("The URL to forward to. If it has a path, that path replaces the request's path.")
        ),
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Listen here.")] = DEFAULT_PORT,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", help="Send the requests of this file, then exit. Do not listen."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Append received requests with their bodies to this file. --from can send them."
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Forward the requests that a tunnel or provider sends to this command, with unchanged bodies
    and headers.

    The command listens only on 127.0.0.1. Let a tunnel of your choice send requests to this
    address. With --from, the command sends a file's requests instead, and exits with 1 if a request
    was not accepted.
    """
    check_target(forward, yes=yes, what="the received requests")
    if from_file is not None:
        if record is not None:
            raise UsageError("--record and --from cannot be combined: leave one out")
        _send_file(from_file, forward)
        return
    with ExitStack() as opened:
        file = None if record is None else opened.enter_context(_appending(record))
        running.run_loop(_listening(forward, port=port, file=file))


async def _listening(forward: str, *, port: int, file: IO[str] | None) -> None:
    from app.core.recorded import line_of
    from app.sandbox.listening import build_listener
    from app.sandbox.server import serve_sandbox

    def show(request: Recorded, answer: Exchange) -> None:
        printing.say(
            f"{request.method} {request.url.partition('?')[0]} {answer.problem or answer.status}"
        )
        if file is not None:
            file.write(line_of(request) + "\n")
            file.flush()

    async with sending() as client:
        app = build_listener(forward, client=client, on_exchange=show)
        printing.note(f"Listening on http://127.0.0.1:{port}, forwarding to {forward}")
        await serve_sandbox(app, port=port)


def _send_file(path: Path, forward: str) -> None:
    from app.core.recorded import requests_in, send_on

    async def send(file: IO[bytes]) -> tuple[int, int]:
        sent = refused = 0
        async with sending() as client:
            for request in requests_in(file, str(path)):
                answer = await send_on(client, request, forward)
                if answer.status is None:
                    tell_answer(answer, to=forward)
                printing.say(f"{request.method} {request.url.partition('?')[0]} {answer.status}")
                sent += 1
                refused += not answer.taken
        return sent, refused

    try:
        with path.open("rb") as file:
            sent, refused = running.run_loop(send(file))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    printing.note(f"Sent {counted(sent, 'request')}: {refused:,} not accepted.")
    if refused:
        raise typer.Exit(1)


@contextmanager
def _appending(path: Path) -> Iterator[IO[str]]:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def register(application: typer.Typer) -> None:
    """Add the commands `trigger` and `listen`."""
    application.command(
        epilog="Example: tallyhook trigger stripe payment_intent.succeeded --order ORD-1"
    )(trigger)
    application.command(
        epilog="Example: tallyhook listen --forward http://127.0.0.1:8080/webhooks/stripe"
    )(listen)
