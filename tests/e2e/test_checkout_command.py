"""`checkout start`, against the simulated provider: what it prints, and what it ends with."""

import json
from pathlib import Path

import pytest

from app.cli.main import run
from tests.api.driving import environ
from tests.e2e.provider import UNIT_OF_PEOPLE_S, checkout_settings, get, provider
from tests.ports import free_port

ORDER = ["--order", "ORD-1", "--currency", "KES"]
START = ["checkout", "start", *ORDER, "--amount"]


def test_starting_a_payment_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with provider(webhook_port=free_port(), unit_s=UNIT_OF_PEOPLE_S) as port:
        for name, value in environ(tmp_path, **checkout_settings(port)).items():
            monkeypatch.setenv(name, value)
        assert run([*START, "1500.00", "--format", "json"]) == 0
        first = json.loads(capsys.readouterr().out)
        assert run([*START, "1500", "--phone", "254700000001"]) == 0
        again = capsys.readouterr()
        assert again.out.strip() == first["checkout_url"]
        assert "is open" in again.err
        assert run([*START, "1600.00"]) == 2
        assert "KES 1,500.00, now for KES 1,600.00" in capsys.readouterr().err
        assert run([*START, "1500.00", "--new-payment"]) == 2
        assert "is still open" in capsys.readouterr().err
        assert run([*START, "15.001", "--phone", "07"]) == 2
        both = capsys.readouterr().err
        assert "phone" in both
        assert "amount" in both
        assert get(port, "/sandbox/state")["sessions"] == 1
        monkeypatch.setenv("TALLYHOOK_CHECKOUT__TOKEN", "wrong_token_for_sure_1")
        assert run(["checkout", "start", "--order", "ORD-2", "--currency", "KES",
                    "--amount", "1"]) == 4  # fmt: skip
        assert "401: correct the token" in capsys.readouterr().err
        monkeypatch.setenv("TALLYHOOK_CHECKOUT__TOKEN", "live_4f1d9c8b7a6e5d4c")
        assert run([*START, "1500.00"]) == 3
        refused = capsys.readouterr().err
    assert "CHECKOUT__TOKEN" in refused
    assert "4f1d9c8b7a6e5d4c" not in refused


def test_without_a_payment_service_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert run([*START, "1500.00"]) == 3
    assert "TALLYHOOK_CHECKOUT__BASE_URL" in capsys.readouterr().err
