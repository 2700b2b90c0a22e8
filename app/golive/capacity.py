"""Measure the capacity of this machine and database."""

import base64
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final

from app.config.load import load_settings
from app.config.settings import Settings
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, TallyhookError
from app.core.ids import new_secret
from app.core.process import is_running, memory_bytes, process_ids_of
from app.core.text import DELIVERY, counted
from app.database.holders import processes_here
from app.database.locks import processes_serving
from app.database.statements import run
from app.monitoring import monitoring_store, preflight
from app.monitoring.preflight import MIB, Check, ok, weak
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.inbox import Inbox, open_inbox
from reconcile.instants import DAY, EARLIEST, MINUTE, SECOND, Instant, format_instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy

FEW: Final = 10_000
"""Minimum number of deliveries for measuring a delivery's size."""

USUAL_BYTES: Final = 2_900
"""Assumed bytes of a delivery (tests/bench/README.md)."""

SOON_DAYS: Final = 90
"""Days before a full disk in which people must act."""

CALIBRATION_S: Final = 0.5
"""Seconds that each calibration lasts."""

MOST_SYNCS: Final = 200

WHOLE_WAY: Final = 8.5
"""Time to process a delivery completely, as a multiple of the calibration's time."""

CORES: Final = 2
"""Number of cores that an installation on SQLite can use."""

PLANNED: Final = 0.5
"""Share of the processor time that is planned for deliveries."""

CROWDED: Final = 0.5
"""Share of the planned capacity above which a larger machine is advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Facts from which the capacity is judged."""

    rates: monitoring_store.ArrivalRates
    stored: monitoring_store.Stored | None
    """Number and bytes of deliveries. None on a cluster."""
    free: int | None
    """Bytes until deliveries are refused. None on a database server."""
    memory: Mapping[int, int | None]
    sync_s: float | None
    """Median seconds of a write with a sync."""
    work_s: float
    """Processor seconds to verify, read and fold a delivery."""
    cores: int
    shared: bool

    @property
    def carried(self) -> float:
        """Return the planned maximum number of deliveries in a second."""
        cores = self.cores if self.shared else min(self.cores, CORES)
        return PLANNED * cores / (self.work_s * WHOLE_WAY)


async def examine_capacity(environ: Mapping[str, str] | None = None) -> list[Check]:
    """Return this machine's capacity, as checks of `tallyhook doctor`."""
    try:
        settings = load_settings(environ)
        async with open_inbox(settings, purpose="reading") as inbox:
            found = await _collect(settings, inbox)
    except ConfigurationError as error:
        return list(preflight.of_configuration(error.problems))
    except TallyhookError as error:
        return [preflight.of_no_database(error)]
    return list(judge(found))


async def _collect(settings: Settings, inbox: Inbox) -> Capacity:
    database = inbox.database
    async with database.reading() as connection:
        rates = await monitoring_store.arrival_rates(connection, now=SystemClock().now())
        stored = None if database.spread else await monitoring_store.stored_deliveries(connection)
        here = await run(connection, processes_here) if database.shared else ()
    free, path = database.writer.space.free_bytes(), database.path
    here = here if path is None else processes_serving(path)
    memory = {each: memory_bytes(each) for one in here for each in process_ids_of(one)}
    return Capacity(
        rates=rates,
        stored=stored,
        free=None if free is None else max(0, free - settings.disk_low_water_mb * MIB),
        memory={each: size for each, size in memory.items() if is_running(each)},
        sync_s=None if path is None else sync_time(path.absolute().parent),
        work_s=work_time(),
        cores=len(os.sched_getaffinity(0)),
        shared=database.shared,
    )


