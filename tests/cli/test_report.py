"""`report period` and `report journal`: what they write, where to, and what they refuse."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli import main, printing
from app.core.errors import UsageError
from reconcile.reporting.report import PeriodReport
from tests.api.driving import driving, environ, event, of_order
from tests.copied import copy_of
from tests.finance.reports.samples import sample

Run = Callable[..., tuple[int, bytes, str]]
YEAR = ("--from", "2020-01-01", "--to", "2026-12-31")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Run a command over two orders, one paid; return its exit code, output and errors."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    copy_of(_fill, tmp_path)

    def running(*words: str) -> tuple[int, bytes, str]:
        capfdbinary.readouterr()
        code = main.run(words)
        written = capfdbinary.readouterr()
        errors = written.err.decode()
        assert "Traceback" not in errors
        return code, written.out, errors

    return running


async def _fill(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        for body in (of_order("O-1", "e1", "declined"), event("e2")):
            assert (await driver.send(body)).status_code == 200


def test_a_report_goes_to_standard_output_or_whole_into_a_file(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("report", "period", *YEAR, "--format", "json")
    assert code == 0
    report = json.loads(out)
    assert report["ties_hold"]
    assert {row["bucket"]: row["count"] for row in report["control"]} == {
        "failed": 1,
        "succeeded": 1,
    }
    path = tmp_path / "made" / "r.json"
    path.parent.mkdir()
    path.write_text("an older report")
    words = ("--as-of", report["as_of"], "--format", "json", "-o", str(path))
    with path.open() as reader:
        code, nothing, _ = run("report", "period", *YEAR, *words)
        assert reader.read() == "an older report"
    assert (code, nothing) == (0, b"")
    assert path.read_bytes() == out
    assert os.listdir(path.parent) == ["r.json"]


def test_a_tie_that_does_not_hold_is_an_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sample(10)
    broken = replace(whole, ties=(replace(whole.ties[0], left_value=99), *whole.ties[1:]))

    async def reported(*_: object, **__: object) -> PeriodReport:
        return broken

    monkeypatch.setattr("app.finance.report_period.report_period", reported)
    code, out, err = run("report", "period", *YEAR)
    assert (code, err) == (
        1,
        "Some control totals do not tie: the report's first lines name them.\n",
    )
    assert f"1 of {len(whole.ties)} control sums do not agree: ".encode() in out


@pytest.mark.parametrize("form", ["xlsx", "pdf"])
def test_what_is_not_text_needs_a_file_or_a_pipe(run: Run, form: str, tmp_path: Path) -> None:
    code, out, err = run("report", "period", *YEAR, "--format", form)
    assert (code, out) == (2, b"")
    assert f"{form.upper()} is a binary format: give -o FILE, or -o - into a pipe" in err
    code, out, err = run("report", "period", *YEAR, "--format", form, "-o", "-")
    assert (code, err) == (0, "")
    assert out.startswith(b"PK" if form == "xlsx" else b"%PDF")


def test_a_terminal_is_not_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(UsageError, match="which a terminal cannot show: give -o FILE"):
        printing.check_output(printing.STANDARD, binary=True, what="PDF")


@pytest.mark.parametrize(
    "words", [("period", "--format", "csv"), ("period", "--format", "xlsx"), ("journal",)]
)
def test_a_file_of_money_is_for_its_owner_alone(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Mode 0600 whatever the process's mask allows, from its beginning, and also where a file that
    others could read is replaced."""
    path = tmp_path / "report"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        assert run("report", words[0], *YEAR, *words[1:], "-o", str(path))[0] == 0
        assert path.stat().st_mode & 0o777 == 0o600
        with printing.whole_file(path) as file:
            assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_file_that_could_not_be_finished_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("an older report")
    half = printing.whole_file(path)
    half.__enter__().write(b"half")
    assert len(os.listdir(tmp_path)) == 2
    assert not half.__exit__(RuntimeError, RuntimeError(), None)
    assert path.read_text() == "an older report"
    assert os.listdir(tmp_path) == ["r.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "2026-10-01", "--to", "2026-09-30"), "--from must be before --to"),
        (("--from", "yesterday", "--to", "2026-09-30"), "--from: write a date such as 2026-10-01"),
        ((*YEAR, "--as-of", "2199-01-01"), "--as-of is in the future"),
        ((*YEAR, "--basis", "booked"), "booked"),
        ((*YEAR, "-o", "/nowhere/r.txt"), "there is no folder /nowhere"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    code, out, err = run("report", "period", *words)
    assert (code, out) == (2, b"")
    assert said in err


def test_a_journal_is_written_with_the_merchants_accounts(run: Run, tmp_path: Path) -> None:
    mapping = tmp_path / "accounts.toml"
    mapping.write_text('[accounts]\nreceivable = "Assets:Shop"\n')
    code, out, err = run("report", "journal", *YEAR, "--accounts", str(mapping))
    assert (code, err) == (0, "1 transaction.\n")
    assert b"  Assets:Shop  -1500.00 KES\n" in out
    code, out, _ = run("report", "journal", *YEAR, "--format", "csv")
    assert out.count(b"\r\n") == 3
    mapping.write_text("[accounts]\nsales = 1\n")
    code, out, err = run("report", "journal", *YEAR, "--accounts", str(mapping))
    assert (code, out) == (3, b"")
    assert "sales: write an account like Income:Sales" in err


def test_reports_and_journals_use_the_accounts_and_rates_of_the_settings(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, rates = tmp_path / "accounts.toml", tmp_path / "rates.csv"
    accounts.write_text('revenue_at = "fulfilment"\n[accounts]\ndeposits = "Liabilities:Shop"\n')
    days = "\n".join(f"2026-11-{day:02},KES,0.01" for day in range(1, 31))
    rates.write_text(f"date,currency,rate\n{days}\n")
    for name, value in {"ACCOUNTS": accounts, "RATES": rates, "CURRENCY": "EUR"}.items():
        monkeypatch.setenv(f"TALLYHOOK_REPORTS__{name}", str(value))
    code, out, _ = run("report", "journal", *YEAR)
    assert (code, b"  Liabilities:Shop  -1500.00 KES\n" in out) == (0, True)
    assert out.rstrip().endswith(b" price KES 0.01 EUR")
    code, out, _ = run("report", "journal", *YEAR, "--format", "xero")
    assert (code, out.count(b",-15.00,")) == (0, 1)
    code, out, _ = run("report", "period", *YEAR, "--format", "json")
    own = {row["flow"]: row["sum"] for row in json.loads(out)["own"] if row["of"] is None}
    assert own["captured"] == {"amount": "15.00", "currency": "EUR"}
    rates.write_text("date,currency,rate\n2026-11-01,KES,x\n")
    code, out, err = run("report", "period", *YEAR)
    assert (code, out) == (3, b"")
    assert f"{rates}:2: 'x' is not a rate such as 0.0067" in err
    monkeypatch.setenv("TALLYHOOK_REPORTS__CURRENCY", "euro")
    assert "must be an ISO 4217 code, such as KES" in run("report", "period", *YEAR)[2]
