"""The runbook's commands, played as the page has them, in the situation that an entry describes."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from httpx2 import AsyncClient, MockTransport

from app.finance.match_rules import save_rules
from app.finance.scheduled_work import run_now, schedule_of
from app.monitoring.arrivals import LEAST, PATIENCE
from app.orders.notify_shop import GIVE_UP_AFTER, Notifier, notify_due, shop_of
from app.orders.refold import refold_until_quiet
from app.providers.profile import SHIPPED
from reconcile.instants import DAY, HOUR
from tests.api.driving import KEY, Driver, driving, environ, event, of_order, secret, signed
from tests.api.test_not_ours import paid
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run  # the fixture
from tests.console.test_reader_stopped import COMMANDS
from tests.database.builders import quiet
from tests.docs.test_nightly import TESTS
from tests.docs.test_runbook import RUNBOOK, sections, steps
from tests.orders.test_notify_shop import Shop
from tests.reconcile.build import T
from tests.waiting import soon

PROFILE: Final = SHIPPED / "checkout.toml"
ROTATED: Final = b"the key that the provider signs with now"
STATED: Final = {"amount": "1500.00", "currency": "KES"}

NIGHTLY: Final = {"SCHEDULE": "nightly | 30 2 * * * | reconcile month csv folder"}
TOLD: Final = {"SHOP__URL": "http://127.0.0.1:9/", "SHOP__SECRET": secret(ROTATED)}

Meant = Mapping[str, str]
"""Values of the page's placeholders."""


async def only_broken(driver: Driver) -> Meant:
    answer = await driver.send({**event("e1"), "occurred_at": "yesterday"})
    return {"ID": answer.json()["delivery"], "…": "a payout notice"}


async def all_unreadable(driver: Driver) -> Meant:
    await driver.send(event("e1"))
    return {"FILE": str(PROFILE)}


async def of_no_order(driver: Driver) -> Meant:
    for number in range(LEAST):
        await driver.send(of_order(f"O-{number}", f"e{number}"))
    driver.clock.put(T + PATIENCE + HOUR)
    ((delivery,),) = driver.rows("SELECT max(id) FROM deliveries")
    return {"ID": delivery}


async def of_other_shops(driver: Driver) -> Meant:
    for number in range(3):
        await driver.send(paid("north", f"e{number}"))
    return {}


async def waiting_for_a_day(driver: Driver) -> Meant:
    await save_rules(driver.context, '[accept_alone_max]\nKES = "1500.00"\n', by=None)
    payer: dict[str, Any] = {"customer": {"phone": "254711223344"}}
    await driver.send(event("e1", "pending", **payer))
    other = {"reference": "pay_2"}
    await driver.send(event("e2", order=None, session=None, payment=other, **payer))
    driver.clock.put(T + DAY)
    return {"PAYMENT": "pay_2", "REF": "ORD-1", "…": "the shop said so"}


async def refunded(driver: Driver) -> Meant:
    await driver.api("PUT", "/orders/ORD-1", json=STATED)
    for claim in ("succeeded", "refunded"):
        await driver.send(event(claim, claim))
    return {}


async def shipped_unpaid(driver: Driver) -> Meant:
    shipped = {**STATED, "fulfilled_at": "2026-11-01T00:00:00Z"}
    await driver.api("PUT", "/orders/ORD-1", json=shipped)
    return {}


async def set_aside(driver: Driver) -> Meant:
    """Have a delivery fail, until the program is upgraded."""
    fails = "BEFORE INSERT ON events WHEN NEW.event_id = 'e1' BEGIN SELECT RAISE(ABORT, 'no'); END"
    with closing(sqlite3.connect(driver.path)) as database:
        database.isolation_level = None
        database.execute(f"CREATE TRIGGER fails {fails}")
        sent = [driver.send(of_order(f"O-{number}", f"e{number}")) for number in range(2)]
        await asyncio.gather(*sent)
        await soon(lambda: driver.rows("SELECT count(*) FROM suspects WHERE aside = 1") == [(1,)])
        database.execute("DROP TRIGGER fails")
    return {}


