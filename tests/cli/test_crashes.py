"""Whatever function a command runs through raises, and whatever the error says: the command
ends with one sentence that names the place, and nothing of what was private there comes out."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.api.driving import driving, event, of_order
from tests.cli.test_canaries import Canaries
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run  # the fixture
from tests.crashing import Called, Crash, crashing, private

SOME = 5


async def fill(folder: Path, canaries: Canaries) -> None:
    """Store a payment, and something that the ledger does not know yet."""
    async with driving(folder, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", customer={"phone": canaries.phone()}))
        await driver.send(of_order("O-2", "e2", "pending"))
        await driver.send(event("e3", environment="live"))
        await driver.send(b'{"phone": "%s"' % canaries.phone().encode())


def commands(canaries: Canaries, folder: Path) -> list[Sequence[str]]:
    """Return a command of every kind, with something planted in its words."""
    book, statement, bundle = (folder / name for name in ("b.csv", "s.csv", "e.zip"))
    book.write_text(f"reference,amount,currency,phone\nO-2,5,KES,{canaries.phone()}\n")
    statement.write_text("payment_reference,gross,currency,settled_at\np,5,KES,2026-11-20\n")
    return [
        ("orders", "list"),
        ("orders", "find", canaries.spelled()),
        ("orders", "show", "ORD-1"),
        ("orders", "show", "ORD-1", "--with-personal-data", "--reason", canaries.phone()),
        ("deliveries", "list", "--format", "csv"),
        ("deliveries", "reverify"),
        ("erase", "--phone", canaries.phone(), "--reason", "asked", "--dry-run"),
        ("records", "import", str(book)),
        ("statement", "import", str(statement)),
        ("reconcile", "run", "--from", "2026-11-01", "--to", "2026-11-30"),
        ("report", "period", "--from", "2026-11-01", "--to", "2026-11-30"),
        ("evidence", "build", "ORD-1", "-o", str(bundle)),
        ("refold", "--all"),
        ("reindex",),
        ("tokens", "add", "shop"),
        ("db", "check"),
        ("db", "check", "--deep", "--jobs", "1"),
    ]


# What the database's library had open when it crashed is closed by nobody, and looked for here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "some", "least"),
    [(9, SOME, 3), pytest.param(99, 10_000, 15, marks=pytest.mark.soak)],
)
def test_none_comes_out(kinds: int, some: int, least: int, run: Run, tmp_path: Path) -> None:
    canaries, called = Canaries(), Called()
    asyncio.run(fill(tmp_path, canaries))
    wanted = commands(canaries, tmp_path)[:kinds]
    with called.looking_on():
        for words in wanted:
            called.begin(words)
            ended = run(*words)
            assert ended.code in (0, 1, 5), (words, ended)
    crash, crashed, unforeseen = Crash(private(canaries)), 0, 0
    points = called.points()
    for name, function, words in points[:: max(1, len(points) // some)]:
        before = crash.count
        with crashing(function, crash):
            ended = run(*words)
        if crash.count == before:
            continue  # it did what it does, and one of the commands is to show a phone number
        crashed += 1
        assert (name, canaries.seen_in(ended.out + ended.err)) == (name, [])
        if "PlantedError" in ended.err:
            unforeseen += 1
            assert ended.code == 1, (name, ended)
            assert f" {function.__name__}" in ended.err, (name, ended)
    gc.unfreeze()
    gc.collect()
    print(f"crashed at {crashed} of {len(points)} functions, {unforeseen} commands ended by it")
    assert len(points) > 300
    assert crashed >= least
    assert unforeseen >= least