def sync_time(folder: Path) -> float | None:
    """Return the median seconds of a small write with sync."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            took, began = list[float](), perf_counter()
            while len(took) < MOST_SYNCS and perf_counter() - began < CALIBRATION_S:
                before = perf_counter()
                file.write(bytes(4096))
                os.fsync(file.fileno())
                took.append(perf_counter() - before)
    except OSError:
        return None
    return median(took)


_EVENTS: Final = ("pending", "declined", "authorized", "succeeded")
_BODY: Final = (
    '{{"id": "evt_{kind}", "type": "payment.{kind}", "occurred_at": "2026-01-01T00:00:00Z", '
    '"data": {{"order": {{"reference": "O-1", "amount": 15.00, "currency": "KES"}}, '
    '"payment": {{"reference": "pay_1", "amount": 15.00, "currency": "KES"}}}}}}'
)


def work_time() -> float:
    """Measure the processor seconds for one delivery."""
    secret = f"whsec_{base64.b64encode(new_secret()).decode()}"
    source = Source(name="shop", profile=load_profile("checkout"), secrets=[secret])
    now, requests = SystemClock().now(), []
    for kind in _EVENTS:
        body = _BODY.format(kind=kind).encode()
        headers = source.sign(body, event_id=f"evt_{kind}", now=now)
        requests.append(Incoming([(k.encode(), v.encode()) for k, v in headers], body))
    took, began = list[float](), process_time()
    while process_time() - began < CALIBRATION_S:
        before, deliveries = process_time(), list[Delivery]()
        for place, request in enumerate(requests):
            wrong = source.verify(request, now=now)
            assert wrong is None
            digest = hashlib.sha256(request.body).hexdigest()
            (event,) = source.read(request, digest=digest).events
            deliveries.append(Delivery(delivery_id=f"{place}", received_at=now, event=event))
        history = History(order="O-1", deliveries=frozenset(deliveries))
        fold(history, policy=Policy(), as_of=now)
        took.append((process_time() - before) / len(requests))
    return median(took)


def judge(found: Capacity) -> Iterator[Check]:
    yield _rates(found.rates)
    yield from _space(found)
    yield _memory(found.memory)
    yield _sync(found)
    per_s, cores = found.carried, found.cores if found.shared else min(found.cores, CORES)
    yield ok(
        "processor",
        f"Measured: {found.work_s * 1e6:,.0f} µs to verify, read and fold a delivery. Assumed: a "
        f"delivery's complete processing takes {WHOLE_WAY} times as long. Derived: {PLANNED:.0%} "
        f"of {counted(cores, 'core')} can process {per_s:,.0f} deliveries a second, or "
        f"{per_s * 86_400:,.0f} a day.",
    )
    if found.rates.busiest_minute:
        yield _next_step(found)


def _rates(rates: monitoring_store.ArrivalRates) -> Check:
    if not rates.busiest_minute:
        return ok(
            "deliveries", "No delivery was read in the last 90 days, so nothing is extrapolated."
        )
    day, minute = EARLIEST + rates.day * DAY, EARLIEST + rates.minute * MINUTE
    return ok(
        "deliveries",
        f"Measured: {rates.daily:,.0f} a day on average over "
        f"{counted(rates.days, 'day')}; at most "
        f"{rates.busiest_day:,} in a day ({_written(day, 'day')}) and {rates.busiest_minute:,} in "
        f"a minute ({_written(minute, 'minute')}) of the last 90 days.",
    )


def _written(instant: Instant, unit: str) -> str:
    return format_instant(instant)[: len("2026-01-01" if unit == "day" else "2026-01-01T00:00")]


def _space(found: Capacity) -> Iterator[Check]:
    stored, rates = found.stored, found.rates
    if stored is None:
        sentence = "This command cannot measure the disks of a cluster's nodes."
        yield weak("disk", sentence, "monitor each node with the server's own tools")
        return
    held = f"Measured: {_size(stored.size)} for {counted(stored.deliveries, *DELIVERY)}"
    each = stored.size // max(1, stored.deliveries)
    if stored.deliveries < FEW:
        each = USUAL_BYTES
        held += f"; these are too few for an average, so {each:,} bytes each are assumed"
    else:
        held += f", which is {each:,} bytes each, including ledgers and log"
    years = [_size(rate * 365 * each) for rate in (rates.daily, rates.busiest_day)]
    more = f" Extrapolated: {years[0]} a year, {years[1]} if every day were the busiest."
    yield ok("disk", f"{held}.{more if rates.busiest_day else ''}")
    if found.free is None:
        sentence = "This command cannot measure the database server's disk."
        yield weak("disk full", sentence, "monitor the disk with the server's own tools")
    elif rates.busiest_day:
        days, soonest = (
            found.free / (max(rate, 0.001) * each) for rate in (rates.daily, rates.busiest_day)
        )
        sentence = (
            f"{_size(found.free)} are free above TALLYHOOK_DISK_LOW_WATER_MB. Extrapolated: full "
            f"in {_days(days)}, in {_days(soonest)} if every day were the busiest."
        )
        do = "give it a larger disk, or set TALLYHOOK_RETENTION_DAYS"
        yield weak("disk full", sentence, do) if days < SOON_DAYS else ok("disk full", sentence)


def _days(days: float) -> str:
    return "more than ten years" if days > 3_650 else f"{days:,.0f} days"


def _memory(memory: Mapping[int, int | None]) -> Check:
    if not memory:
        return ok("memory", "This command cannot see any process of this database.")
    read = {process: size for process, size in memory.items() if size is not None}
    if len(read) < len(memory):
        sentence = "The memory of the service's processes cannot be read."
        return weak("memory", sentence, "run this as the service's user")
    parts = ", ".join(f"{process}: {_size(size)}" for process, size in read.items())
    return ok("memory", f"Measured: {_size(sum(read.values()))}, by process: {parts}.")


def _sync(found: Capacity) -> Check:
    if found.sync_s is None:
        sentence = (
            "The disk's sync time cannot be measured from here. Each answer to a delivery "
            "waits for a sync."
        )
        return ok("sync", sentence)
    milliseconds, rate = found.sync_s * 1_000, 1 / max(found.sync_s, 1e-6)
    return ok(
        "sync",
        f"Measured: the disk syncs a write in {milliseconds:,.1f} ms. Derived: a sender that "
        f"waits for each answer can send at most {rate:,.0f} a second. Parallel "
        "deliveries share a sync.",
    )


def _next_step(found: Capacity) -> Check:
    peak, rates = found.rates.busiest_minute / (MINUTE / SECOND), found.rates
    used, step = peak / found.carried, "PostgreSQL"
    do = "move to PostgreSQL, with receivers and workers on several machines (see RUNNING.md)"
    if found.shared:
        step = "Another machine"
        do = "start a receiver and a worker on another machine (see RUNNING.md)"
    sentence = (
        f"Derived: the busiest minute used {used:.2%} of this machine's capacity. Extrapolated: "
        f"with such peaks, this machine can process {rates.busiest_day / used:,.0f} deliveries a "
        "day."
    )
    if used >= CROWDED:
        return weak("growth", sentence, do)
    when = f"is needed at {CROWDED:.0%}, or if deliveries must continue when a machine is lost"
    return ok("growth", f"{sentence} {step} {when}.")


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"