async def signed_otherwise(driver: Driver) -> Meant:
    """Have a usual delivery a day, and then one with another key."""
    for day in range(8, -1, -1):
        driver.clock.put(T - day * DAY - HOUR * (2 if day else 1))
        body = json.dumps(of_order(f"O{day}", f"e{day}")).encode()
        key = KEY if day else ROTATED
        await driver.send(body, signed(body, at=driver.clock.now(), key=key))
    driver.clock.put(T)
    ((refused,),) = driver.rows("SELECT max(id) FROM rejections")
    return {"ID": refused}


async def report_without_a_folder(driver: Driver) -> Meant:
    ways: Any = None
    ran = await run_now(driver.context, schedule_of(driver.context, ways), "nightly", by=None)
    assert ran.state == "failed"
    return {"NAME": "nightly"}


async def refused_for_days(driver: Driver) -> Meant:
    """Have the shop answer 500 to the first try and to the last."""
    shop, refusing = shop_of(driver.context.settings), MockTransport(Shop(500, 500))
    assert shop is not None
    driver.clock.put(T - GIVE_UP_AFTER)
    await driver.send(event("e1"))
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    async with AsyncClient(transport=refusing) as client:
        notifier = Notifier(context=driver.context, shop=shop, client=client)
        await notify_due(notifier)
        driver.clock.put(T)
        await notify_due(notifier)
    return {}


class Situation(NamedTuple):
    """A problem, and which of its entry's commands are for it.

    make      brings it about in a service
    settings  of that service
    profile   a line of its source's profile, and what stands there instead
    mended    settings after a person has corrected them
    commands  all of the entry's, unless it has some for another case
    shows     what the first command shows
    """

    make: Callable[[Driver], Awaitable[Meant]]
    shows: str
    settings: Mapping[str, str] = {}
    profile: tuple[str, str] = ("", "")
    mended: Mapping[str, str] = {}
    commands: slice = slice(None)


SITUATIONS: Final[Mapping[tuple[str, str, str], Situation]] = {
    ("Alarms", "silence", ""): Situation(
        signed_otherwise,
        "payment.succeeded",
        mended={"SOURCES__SHOP__SECRETS": f"{secret(ROTATED)},{secret(KEY)}"},
    ),
    ("Alarms", "unreadable", "by the profile"): Situation(
        all_unreadable,
        "unreadable",
        profile=('dates = "rfc3339"', 'dates = "unix_s"'),
        commands=slice(3),
    ),
    ("Alarms", "unreadable", "alone"): Situation(
        only_broken, "unreadable", commands=slice(0, None, 3)
    ),
    ("Alarms", "no_order", ""): Situation(
        of_no_order,
        "names no order",
        profile=('"json:data.order.reference"', '"json:data.order.number"'),
    ),
    ("Alarms", "not_ours", ""): Situation(
        of_other_shops,
        "other",
        settings={"SOURCES__SHOP__ONLY": json.dumps({"data.shop": ["south"]})},
        mended={"SOURCES__SHOP__ONLY": json.dumps({"data.shop": ["north"]})},
    ),
    ("Alarms", "unallocated", ""): Situation(waiting_for_a_day, "pay_2"),
    ("Alarms", "unread_money", ""): Situation(
        refunded, "ORD-1", profile=('"payment.refunded" = "refunded"', "")
    ),
    ("Alarms", "poisoned", ""): Situation(set_aside, "dlv_"),
    ("Alarms", "schedule", ""): Situation(
        report_without_a_folder,
        "nightly",
        settings=NIGHTLY | {"REPORTS__FOLDER": "/dev/null/reports"},
        mended=NIGHTLY | {"REPORTS__FOLDER": "."},
    ),
    ("Alerts of Prometheus", "TallyhookNotificationsGivenUp", ""): Situation(
        refused_for_days, "ORD-1", settings=TOLD, mended=TOLD
    ),
    ("Alerts of Prometheus", "TallyhookShippedUnpaid", ""): Situation(shipped_unpaid, "ORD-1"),
}


