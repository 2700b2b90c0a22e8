"""The command `tallyhook demo`: the whole system on one machine."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.access.sessions import demo_link
from app.access.tokens import issue_token
from app.cli import printing
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.child_processes import end_of
from app.core.clock import SystemClock
from app.core.errors import TallyhookError, UnreachableError, UsageError
from app.core.http import asked_to_wait
from app.core.logs import configure_logging
from app.core.process import why_ended
from app.core.text import counted
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.sandbox.scenarios import SCENARIOS, Scenario
from app.sandbox.settings import SANDBOX_SECRET, SANDBOX_TOKEN
from app.wiring.opening import open_context
from reconcile.instants import EARLIEST, SECOND, Instant, parse_instant

AMOUNT: Final = "1500.00"
CURRENCY: Final = "KES"

PATIENCE_S: Final = 300.0
"""Maximum seconds to wait for one condition."""

ANSWER_S: Final = 30.0
"""Maximum seconds to wait for one HTTP answer."""

AGAIN: Final = (429, 503)
"""HTTP statuses after which a call is repeated, as Retry-After says."""

LOOK_S: Final = 0.1

SAME_MOMENT_S: Final = 1.0

Ready = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Addresses and API token of the demo's service and provider."""

    service: str
    provider: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Result of one scenario: the ledger and the provider's result."""

    scenario: Scenario
    ledger: dict[str, Any]
    truth: dict[str, Any]

    @property
    def right(self) -> bool:
        """Check if the ledger has the right outcome and amounts."""
        if self.ledger["outcome"] != self.truth["outcome"]:
            return False
        if self.ledger["outcome"] == "unresolved":
            return not self.ledger["fulfillable"]
        totals = self.ledger["totals"]
        sides = ("captured", "refunded", "lost")
        return all(totals.get(side) == self.truth.get(side) for side in sides)

    def line(self) -> str:
        """Return the scenario's result as one line for people."""
        first: str = self.ledger["explanation"][0]
        words = first.partition(" [")[0]
        codes = ", ".join(dict.fromkeys(f["code"] for f in self.ledger["findings"]))
        name = f"{self.scenario.ending} {self.scenario.name}"
        line = (
            f"{'ok   ' if self.right else 'WRONG'} {name:<30} {self.ledger['outcome']:<10} {words}"
        )
        if not self.right:
            line += f" — really {self.truth['outcome']}, captured {self.truth['captured']}"
        return line + (f" ({codes})" if codes else "")


def order_of(scenario: Scenario) -> str:
    return f"DEMO-{scenario.ending}"


async def until(ready: Ready, *, what: str, watch: Callable[[], None] = lambda: None) -> None:
    """Call `ready` until the result is true. Raise UnreachableError after PATIENCE_S seconds."""
    ends = monotonic() + PATIENCE_S
    while True:
        watch()
        if await ready():
            return
        if monotonic() > ends:
            raise UnreachableError(f"gave up after {PATIENCE_S:g} s of waiting for {what}")
        await asyncio.sleep(LOOK_S)


