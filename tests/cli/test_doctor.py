"""`tallyhook doctor`: one row for each thing, and 1 where something must be done."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from reconcile.instants import HOUR
from tests.api.driving import SECRET, driving, event, of_order, secret, signed
from tests.cli.test_commands import Run, run
from tests.waiting import soon

__all__ = ["run"]


def states_of(found: Any) -> dict[str, str]:
    """Return the state of each thing; the worst where it has several."""
    order = ("ok", "weak", "must")
    states: dict[str, str] = {}
    for each in found:
        states[each["what"]] = max(states.get(each["what"], "ok"), each["state"], key=order.index)
    return states


async def _make(folder: Path) -> None:
    async with driving(folder):
        pass


def test_a_sound_installation(run: Run, tmp_path: Path) -> None:
    """With a database, nothing must be done."""
    asyncio.run(_make(tmp_path))
    ended = run("doctor", "--format", "json")
    assert ended.code == 0
    states = states_of(ended.document)
    assert (states["configuration"], states["disk"]) == ("ok", "ok")
    assert (states["profile of shop"], states["source shop"]) == ("ok", "weak")
    (shop,) = [each for each in ended.document if each["what"] == "source shop"]
    assert shop["sentence"].startswith("never_delivered: No delivery of it was ever accepted")
    assert "database" in states
    merchant = next(each for each in ended.document if each["what"] == "merchant")
    assert "one merchant" in merchant["sentence"]
    said = [each["what"] for each in ended.document if "No backup" in each["sentence"]]
    for key in ("EVIDENCE", "PHONES"):
        variable = f"TALLYHOOK_{key}__KEY_FILE"
        assert states[variable] == "ok"
        assert variable in said
    assert run("doctor").code == 0


FOREIGN = {
    "CHECKOUT__BASE_URL": "https://pay.example",
    "CHECKOUT__TOKEN": "acme_pk_live_4f1d9c8b7a6e5d",
}
REFUSED: dict[str, tuple[dict[str, str], str, str]] = {
    "the other environment's token": (FOREIGN, "CHECKOUT__TOKEN", "for the other environment"),
    "no credentials": (
        {"SOURCES__MP__PROFILE": "mpesa_stk", "SOURCES__MP__CREDENTIALS": '{"consumer": "x:y"}'},
        "SOURCES__MP__CREDENTIALS",
        "give 'password'",
    ),
    "a secret that cannot sign": (
        {"ALARMS__URL": "https://a.example", "ALARMS__SECRET": "whsec_%%ab12cd34ef56gh78"},
        "ALARMS__SECRET",
        "not well-formed",
    ),
}


@pytest.mark.parametrize(("settings", "variable", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_a_start_refuses_is_found(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    variable: str,
    sentence: str,
) -> None:
    """By the checklist too, which said that all tokens and secrets fit."""
    for name, value in settings.items():
        monkeypatch.setenv(f"TALLYHOOK_{name}", value)
    found = run("doctor", "--format", "json")
    assert (found.code, {each["state"] for each in found.document}) == (1, {"must"})
    assert found.document[0]["what"] == f"TALLYHOOK_{variable}"
    assert sentence in found.document[0]["sentence"]
    keys = run("golive", "--format", "json").document[0]
    assert (keys["item"], keys["state"]) == ("api_keys", "failed")
    assert f"TALLYHOOK_{variable}: " in keys["sentence"]
    refused = run("serve", "--port", "0")
    assert refused.code == 3
    assert f"TALLYHOOK_{variable}: " in refused.err


def test_a_key_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """The log can only be gone on with by the key that it was begun with, and numbers are found by
    the key with which they are noted, even if none is noted yet."""
    asyncio.run(_make(tmp_path))
    (tmp_path / "t.evidence.key").unlink()
    (tmp_path / "t.phone.key").unlink()
    states = states_of(run("doctor", "--format", "json").document)
    assert states["TALLYHOOK_EVIDENCE__KEY_FILE"] == "must"
    assert states["TALLYHOOK_PHONES__KEY_FILE"] == "must"


async def _make_with_a_number(folder: Path) -> None:
    async with driving(folder) as driver:
        await driver.send(event("e1", customer={"phone": "254711223344"}))


def test_a_key_that_was_made_anew_though_numbers_are_noted(run: Run, tmp_path: Path) -> None:
    """As by the first start after a restore that did not bring it: the file is there, and whole."""
    asyncio.run(_make_with_a_number(tmp_path))
    assert run("doctor").code == 0
    (tmp_path / "t.phone.key").write_text("ab" * 32)
    ended = run("doctor", "--format", "json")
    assert (ended.code, states_of(ended.document)["TALLYHOOK_PHONES__KEY_FILE"]) == (1, "must")
    (said,) = [each for each in ended.document if "another key" in each["sentence"]]
    assert "`tallyhook reindex`" in said["do"]
    (tmp_path / "t.phone.key").write_text("no key")
    (said,) = [
        each for each in run("doctor", "--format", "json").document if each["state"] == "must"
    ]
    assert said["sentence"].startswith("TALLYHOOK_PHONES__KEY_FILE: is not 64 hex digits")


@pytest.mark.parametrize("lost", ["removed", "replaced"])
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("records", "import", "{book}")])
@pytest.mark.parametrize(
    "make", [pytest.param(_make, marks=pytest.mark.costly), _make_with_a_number]
)
def test_nothing_is_written_without_the_key_of_the_numbers(
    run: Run, tmp_path: Path, lost: str, command: tuple[str, ...], make: Any
) -> None:
    """A number that is noted with a new key is found, and erased, apart from those of before. The
    database knows its key, even if no number is noted yet."""
    asyncio.run(make(tmp_path))
    book = tmp_path / "book.csv"
    book.write_text("reference,amount,currency\nORD-1,1500.00,KES\n")
    path = tmp_path / "t.phone.key"
    kept = path.read_text()
    path.unlink()
    if lost == "replaced":
        path.write_text("ab" * 32)
    refused = run(*(each.format(book=book) for each in command))
    assert refused.code == 3
    assert "TALLYHOOK_PHONES__KEY_FILE" in refused.err
    assert "restore that file" in refused.err
    assert path.exists() is (lost == "replaced")
    path.write_text(kept)
    assert run("records", "import", str(book)).code == 0
    path.write_text("cd" * 32)
    assert run("reindex").code == 0
    assert run("records", "import", str(book)).code == 0


async def _make_refusing(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        for number in range(8):
            body = json.dumps(event(f"e{number}")).encode()
            await driver.send(body, signed(body, at=driver.clock.now(), key=b"x" * 24))


async def _make_nameless(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        await driver.send(event("e1", order=None, session=None))


@pytest.mark.parametrize(
    ("make", "code", "state", "said", "do"),
    [
        (_make_refusing, 1, "must", "refusing: 8 deliveries were refused", "reverify"),
        (
            _make_nameless,
            0,
            "weak",
            "not_placed: Its deliveries are accepted, but none",
            "put the ",
        ),
    ],
)
def test_a_source_is_judged_by_what_arrived(
    run: Run, tmp_path: Path, make: Any, code: int, state: str, said: str, do: str
) -> None:
    """Settings that are whole do not make it ok."""
    asyncio.run(make(tmp_path))
    ended = run("doctor", "--format", "json")
    (shop,) = [each for each in ended.document if each["what"] == "source shop"]
    waiting = [each["sentence"] for each in ended.document if each["what"] == "unallocated"]
    assert waiting == ["1 payment is in no order (KES 1,500.00)."] * (make is _make_nameless)
    assert (ended.code, shop["state"]) == (code, state)
    assert shop["sentence"].startswith(said)
    assert do in shop["do"]


def test_a_folder_that_cannot_be_written_is_reported_as_such(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as a missing database, nor as a problem of a key that would be made there."""
    access = os.access

    def refusing(path: Any, mode: int, **words: Any) -> bool:
        return not (Path(path) == tmp_path and mode & os.W_OK) and access(path, mode, **words)

    monkeypatch.setattr(os, "access", refusing)
    ended = run("doctor", "--format", "json")
    (folder,) = [each for each in ended.document if each["state"] == "must"]
    assert (ended.code, folder["what"]) == (1, "database folder")
    assert f"This user cannot write to {tmp_path}" in folder["sentence"]
    assert "let this user write there" in folder["do"]
    assert "KEY_FILE" not in ended.out


