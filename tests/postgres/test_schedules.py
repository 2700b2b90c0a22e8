"""Readers and workers, interleaved statement by statement: whatever the schedule, they leave what
one reader and one worker leave."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Final

import pytest

from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.phone_key import PhoneKey
from app.core.reading import Reading, Unreadable
from app.database import postgresql
from app.database.statements import PlainConnection, run
from app.orders.read_orders import explain_order
from app.orders.record_store import add_records
from app.orders.refold import CLAIM, refold_due
from app.orders.set_aside import HOLDING
from app.privacy import erase as erasing
from app.privacy.check import check_database
from app.privacy.erase import ErasureRequest, erase
from app.receiving import append_store, claim_store, due_store, inbox_store
from app.receiving.claim_store import MOST_CLAIMS, Claimant
from app.receiving.due_store import Due
from app.receiving.framing import Received
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import keep_row
from app.receiving.pace import Pace
from app.receiving.reader import Reader, ReaderContext, read_some
from reconcile.instants import DAY, SECOND
from reconcile.ledger.events import ClaimKind, Event
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.contexts import with_given, with_settings, with_sources
from tests.database.builders import (
    Remembering,
    arrival,
    commit,
    context,
    quiet,
    received,
    rows,
    said,
)
from tests.postgres.conftest import ask_in_loop, emptying, migrate
from tests.postgres.schedules import Act, Schedule
from tests.postgres.test_sharing import several
from tests.reconcile.build import DUE, document_bytes, seconds
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

LONG_AGO: Final = -40 * DAY // SECOND
SEEDS: Final = range(1, 201)
IN_GATE: Final = 1
"""The first seed is played in each run, the others at night."""

FINDS_WITHIN: Final = 40
"""Seeds of which one must find a planted defect."""

FIRST_FOUND: Final = 8
"""First seed that finds an append of what another reader has claimed."""

ROUNDS: Final = 6
"""Rounds of one worker."""

CLAIMS_RUN_OUT: Final = 60 + CLAIM // SECOND


class Telling(Remembering):
    """A source that reads the bodies of `told`."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}

    def told(self, event: Event, *, at: int) -> Received:
        """Return a delivery of an event, `at` seconds after T, in a body of its own digest."""
        body = event.digest.encode()
        digest = sha256(body).hexdigest()
        self._events[digest] = replace(event, digest=digest)
        return received(arrival(event, at=at))

    def read(self, body: bytes, *, digest: str, **request: object) -> Reading:
        """Return the event with this body."""
        if digest not in self._events:
            raise Unreadable("the body is not JSON")
        return Reading(events=(self._events[digest],), environment=None)


SHOP: Final = Telling()
SOURCES: Final[Any] = {"shop": SHOP}


def telling(event_id: str, claim: ClaimKind = "pending", *, at: int, **words: Any) -> Received:
    """Return a delivery of what an event says."""
    return SHOP.told(said(event_id, claim, **words), at=at)


def captured(event_id: str, *, at: int, **words: Any) -> Received:
    """Return a delivery of a capture of the price."""
    return telling(event_id, "succeeded", at=at, **{"money": DUE, "order_money": DUE, **words})


ERASED: Final = captured("old", order="OLD", payment="p-OLD", at=LONG_AGO)
TOLD: Final[Sequence[Received]] = [
    *(captured("a", order="A", payment="p-A", at=n) for n in range(3)),
    telling("a2", "refunded", order="A", payment="p-A", money=DUE, movement="r", at=4),
    telling("b", order="B", payment="p", at=1),
    captured("c", order="C", payment="p", at=2),
    captured("d1", session="s-D", payment="p-D", at=3),
    telling("d2", "refunded", payment="p-D", money=DUE, movement="r", at=9),
    telling("d3", order="D", session="s-D", at=5),
    captured("e", order="E", payment="p-E", at=6),
    captured("f", order="F", payment="p-F", at=7),
    captured("f", order="F", payment="p-F", money=Money(minor=1, currency="KES"), at=8),
    captured("g", payment="p-G", at=8),
    received(arrival(None, at=9)),
    *(captured("old", order="OLD", payment="p-OLD", at=9) for _ in "ab"),
]
"""Duplicates, a contested and an adopted payment, a second body, and what came of an erased order.
Their ids stay, so that ledgers of two plays are equal to the byte."""