async def answers(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx2.TransportError:
        return False


async def call(
    http: httpx2.AsyncClient, method: str, url: str, *, again: Collection[int] = AGAIN, **words: Any
) -> httpx2.Response:
    """Send a request, and repeat it after temporary errors. Raise UnreachableError after PATIENCE_S
    seconds."""
    ends = monotonic() + PATIENCE_S
    while True:
        try:
            answer = await http.request(method, url, **words)
        except httpx2.TransportError as error:
            why, pause = type(error).__name__, LOOK_S
        else:
            if answer.is_success and answer.status_code not in again:
                return answer
            why = f"{answer.status_code} {answer.text}"
            pause = max(asked_to_wait(answer.headers) / SECOND, LOOK_S)
            if answer.status_code not in again:
                raise UnreachableError(f"{method} {url} got the answer {why}")
        if monotonic() + pause > ends:
            raise UnreachableError(f"{method} {url} did not succeed within {PATIENCE_S:g} s: {why}")
        await asyncio.sleep(pause)


async def place_orders(http: httpx2.AsyncClient, party: Party) -> Instant:
    """Open a session for every order. Return the last expiry time."""
    opened = await asyncio.gather(*(_place(http, party, each) for each in SCENARIOS.values()))
    return max(opened)


async def _place(http: httpx2.AsyncClient, party: Party, scenario: Scenario) -> Instant:
    order = order_of(scenario)
    await call(
        http,
        "PUT",
        f"{party.service}/api/v1/orders/{order}",
        json={"amount": AMOUNT, "currency": CURRENCY},
        headers=party.headers,
    )
    started = await call(
        http,
        "POST",
        f"{party.service}/api/v1/checkout/sessions",
        again=(202, *AGAIN),
        json={
            "order": {"reference": order, "amount": AMOUNT, "currency": CURRENCY},
            "customer": {"phone": f"2547000000{scenario.ending}"},
            "return_urls": {
                "success": "https://shop.example/paid",
                "cancel": "https://shop.example/canceled",
            },
        },
        headers=party.headers,
    )
    expires_at = started.json()["expires_at"]
    return (
        EARLIEST if expires_at is None else parse_instant(expires_at)
    )  # the call was repeated, and the order paid meanwhile


async def all_delivered(http: httpx2.AsyncClient, party: Party) -> bool:
    state = (await call(http, "GET", f"{party.provider}/sandbox/state")).json()
    return bool(state["pending_events"] == 0 and state["undelivered"] == 0)


async def wait_for_end(
    context: AppContext, http: httpx2.AsyncClient, party: Party, last: Instant
) -> None:
    """Wait until all events are delivered and every session has expired."""
    await until(lambda: all_delivered(http, party), what="the delivery of all events")
    await asyncio.sleep(max(0.0, (last - context.clock.now()) / SECOND))


async def compare(http: httpx2.AsyncClient, party: Party) -> list[Played]:
    """Return every scenario's ledger with the provider's result."""
    truths = (await call(http, "GET", f"{party.provider}/sandbox/truth")).json()
    by_order = {entry["order"]: entry for entry in truths}
    played = []
    for scenario in SCENARIOS.values():
        order = order_of(scenario)
        url = f"{party.service}/api/v1/orders/{order}"
        answer = await call(http, "GET", url, headers=party.headers)
        played.append(Played(scenario=scenario, ledger=answer.json(), truth=by_order[order]))
    return played


async def published_as_folded(
    http: httpx2.AsyncClient, party: Party, played: Sequence[Played]
) -> bool:
    """Check that the published outcomes equal the ledgers' outcomes."""
    url = f"{party.service}/api/v1/outcomes?limit=1000"
    feed = await call(http, "GET", url, headers=party.headers)
    last = {each["order"]: each["outcome"] for each in feed.json()["outcomes"]}
    return all(last.get(each.ledger["order"]) == each.ledger["outcome"] for each in played)


async def verdicts(http: httpx2.AsyncClient, party: Party) -> dict[str, int]:
    """Return the number of deliveries with each verdict."""
    text = (await call(http, "GET", f"{party.service}/metrics")).text
    counts = {}
    for line in text.splitlines():
        if line.startswith(("tallyhook_deliveries_total{", "tallyhook_deliveries_read_total{")):
            verdict = line.partition('verdict="')[2].partition('"')[0]
            counts[verdict] = int(float(line.rpartition(" ")[2]))
    counts.pop("accepted", None)  # each of them has been read, under its own verdict
    return counts


BACKLOG = 128

STOP_S = 15.0
"""Seconds after which a stopping process is killed."""


def listener_on(wanted: int) -> socket.socket:
    """Return a socket on the loopback address."""
    for port in (wanted, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            continue
        return listener
    raise UnreachableError("no port is free on the loopback address")


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the host and port of a listening socket."""
    host, port = listener.getsockname()[:2]
    return host, port


def inherited(number: int) -> socket.socket:
    """Return the listening socket of an inherited file descriptor."""
    try:
        listener = socket.socket(fileno=number)
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            listener.setblocking(False)
            return listener
        listener.detach()  # the parent process closes it
    except OSError:
        pass
    raise UsageError(f"--fd {number} is not a listening socket")


class Child:
    """Child process that serves a socket of this process."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        listener: socket.socket,
        folder: Path,
        environ: Mapping[str, str],
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        # The port is only shown in the list of processes.
        port = str(address_of(listener)[1])
        self._words = [*words, "--port", port, "--fd", str(listener.fileno())]
        self._listener = listener
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log, self._listener:  # ours: callers of a dead one get an error
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", *self._words),
                stderr=log,
                stdout=log,
                env=self._clean(),
                pass_fds=(self._listener.fileno(),),
            )
        return self

    def _clean(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
        return kept | dict(self._environ)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        await end_of(process, within_s=STOP_S, component=self.name)

    def check(self) -> None:
        """Raise UnreachableError, with the log's end, after the process's end."""
        if self._process is not None and self._process.returncode is not None:
            tail = self.log.read_text(errors="replace")[-600:].strip()
            why = why_ended(self._process.returncode)
            raise UnreachableError(f"the {self.name} ended: {why}; the end of {self.log}:\n{tail}")

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()


PATH: Final = "/payments/outcomes"

SECRET: Final = "whsec_ZGVtbyBzaG9wLCBub3QgYSBzZWNyZXQgZWl0aGVyIQ=="  # noqa: S105
"""Secret with which the demo signs notifications."""


class ShopSeen:
    """Endpoint of the demo's shop."""

    def __init__(self) -> None:
        self._source = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
        self._clock = SystemClock()
        self._last: dict[str, dict[str, Any]] = {}
        self.refused = 0

    async def outcome(self, request: Request) -> Response:
        """Receive one notification. Answer 401 if its signature is wrong."""
        body = await request.body()
        incoming = Incoming(request.headers.raw, body)
        if self._source.verify(incoming, now=self._clock.now()) is not None:
            self.refused += 1
            return Response(status_code=401)
        news = json.loads(body)["data"]
        known = self._last.get(news["order"])
        if known is None or known["id"] < news["id"]:
            self._last[news["order"]] = news
        return Response(status_code=204)

    async def knows(self, played: Sequence[Played]) -> bool:
        """Check if every order's last notification agrees with its ledger."""
        ledgers = [each.ledger for each in played]
        return all(
            self._last.get(ledger["order"], {}).get(word) == ledger[word]
            for ledger in ledgers
            for word in ("outcome", "fulfillable")
        )


class _ShopServer(uvicorn.Server):
    """HTTP server that leaves signals to the demo."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(seen: ShopSeen, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the shop's endpoint on this socket."""
    application = Starlette(routes=[Route(PATH, seen.outcome, methods=["POST"])])
    config = uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
    server = _ShopServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


FOLDER: Final = Path("var/demo")

UNIT_S: Final = 0.25
"""Duration in seconds of one time unit in a scenario."""

HOST: Final = "127.0.0.1"


async def play(*, once: bool) -> int:
    """Play all scenarios. Return 0 if every scenario ended as expected, else 1."""
    _take_folder()
    interruption = _Interruption()
    began = monotonic()
    try:
        with (
            listener_on(8080) as service,
            listener_on(8090) as provider,
            listener_on(8070) as own,
            listener_on(8081) as console,
            (FOLDER / "shop.log").open("w") as log,
        ):
            configure_logging(format="json", stream=log)
            return await interruption.or_result(
                _run((service, provider, own, console), once=once, began=began)
            )
    finally:
        (FOLDER / "pid").unlink(missing_ok=True)


class _Interruption:
    """Handler of Ctrl-C and SIGTERM that cancels the demo."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._playing = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, number)

    def _interrupt(self, number: int) -> None:
        assert self._playing is not None
        self.number = number
        self._playing.cancel()

    async def or_result(self, work: Awaitable[int]) -> int:
        """Run the work and return its exit code, or a signal's."""
        try:
            return await work
        except (asyncio.CancelledError, TallyhookError):
            with suppress(asyncio.CancelledError):
                if self.number is None:
                    await asyncio.sleep(SAME_MOMENT_S)
            if self.number is None:
                raise
            return 128 + self.number


def _take_folder() -> None:
    mark = FOLDER / "pid"
    if mark.exists() and _is_running(int(mark.read_text())):
        raise UsageError(
            f"another demo is running in this folder (process {mark.read_text()}): stop it first"
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, mode=0o700)
    mark.write_text(str(os.getpid()))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _run(sockets: tuple[socket.socket, ...], *, once: bool, began: float) -> int:
    ports = [address_of(each)[1] for each in sockets]
    environ = _environ(*ports[1:3])
    settings = load_settings(environ, serving=True)
    service = Child("service", ["serve"], listener=sockets[0], folder=FOLDER, environ=environ)
    words = _provider_words(ports[0])
    provider = Child("provider", words, listener=sockets[1], folder=FOLDER, environ={})
    seen = ShopSeen()
    async with (
        AsyncExitStack() as stack,
        listening(seen, sockets[2]),
        service,
        provider,
        httpx2.AsyncClient(timeout=ANSWER_S, trust_env=False) as http,
    ):
        printing.note(
            f"Starting the service and the simulated provider; their logs are in {FOLDER}"
        )
        urls = [f"http://{HOST}:{port}" for port in ports[:2]]
        for child, url in ((service, urls[0] + "/readyz"), (provider, urls[1] + "/livez")):
            await until(_answering(http, url), what=f"the {child.name}", watch=child.check)
        async with open_context(settings, purpose="writing") as context:
            token = await issue_token(context, name="demo-shop")
            console = None
            if not once:
                console = Child(
                    "console", ["console"], listener=sockets[3], folder=FOLDER, environ=environ
                )
                await stack.enter_async_context(console)
                await _open_console(context, http, console, port=ports[3])
            party = Party(service=urls[0], provider=urls[1], token=token)
            played = await _play(context, http, party)
        await until(lambda: seen.knows(played), what="the last notification")
        _print(played, await verdicts(http, party), monotonic() - began)
        print(_notified(seen, played), flush=True)
        if console is not None:
            await _stay(party, (service, provider, console))
    return 0 if all(each.right for each in played) and not seen.refused else 1


async def _open_console(
    context: AppContext, http: httpx2.AsyncClient, console: Child, *, port: int
) -> None:
    url = f"http://{HOST}:{port}"
    await until(_answering(http, f"{url}/sign-in"), what="the console", watch=console.check)
    print(f"Open {url}/enter#{await demo_link(context)}", flush=True)
    printing.note("This link works once, for ten minutes, on this machine.")


async def _stay(party: Party, servers: Sequence[Child]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    _invite(party)
    end = asyncio.create_task(stop.wait())
    ended = [asyncio.create_task(each.ended()) for each in servers]
    await asyncio.wait([end, *ended], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([end], timeout=SAME_MOMENT_S)
    for task in (end, *ended):
        task.cancel()
    if not stop.is_set():
        for each in servers:
            each.check()


def _answering(http: httpx2.AsyncClient, url: str) -> Ready:
    return lambda: answers(http, url)


async def _play(context: AppContext, http: httpx2.AsyncClient, party: Party) -> list[Played]:
    printing.note("Placing an order for each scenario and opening its checkout session")
    last = await place_orders(http, party)
    printing.note(
        "The simulated customers pay or give up; waiting for the last webhook and deadline"
    )
    await wait_for_end(context, http, party, last)
    played = await compare(http, party)
    await until(
        lambda: published_as_folded(http, party, played),
        what="the publishing of every outcome",
    )
    return played


def _environ(provider_port: int, shop_port: int) -> dict[str, str]:
    environ = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{FOLDER.absolute()}/tallyhook.db",
        "TALLYHOOK_SOURCES__CHECKOUT__SECRETS": SANDBOX_SECRET,
        "TALLYHOOK_CHECKOUT__BASE_URL": f"http://{HOST}:{provider_port}",
        "TALLYHOOK_CHECKOUT__TOKEN": SANDBOX_TOKEN,
        "TALLYHOOK_SHOP__URL": f"http://{HOST}:{shop_port}{PATH}",
        "TALLYHOOK_SHOP__SECRET": SECRET,
        "TALLYHOOK_PAYMENT_WINDOW_S": "5",
        "TALLYHOOK_GRACE_S": "1",
        "TALLYHOOK_LATE_AFTER_S": "2",
        "TALLYHOOK_LOG_FORMAT": "json",
    }
    lines = [f"{name}={value}\n" for name, value in environ.items()]
    (FOLDER / "tallyhook.env").write_text("".join(lines))
    return environ


def _provider_words(service_port: int) -> list[str]:
    return [
        "sandbox",
        *("--webhook-url", f"http://{HOST}:{service_port}/webhooks/checkout"),
        *("--truth", str(FOLDER / "truth.json")),
        *("--unit", str(UNIT_S)),
    ]


def _print(played: Sequence[Played], verdicts: Mapping[str, int], seconds: float) -> None:
    for each in played:
        print(each.line())
    right = sum(each.right for each in played)
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"\n{right} of {len(played)} scenarios ended as the provider's truth file says.")
    print(
        f"{counted(sum(verdicts.values()), 'delivery', 'deliveries')} in {seconds:.0f} s: {kinds}.",
        flush=True,
    )


def _notified(seen: ShopSeen, played: Sequence[Played]) -> str:
    if seen.refused:
        refused = counted(seen.refused, "notification")
        return f"{refused} reached the shop with a wrong signature."
    started = f"The shop started {len(played)} payments by its own call"
    return f"{started} and was notified of each outcome, signed."


def _invite(party: Party) -> None:
    auth = f"-H 'Authorization: Bearer {party.token}'"
    config = f"TALLYHOOK_CONFIG={FOLDER}/tallyhook.env"
    print(
        f"""
Everything stays up until Ctrl-C. Look around:
  health      {party.service}/readyz
  metrics     {party.service}/metrics
  the API     {party.service}/api/v1/openapi.json
  a ledger    curl {auth} {party.service}/api/v1/orders/DEMO-07
  the feed    curl {auth} '{party.service}/api/v1/outcomes?limit=5'
  an order    {config} .venv/bin/tallyhook orders show DEMO-07
  arrivals    {config} .venv/bin/tallyhook deliveries list
  the proof   {config} .venv/bin/tallyhook prove --all
  the truth   {party.provider}/sandbox/truth""",
        flush=True,
    )