async def in_service(
    folder: Path, case: Situation, settings: Mapping[str, Any], *, afterwards: bool
) -> tuple[set[str], Meant]:
    """Return the alarms of a service in which this happens, or that starts after it."""
    at: Any = {"at": T + DAY // 2 + HOUR} if afterwards else {}
    async with driving(folder, with_worker=False, looking=True, **at, **settings) as driver:
        meant = {} if afterwards else await case.make(driver)
        await soon(lambda: driver.rows("SELECT count(*) FROM suspects WHERE aside = 0") == [(0,)])
        await refold_until_quiet(driver.context, limit=100, progress=quiet)
        await driver.service.watchdog.look()
        return set(driver.service.watchdog.alarms), meant


NAMED: Final = {"backup", "orders find", "schedule"}
"""Commands that the page only names, and a group."""

ELSEWHERE: Final = {
    "flooded": "`doctor` alone; the rest is a firewall's",
    "clock": "tests/faults/test_interrupted.py",
    "shop_away": "tests/faults/test_operators_day.py",
    "notification_stuck": "tests/faults/test_operators_day.py",
    "held": "tests/faults/test_upgrades_under_load.py",
    "reader": "starts a process",
    "schedule_waits": "shows what waits; it ends by itself",
    "witnesses": "tests/evidence/test_renamed_log.py",
    "erasures": "`doctor` alone, which says what to do",
    "the database file is damaged": "tests/faults/test_operators_day.py",
    "the server found": "tests/postgres/test_restored.py",
    "a standby took over": "tests/postgres/test_takeover.py",
    "has read deliveries for": "starts a process",
    "TallyhookCheckpointLeftLongAgo": "shows what stopped",
    "TallyhookBackupLongAgo": "names a command that is noted",
    "5": "a search",
}
"""Entries whose commands, or the functions behind them, another test plays; or why none does."""


def test_every_entry_with_a_command_is_played_or_has_a_reason() -> None:
    named = {
        row[0].partition("`,")[0].strip("`")
        for title, rows in sections().items()
        for row in rows
        if "`tallyhook " in "".join(row[1:])
    }
    assert named == {name for _, name, _ in SITUATIONS} | ELSEWHERE.keys()
    tests = [value for value in ELSEWHERE.values() if value.startswith("tests/")]
    assert all((TESTS.parent / name).exists() for name in tests)


@pytest.mark.parametrize(
    "command",
    sorted({*re.findall("`tallyhook ([^`]+)`", RUNBOOK.read_text())} - NAMED),
)
def test_the_program_takes_each_command_as_it_stands(command: str) -> None:
    """It misses nothing, and knows each option."""
    words = command.replace("FILE", str(PROFILE)).split()
    name = " ".join(words[: 1 if words[0] in COMMANDS else 2])
    COMMANDS[name].make_context(name, words[len(name.split()) :])


@pytest.mark.parametrize("entry", SITUATIONS, ids=" ".join)
def test_its_commands_show_the_problem_and_end_it(
    entry: tuple[str, str, str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, after the correction that it asks for; an alarm is over then."""
    monkeypatch.setattr("app.monitoring.arrivals.EXPECTED", 1)
    monkeypatch.chdir(tmp_path)
    (title, name, _), case = entry, SITUATIONS[entry]
    settings, play = dict(case.settings), partial(in_service, tmp_path, case)
    if case.profile[0]:
        text = PROFILE.read_text()
        assert case.profile[0] in text
        (tmp_path / "own.toml").write_text(text.replace(*case.profile))
        settings["SOURCES__SHOP__PROFILE"] = str(tmp_path / "own.toml")
    alarms, meant = asyncio.run(play(settings, afterwards=False))
    assert title != "Alarms" or name in alarms
    for variable, value in environ(tmp_path, **case.mended).items():
        monkeypatch.setenv(variable, value)
    shown = []
    for step in steps(title, name)[case.commands]:
        done = run(*(meant.get(word, word) for word in step))
        assert done.code == 0 or step[0] in ("doctor",) or step[1] == "diagnose", (step, done)
        shown.append(done.out + done.err)
    assert case.shows in shown[0]
    alarms, _ = asyncio.run(play(case.mended, afterwards=True))
    assert name not in alarms
