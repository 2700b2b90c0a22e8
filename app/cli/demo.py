"""`tallyhook demo`: the whole system on this machine, from a customer's phone to an explanation.

Three processes: the service, the simulated provider, and this one, which is the shop. It places
an order for each scenario, opens its checkout session, waits until the provider has delivered all
it ever will, and compares each order's ledger with the provider's own account of what really
happened. Everything crosses real HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import socket
from time import monotonic
from typing import Final

import httpx2

from app.access.tokens import issue_token
from app.bootstrap import open_desk
from app.cli import demo_play as shop
from app.cli.children import Child, address_of, listener_on
from app.cli.demo_told import PATH, SECRET, Told, listening
from app.cli.output import note
from app.config.load import load_settings
from app.core.errors import UsageError
from app.core.logs import configure_logging
from app.core.text import counted
from app.receiving.context import Desk
from app.sandbox.settings import SANDBOX_SECRET, SANDBOX_TOKEN

FOLDER: Final = Path("var/demo")

UNIT_S: Final = 0.25
"""Seconds in one unit of a scenario. A session lives 20 units: a run takes 8 s."""

HOST: Final = "127.0.0.1"


async def play(*, once: bool) -> int:
    """Play all scenarios. Returns 0 when every one ended as it must, else 1."""
    _take_folder()
    playing = asyncio.current_task()
    assert playing is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    began = monotonic()
    try:
        with (
            listener_on(8080) as service,
            listener_on(8090) as provider,
            listener_on(8070) as own,
            (FOLDER / "shop.log").open("w") as log,
        ):
            configure_logging(format="json", stream=log)
            return await _run((service, provider, own), once=once, began=began)
    finally:
        (FOLDER / "pid").unlink(missing_ok=True)


def _take_folder() -> None:
    """Empty the demo's folder, unless a demo that still runs is using it."""
    mark = FOLDER / "pid"
    if mark.exists() and _is_running(int(mark.read_text())):
        raise UsageError(f"a demo is running here (process {mark.read_text()}); stop it first")
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


async def _run(sockets: tuple[socket, socket, socket], *, once: bool, began: float) -> int:
    ports = [address_of(each)[1] for each in sockets]
    environ = _environ(*ports)
    settings = load_settings(environ, serving=True)
    service = Child("service", ["serve"], listener=sockets[0], folder=FOLDER, environ=environ)
    words = _provider_words(ports[0])
    provider = Child("provider", words, listener=sockets[1], folder=FOLDER, environ={})
    told = Told()
    async with (
        listening(told, sockets[2]),
        service,
        provider,
        httpx2.AsyncClient(timeout=shop.ANSWER_S, trust_env=False) as http,
    ):
        note(f"Starting the service and the simulated provider; their logs are in {FOLDER}")
        urls = [f"http://{HOST}:{port}" for port in ports[:2]]
        for child, url in ((service, urls[0] + "/readyz"), (provider, urls[1] + "/livez")):
            await shop.until(_answering(http, url), what=f"the {child.name}", watch=child.check)
        async with shop.interrupted_first(), open_desk(settings, purpose="writing") as desk:
            token = await issue_token(desk, name="demo-shop")
            party = shop.Party(service=urls[0], provider=urls[1], token=token)
            played = await _play(desk, http, party)
        await shop.until(lambda: told.knows(played), what="the last notification")
        _print(played, await shop.verdicts(http, party), monotonic() - began)
        print(_told(told, played), flush=True)
        if not once:
            await _stay(party, (service, provider))
    return 0 if all(each.right for each in played) and not told.refused else 1


async def _stay(party: shop.Party, servers: Sequence[Child]) -> None:
    """Until Ctrl-C or SIGTERM, which from here on is the normal end. Raises UnreachableError when a
    server ended by itself."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    _invite(party)
    end = asyncio.create_task(told.wait())
    ended = [asyncio.create_task(each.ended()) for each in servers]
    await asyncio.wait([end, *ended], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([end], timeout=shop.SAME_MOMENT_S)
    for task in (end, *ended):
        task.cancel()
    if not told.is_set():
        for each in servers:
            each.check()


def _answering(http: httpx2.AsyncClient, url: str) -> shop.Ready:
    return lambda: shop.answers(http, url)


async def _play(desk: Desk, http: httpx2.AsyncClient, party: shop.Party) -> list[shop.Played]:
    note("Placing an order for each scenario and opening its checkout session")
    last = await shop.place_orders(http, party)
    note("The simulated customers are paying, or not; waiting for the last webhook and deadline")
    await shop.wait_for_end(desk, http, party, last)
    played = await shop.compare(http, party)
    await shop.until(
        lambda: shop.published_as_folded(http, party, played),
        what="the publishing of every outcome",
    )
    return played


def _environ(service_port: int, provider_port: int, shop_port: int) -> dict[str, str]:
    """The demo's settings, also written to a file that later commands can use."""
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


def _print(played: Sequence[shop.Played], verdicts: Mapping[str, int], seconds: float) -> None:
    for each in played:
        print(each.line())
    right = sum(each.right for each in played)
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"\n{right} of {len(played)} scenarios ended as the provider's truth file says.")
    print(
        f"{counted(sum(verdicts.values()), 'delivery', 'deliveries')} in {seconds:.0f} s: {kinds}.",
        flush=True,
    )


def _told(told: Told, played: Sequence[shop.Played]) -> str:
    if told.refused:
        refused = counted(told.refused, "notification")
        return f"{refused} reached the shop with a wrong signature."
    started = f"The shop started {len(played)} payments by its own call"
    return f"{started} and was notified of each outcome, signed."


def _invite(party: shop.Party) -> None:
    """The addresses to open, and the commands to try."""
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
  the door    {config} .venv/bin/tallyhook deliveries list
  the proof   {config} .venv/bin/tallyhook prove --all
  the truth   {party.provider}/sandbox/truth""",
        flush=True,
    )
