"""Erasures on PostgreSQL: the journal has no place of its own there, and `db restored` carries it
out in what other tools have put back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from app.cli import main
from app.config.load import load_settings
from app.core.clock import SetClock
from app.orders.refold import refold_until_quiet
from app.wiring.service import open_service
from reconcile.instants import DAY
from tests.api.driving import environ, of_order, signed
from tests.postgres.conftest import ask
from tests.reconcile.build import T

PHONE = "254711223344"
ERASE = ("erase", "--phone", f"+{PHONE}", "--reason", "asked by letter")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:  # fmt: skip
    """Run commands on a new database of the server."""
    for name, value in environ(tmp_path, DATABASE_URL=empty_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TALLYHOOK_PHONES__KEY_FILE", str(tmp_path / "phone.key"))
    monkeypatch.setenv("TALLYHOOK_EVIDENCE__KEY_FILE", str(tmp_path / "evidence.key"))
    monkeypatch.setattr("app.core.clock.SystemClock.now", lambda clock: T + DAY)

    def running(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(words)
        written = capsys.readouterr()
        return code, written.out, written.err

    assert running("db", "upgrade")[0] == 0
    return running


def buy(order: str) -> None:
    """Have an order paid by the customer."""

    async def sending() -> None:
        settings = load_settings(serving=True)
        async with open_service(settings, clock=SetClock(T), work="reading") as service:
            event = of_order(order, f"e-{order}")
            event["data"]["customer"] = {"phone": PHONE}
            body = json.dumps(event).encode()
            transport = httpx2.ASGITransport(app=service.application)
            async with httpx2.AsyncClient(transport=transport, base_url="http://s") as client:
                answer = await client.post("/webhooks/shop", content=body, headers=signed(body))
            assert answer.status_code == 200
            await refold_until_quiet(service.context, limit=10, progress=lambda count: None)

    asyncio.run(sending())


def bodies(url: str) -> list[bool]:
    return [row[0] for row in ask(url, "SELECT body IS NOT NULL FROM deliveries ORDER BY id")]


def test_without_the_setting_nobody_is_erased(run: Run, empty_url: str) -> None:
    """Exit code 3 and one sentence; `doctor` says so before."""
    buy("A")
    for words in (ERASE, (*ERASE, "--dry-run")):
        code, out, err = run(*words)
        assert (code, out) == (3, "")
        assert err.startswith("TALLYHOOK_ERASURE_JOURNAL: is not set")
        assert len(err.splitlines()) == 1
    assert bodies(empty_url) == [True]
    assert "nobody's personal data can be erased" in " ".join(run("doctor")[1].split())
    assert run("db", "check")[0] == 0
    assert run("db", "restored")[0] == 0, "nobody was ever erased"


@pytest.mark.costly
def test_who_was_erased_is_erased_again_by_db_restored(
    run: Run, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is made when it is first configured."""
    path = tmp_path / "safe" / "erasures"
    monkeypatch.setenv("TALLYHOOK_ERASURE_JOURNAL", str(path))
    buy("A")
    (tmp_path / "note.txt").write_text(f"call {PHONE}")
    attach = ("evidence", "attach", "A", str(tmp_path / "note.txt"), "--kind", "other")
    assert run(*attach)[0] == 0
    assert run("evidence", "letter", "A", "-o", str(tmp_path / "a.html"))[0] == 0
    assert path.stat().st_size < 256, "made, and empty"
    before = ask(empty_url, "SELECT id, body, headers FROM deliveries")
    assert run(*ERASE)[0] == 0
    assert bodies(empty_url) == [False]
    assert ask(empty_url, "SELECT body FROM attachment_files") == []
    assert ask(empty_url, "SELECT details FROM attachments")[0][0] is None
    body, headers = before[0][1].hex(), before[0][2].replace("'", "''")
    put_back = f"UPDATE deliveries SET body='\\x{body}', headers='{headers}', pruned_at=NULL"
    ask(empty_url, put_back)
    code, out, _ = run("db", "restored", "--format", "json")
    assert (code, json.loads(out)["erasures"]["deliveries"]) == (0, 1)
    assert bodies(empty_url) == [False]
    ask(empty_url, put_back)
    path.unlink()
    for words in (("db", "restored"), ERASE):
        code, out, err = run(*words)
        assert (code, out, "only its key" in err) == (3, "", True)
    assert run("db", "restored", "--without-erasures", "--reason", "the disk is lost")[0] == 0
    assert bodies(empty_url) == [False], "by the copy in the database"
    assert run("db", "check")[0] == 0
