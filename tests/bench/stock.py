"""A stock of deliveries: what it takes to fold, seal, check and rebuild all of it.

The store is filled without a server. Then its orders are folded and published, all is sealed, and
the commands run as a user runs them. Their bars are of 1,700,000 deliveries on a machine whose pace
is `PACE_S`, and are scaled to the stock and the machine at hand.
"""

import asyncio
import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.core.ids import new_secret
from app.core.phone_key import read_phone_key
from app.core.process import collect_garbage_rarely, freeze_objects
from app.evidence.seal import open_signer, seal_all
from app.wiring.opening import open_context
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.machine import pace_s
from tests.bench.orders import SEED, Stretch
from tests.bench.processes import DATABASE, Ran, environment, last_two_cores, profile_of, run
from tests.bench.report import Figure
from tests.bench.requests import SOURCE, secret_text
from tests.bench.sizes import BARS, Sizes

DELIVERIES = 1_700_000
PACE_S = 2.3
SAID = (
    "SELECT order_key, outcome, fulfillable, findings, substance, next_decision_at, rules "
    "FROM ledgers ORDER BY order_key",
    "SELECT * FROM revisions ORDER BY seq",
)


def stock_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Fill a database, run the commands on it, and compare its ledgers with the ground truth."""
    stretch, path = Stretch(seed=SEED, first=0, count=sizes.stock_orders), folder / DATABASE
    secret, log = secret_text(new_secret()), folder / "command.log"
    env = environment(path, secret)

    def command(*words: str) -> Ran:
        ran = run(("app", *words), log=log, env=env, cores=last_two_cores())
        print(f"stock: {' '.join(words)} took {ran.seconds:.1f} s", file=sys.stderr)
        return ran

    asyncio.run(_sealed(env))  # makes an empty database, and its key for customers
    settings = load_settings(env)
    key = read_phone_key(settings.phone_key_path)
    start = command("refold", "--all", "--jobs", "2").seconds
    fill(path, stretch, compile_sources(settings, phone_key=key)[SOURCE])
    command("refold", "--all", "--jobs", "1")
    said, right = _digest(path), _outcomes_agree(path, stretch)
    leaves, seconds = asyncio.run(_sealed(env))
    again = command("refold", "--all")
    checked = command("db", "check", "--format", "json")
    report = json.loads(log.read_text())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM ledgers")
    rebuilt = command("refold", "--all", "--jobs", "2")
    ledgers = {
        "every order's ledger has the outcome of the ground truth": right,
        "ledgers and revisions of two processes are those of one": _digest(path) == said,
    }
    bounds = {
        words: profile_of(("app", *words), folder=folder, env=env)
        for words in (("refold", "--all"), ("db", "check"))
    }
    factor = pace_s() / PACE_S
    size = factor * stretch.events / DELIVERIES
    details = {"deliveries": stretch.events, "the bar is scaled by pace and size": size}
    return [
        Figure(
            name="rebuild of all ledgers, two cores",
            value=stretch.events / (rebuilt.seconds - start),
            unit="events/s",
            bar=BARS["rebuild"],
            checks=ledgers,
            details={"events": stretch.events, "processor s": rebuilt.processor}
            | {"peak MiB": rebuilt.peak_rss_mib, "s of the start, left out": start}
            | {"profile": bounds["refold", "--all"]},
        ),
        Figure(
            name=f"`refold --all` of {stretch.events:,} deliveries",
            value=again.seconds,
            unit="s",
            bar=BARS["refold"].times(size),
            checks=ledgers,
            details=details
            | {"processor s": again.processor, "profile": bounds["refold", "--all"]},
        ),
        Figure(
            name=f"`db check` of {stretch.events:,} deliveries, a sample read and folded again",
            value=checked.seconds,
            unit="s",
            bar=BARS["db check"].times(size),
            checks={
                "every delivery and order was counted": (report["bodies"], report["orders"])
                == (stretch.events, stretch.count),
                "a sample was read and folded again": report["sampled"] > 0,
                "nothing was found": report["found"] == 0,
            },
            details=details | {"processor s": checked.processor, "profile": bounds["db", "check"]},
        ),
        Figure(
            name="sealing a backlog",
            value=leaves / seconds,
            unit="leaves/s",
            bar=BARS["sealing"].times(1 / factor),
            checks={"every delivery is sealed": stored.unsealed(path) == 0},
            details={"leaves": leaves, "the bar is scaled by pace": factor},
        ),
    ]


async def _sealed(env: dict[str, str]) -> tuple[int, float]:
    """Seal all that the database holds; return the number of leaves, and the seconds."""
    async with open_context(load_settings(env), purpose="writing") as context:
        signer = await open_signer(context)
        collect_garbage_rarely()
        freeze_objects()  # else each collection would look at what the bench imported
        began = perf_counter()
        leaves = await seal_all(context, signer)
        return leaves, perf_counter() - began


def _digest(path: Path) -> str:
    """Return a digest of all ledgers and revisions, without the instant of the fold."""
    found = hashlib.sha256()
    with stored.opened(path) as connection:
        for statement in SAID:
            for row in connection.execute(statement):
                found.update(repr(row).encode())
    return found.hexdigest()


def _outcomes_agree(path: Path, stretch: Stretch) -> bool:
    with stored.opened(path) as connection:
        return stored.outcome_counts(connection) == stretch.outcomes()
