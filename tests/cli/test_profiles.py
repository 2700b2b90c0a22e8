"""`profiles list/show/check` and `signature check` as a person or a program runs them."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.main import run
from app.providers.profile import SHIPPED, shipped_profiles
from tests.rows import for_each

Output = pytest.CaptureFixture[str]


def test_the_list_has_every_shipped_profile(capsys: Output) -> None:
    """Each with its scheme and what its events are worth."""
    assert run(["profiles", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["profile"] for row in rows] == shipped_profiles()
    assert {row["events"] for row in rows} == {"signed", "fetched back", "unconfirmed", "none"}


@for_each("form", ["table", "json", "csv"])
def test_a_profile_is_shown_whole(form: str, capsys: Output) -> None:
    """Every key with its value, those with defaults too."""
    assert run(["profiles", "show", "checkout", "--format", form]) == 0
    shown = capsys.readouterr().out
    for words in ("{header:webhook-id}.{ts}.{body}", "payment.succeeded", "300"):
        assert words in shown


def test_what_the_shop_must_name_is_shown(capsys: Output) -> None:
    """Of every profile whose provider names no order, and of no other."""
    facts = {}
    for name in shipped_profiles():
        assert run(["profiles", "show", name, "--format", "json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        must = shown.get("the_shop_must")
        names = shown["event"]["order"] or (shown["fetch_back"] or {}).get("order")
        assert (must is None) == (bool(names) or shown["verifies_only"]), name
        facts[name] = must
    assert "PUT /api/v1/orders/REF" in facts["mpesa_stk"]
    assert facts["mpesa_stk"].startswith("name the session or the payment of each order")
    assert facts["checkout"] is None
    assert run(["profiles", "show", "mpesa_stk"]) == 0
    assert "the_shop_must" in capsys.readouterr().out


@for_each("command", ["show", "check"])
def test_a_profile_that_is_not_there_is_not_found(command: str, capsys: Output) -> None:
    """Exit code 5, and the sentence says which command lists those that are."""
    assert run(["profiles", command, "nobody.toml"]) == 5
    assert "profiles list" in capsys.readouterr().err


def test_a_file_is_checked(tmp_path: Path, capsys: Output) -> None:
    """A good file is in order; a bad one has each mistake by line, and exit code 1."""
    good = tmp_path / "mine.toml"
    good.write_text((SHIPPED / "checkout.toml").read_text())
    assert run(["profiles", "check", str(good)]) == 0
    assert "has no mistakes" in capsys.readouterr().out
    bad = tmp_path / "bad.toml"
    text = good.read_text().replace('unit = "s"', 'unit = "h"').replace("past_s", "passed_s")
    bad.write_text(text)
    unit, past = (
        next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(words))
        for words in ('unit = "h"', "passed_s")
    )
    assert run(["profiles", "check", str(bad)]) == 1
    facts = capsys.readouterr().out
    assert f"{bad}:{unit}: timestamp.unit: must be one of" in facts
    assert f"{bad}:{past}: timestamp.passed_s: there is no such key" in facts
    assert run(["profiles", "check", str(bad), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], len(document["problems"])) == (False, 2)


def test_signatures_are_checked_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """One verdict a line, in order, and exit code 0 whatever the verdicts are."""
    lines = b'nonsense\n{"name": "a", "secret": "whsec_AAAA", "body": "x"}\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert run(["signature", "check", "--profile", "checkout"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["reason"] == "not_a_request"
    assert (second["name"], second["reason"]) == ("a", "signature_missing")


@pytest.mark.parametrize("profile", ["stripe", "pawapay", "checkout", "plaid", "moonpay"])
def test_no_tolerance_is_no_check_of_age(
    profile: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Years later, and years before: null asks for no check, where the profile's own is kept when
    the member is absent. What was changed is refused all the same."""
    vectors = (Path("tests/vectors") / f"{profile}.jsonl").read_text().splitlines()
    genuine = next(v for v in map(json.loads, vectors) if v["valid"])
    forged = next(v for v in map(json.loads, vectors) if v.get("reason") == "signature_mismatch")
    lines = []
    for vector in (genuine, forged):
        for now in (1, 4_000_000_000):
            lines += [{**vector, "now": now, "tolerance": None}, {**vector, "now": now}]
            lines[-1].pop("tolerance", None)
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert run(["signature", "check", "--profile", profile]) == 0
    found = [json.loads(line)["valid"] for line in capsys.readouterr().out.splitlines()]
    assert found == [True, False, True, False, False, False, False, False]