PRICES: Final = [
    Record(
        record_id=f"rec_{number}",
        recorded_at=seconds(number),
        kind="order_placed",
        order="E",
        at=seconds(number),
        money=Money(minor=minor, currency="KES"),
    )
    for number, minor in enumerate((100_000, 200_000, 150_000))
]


class World:
    """A small world on one database, and those who read and fold it."""

    def __init__(self, stores: Sequence[Inbox], folder: Path) -> None:
        self._stores = stores
        self._folder = folder

    async def begin(self, seed: int) -> None:
        await self._put([ERASED])
        await self.read(self._stores[0])
        while await refold_due(context(self._stores[0]), limit=9):
            pass
        left, random = list(TOLD), Random(seed)
        random.shuffle(left)
        while left:
            size = random.randint(1, 3)
            await self._put(left[:size])
            del left[:size]

    async def _put(self, some: Sequence[Received]) -> None:
        async with self._stores[0].writer.writer.transaction() as connection:
            await run(connection, keep_row, some)

    async def read(self, inbox: Inbox) -> None:
        reading = ReaderContext(context(inbox, at=20), inbox, SOURCES, "sandbox", HOLDING)
        while await read_some(reading, pace=Pace(first=2, most=2)):  # so that several append
            pass

    async def fold(self, inbox: Inbox) -> None:
        for _ in range(ROUNDS):
            await refold_due(context(inbox, at=20), limit=2)

    async def tell(self, inbox: Inbox) -> None:
        for each in PRICES:
            await commit(inbox, add_records, [each])

    async def erase(self, inbox: Inbox) -> None:
        asked = ErasureRequest(order="OLD", reason="asked", by="Ann")
        await erase(self._at(inbox, 20), asked, dry_run=False)

    def _at(self, inbox: Inbox, at: int) -> AppContext:
        then = with_settings(context(inbox, at=at), erasure_journal=self._folder / "erasures")
        return with_given(then, phone_key=PhoneKey(b"k" * 32))

    async def left(self) -> dict[str, Any]:
        """Fold what is left, and return what there is then."""
        inbox = self._stores[0]
        with suppress(NotFoundError):  # it leaves an order of which something came meanwhile
            await self.erase(inbox)
        then = self._at(inbox, CLAIMS_RUN_OUT)
        while await refold_due(then, limit=9):
            pass
        report = await check_database(with_sources(then, SOURCES), deep=1, progress=quiet)
        orders = [row[0] for row in await rows(inbox, "SELECT order_key FROM order_due ORDER BY 1")]
        assert report.problems == []
        return {
            "ledgers": [document_bytes(await explain_order(then, order)) for order in orders],
            "published": await rows(
                inbox,
                "SELECT order_key, outcome, fulfillable, substance FROM revisions AS latest WHERE "
                "seq = (SELECT max(seq) FROM revisions WHERE order_key = latest.order_key) "
                "ORDER BY order_key",
            ),
            "listed": await rows(inbox, "SELECT order_key, word FROM order_listings ORDER BY 1, 2"),
            "verdicts": await rows(
                inbox, "SELECT verdict, count(*) FROM deliveries GROUP BY 1 ORDER BY 1"
            ),
            "of the erased": await rows(
                inbox,
                "SELECT count(*) FROM deliveries WHERE event_id = 'old' "
                "AND (body IS NOT NULL OR headers <> '')",
            ),
            "unread": await rows(inbox, "SELECT count(*) FROM inbox"),
        }