async def _make_unreadable(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        driver.clock.put(SystemClock().now())
        await driver.send(b'{"id": ')


def test_what_goes_wrong_while_it_serves(run: Run, tmp_path: Path) -> None:
    """An alarm that stored deliveries are reason for, with what to do about it."""
    asyncio.run(_make_unreadable(tmp_path))
    ended = run("doctor", "--format", "json")
    assert ended.code == 1
    (said,) = [each for each in ended.document if each["what"] == "unreadable"]
    assert said["state"] == "must"
    assert said["sentence"].endswith("the provider will not send them again.")
    assert said["do"].startswith("find out why with `tallyhook deliveries list")


def test_a_shop_that_is_away(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the service that runs has met stands in the database: since when, and what to do."""
    monkeypatch.setenv("TALLYHOOK_SHOP__URL", "http://127.0.0.1:1/told")
    monkeypatch.setenv("TALLYHOOK_SHOP__SECRET", secret(b"the shop's own, of at least 24 bytes"))

    async def fail() -> None:
        more: dict[str, Any] = {
            "SHOP__URL": "http://127.0.0.1:1/told",
            "SHOP__SECRET": secret(b"x" * 24),
        }
        at = SystemClock().now() - HOUR
        async with driving(tmp_path, at=at, **more) as driver:
            for order in ("ORD-1", "ORD-2"):
                await driver.send(of_order(order, f"e-{order}"))
            away = "SELECT 1 FROM destinations_away WHERE only_seq IS NULL"
            await soon(lambda: driver.rows(away) != [])

    asyncio.run(fail())
    (said,) = [e for e in run("doctor", "--format", "json").document if e["what"] == "shop_away"]
    assert said["state"] == "must"
    assert "no notification since 20" in said["sentence"]
    assert "the last ended with connection_failed; 2 waiting" in said["sentence"]
    assert said["do"].startswith("check that the receiver at TALLYHOOK_SHOP__URL runs")


def test_what_must_be_done(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No database, a provider that does not answer, a file that everyone may read: exit 1, and
    each row says what to do; no secret is shown."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o644)
    monkeypatch.delenv("TALLYHOOK_SOURCES__SHOP__SECRETS")
    monkeypatch.setenv("TALLYHOOK_SOURCES__SHOP__SECRETS_FILE", str(file))
    monkeypatch.setenv("TALLYHOOK_CHECKOUT__BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TALLYHOOK_CHECKOUT__TOKEN", "tok_9f8e7d6c5b4a3f2e1d")
    ended = run("doctor", "--format", "json")
    assert ended.code == 1
    states = states_of(ended.document)
    for what in ("database", "provider", "TALLYHOOK_SOURCES__SHOP__SECRETS_FILE"):
        assert states[what] == "must"
    assert all(each["do"] for each in ended.document if each["state"] == "must")
    assert SECRET not in ended.out + ended.err
    assert "tok_9f8e" not in ended.out + ended.err


def test_a_configuration_that_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mistake is a row; the rest waits."""
    monkeypatch.setenv("TALLYHOOK_GRACE_S", "soon")
    monkeypatch.setenv("TALLYHOOK_ENVIRONMENT", "production")
    ended = run("doctor", "--format", "json")
    assert ended.code == 1
    assert {each["what"] for each in ended.document} == {
        "TALLYHOOK_GRACE_S",
        "TALLYHOOK_ENVIRONMENT",
    }


def test_a_token_that_ends_soon(run: Run, tmp_path: Path) -> None:
    """Told by name while there is time to replace it; one that ends later is not."""
    run("tokens", "add", "shop", "--until", "13d")
    run("tokens", "add", "books", "--until", "15d")
    said = [each for each in run("doctor", "--format", "json").document if each["what"] == "tokens"]
    assert [each["state"] for each in said] == ["weak"]
    assert said[0]["sentence"].startswith("The token shop ends 20")