@pytest.fixture(autouse=True)
def erasing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the erasure begin while the inbox has unread rows, so that it meets the readers; and end
    without VACUUM, which waits for transactions under way by the clock."""

    async def nothing(*_: object) -> None:
        return

    for name in ("STATEMENT_MS", "LOCK_MS", "IDLE_MS"):  # an actor stops in transactions
        monkeypatch.setattr(postgresql, name, int(1_000 * PATIENCE_S))
    for name in ("ANSWER_S", "COMMIT_S"):
        monkeypatch.setattr(postgresql, name, PATIENCE_S)
    monkeypatch.setattr(erasing, "must_have_read", nothing)
    monkeypatch.setattr(postgresql, "vacuum", nothing)


async def played(
    url: str, folder: Path, *, seed: int, of_each: int = 4, kind: type[World] = World
) -> tuple[dict[str, Any], list[str]]:
    """Play one schedule of the world. Return what it left, and its trace."""
    async with several(url, 2 * of_each + 2) as stores:
        world = kind(stores, folder)
        await world.begin(seed)
        acts: dict[str, Act] = {
            "shop": partial(world.tell, stores[0]), "eraser": partial(world.erase, stores[1]),
        }  # fmt: skip
        for number in range(of_each):
            acts[f"reader {number}"] = partial(world.read, stores[2 + number])
            acts[f"worker {number}"] = partial(world.fold, stores[2 + of_each + number])
        schedule = Schedule(seed)
        try:
            await schedule.play(url, acts)
            return await world.left(), schedule.trace
        except Exception as error:
            error.add_note("\n".join([f"seed {seed}", *schedule.trace]))
            raise


_alone: list[tuple[dict[str, Any], list[str]]] = []


@pytest.fixture
async def alone(empty_url: str, tmp_path: Path) -> dict[str, Any]:
    """Return what one reader and one worker leave."""
    if not _alone:
        await migrate(empty_url)
        _alone.append(await played(empty_url, tmp_path / "alone", seed=0, of_each=1))
    return _alone[0][0]


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n <= IN_GATE else pytest.mark.soak) for n in SEEDS]
)
async def test_any_schedule_leaves_what_one_reader_and_one_worker_leave(
    url: str, tmp_path: Path, alone: dict[str, Any], seed: int
) -> None:
    """Ledgers, lists and publications are equal, counters and the feed are whole, and nothing of an
    erased order comes back."""
    found, trace = await played(url, tmp_path / "several", seed=seed)
    assert found == alone, "\n".join([f"seed {seed}", *trace])


@pytest.mark.usefixtures("alone")
async def test_a_seed_plays_the_same_schedule_again(url: str, tmp_path: Path) -> None:
    """Else a failure could not be looked at."""
    assert await played(url, tmp_path / "again", seed=0, of_each=1) == _alone[0]


@pytest.mark.costly
async def test_a_schedule_finds_a_fold_published_over_evidence_that_came_meanwhile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: publishing does not look at the due mark again."""

    def standing(_: PlainConnection, marks: Sequence[Due]) -> list[Due]:
        return list(marks)

    async def play_some() -> None:
        for seed in SEEDS[:FINDS_WITHIN]:
            await ask_in_loop(url, emptying())
            await played(url, tmp_path / str(seed), seed=seed)

    monkeypatch.setattr(due_store, "unchanged", standing)
    with pytest.raises(AssertionError, match="does not follow the one before it"):
        await play_some()


async def test_what_follows_the_numbers_of_a_publication_carries_them(
    url: str, tmp_path: Path
) -> None:
    """Every other publication waits until the commit."""
    _, trace = await played(url, tmp_path, seed=1, of_each=1)
    mine = [each.removeprefix("worker 0: ") for each in trace if each.startswith("worker 0: ")]
    taken = [n for n, each in enumerate(mine) if each.endswith("RETURNING name, value")]
    later = [mine[n + 1 : mine.index("COMMIT;", n)] for n in taken]
    kinds = {each.partition("(")[0].strip() for some in later for each in some}
    assert kinds == {"COPY revisions", "INSERT INTO order_listings"}


# --- claims that run out --------------------------------------------------------------------------


class Impatient(World):
    """A world with whole readers, which read suspects, too."""

    async def read(self, inbox: Inbox) -> None:
        reading = ReaderContext(context(inbox, at=20), inbox, SOURCES, "sandbox", HOLDING)
        whole = Reader(reading)
        whole._pace = Pace(first=2, most=2)
        while await whole._round():
            pass


MOST_TAKEN_OVER: Final = 2 * MOST_CLAIMS
"""Claims that run out in one schedule: a row makes suspects at the second, and a suspect that is
taken over twice is not set aside."""


def claims_run_out(monkeypatch: pytest.MonkeyPatch, seed: int) -> tuple[list[str], list[str]]:
    """Let some claims run out while their readers go on, as if those had been frozen. Return their
    marks, and those of readers that then append what another reader has claimed."""
    random, run_out, wrong = Random(seed), list[str](), list[str]()
    claimed: dict[tuple[type, int], str | None] = {}
    holds = Claimant._holds

    def held(self: Claimant, mark: str, now: float) -> bool:
        found = holds(self, mark, now)
        if found and len(run_out) < MOST_TAKEN_OVER and random.random() < 0.5:
            run_out.append(mark)
            return False
        return found

    def noting(module: ModuleType, name: str, *, takes: bool) -> None:
        function = getattr(module, name)

        def noted(connection: PlainConnection, one: Any, *words: Any, **named: Any) -> Any:
            found = function(connection, one, *words, **named)
            several = found if isinstance(found, list) else [one if takes else found]
            for each in several if found else ():
                key = type(each), each.seq
                if takes and claimed[key] != each.taken_by:
                    wrong.append(each.taken_by)
                claimed[key] = each.taken_by
            return found

        monkeypatch.setattr(module, name, noted)

    monkeypatch.setattr(Claimant, "_holds", held)
    for name in ("claim_rows", "claim_suspect"):
        noting(claim_store, name, takes=False)
    for name in ("take_out", "take_suspect_out"):
        noting(append_store, name, takes=True)
    return run_out, wrong


@pytest.mark.costly
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n <= IN_GATE else pytest.mark.soak) for n in SEEDS]
)
async def test_claims_that_run_out_in_any_schedule_change_nothing(
    url: str, tmp_path: Path, alone: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Nor is anything set aside."""
    run_out, wrong = claims_run_out(monkeypatch, seed)
    found, trace = await played(url, tmp_path / "several", seed=seed, kind=Impatient)
    claimants = {each.partition(":")[0] for each in trace if "UPDATE inbox SET taken_by" in each}
    assert run_out or len(claimants) == 1
    assert wrong == []
    assert found == alone, "\n".join([f"seed {seed}", *trace])
    assert await ask_in_loop(url, "SELECT seq FROM suspects") == []


@pytest.mark.soak
async def test_a_schedule_finds_an_append_of_what_another_reader_has_claimed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the append takes out its rows, whoever has claimed them by now."""
    sql = "DELETE FROM inbox WHERE coalesce(?, '') <> '!' AND seq IN ({}) RETURNING seq"
    monkeypatch.setattr(inbox_store, "_DELETE", sql)
    # Rows are taken out soon after they were claimed, so few schedules have room for it.
    wrong = list[str]()
    for seed in SEEDS[FIRST_FOUND - 1 : FINDS_WITHIN]:
        await ask_in_loop(url, emptying())
        with monkeypatch.context() as patched:
            _, wrong = claims_run_out(patched, seed)
            await played(url, tmp_path / str(seed), seed=seed, kind=Impatient)
        if wrong:
            break
    assert wrong
