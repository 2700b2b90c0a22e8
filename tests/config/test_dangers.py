"""Configurations that would lose money, data or secrets: `serve` says why, and does not start."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.main import run
from app.config import database_place, load
from app.config.load import SIMULATOR_SECRET, load_settings
from app.config.values import networks
from app.database.locks import ServiceLock
from app.golive.examine import problems_of_sources
from app.providers.profile import shipped_profiles
from app.sandbox.settings import SANDBOX_SECRET
from tests.contexts import RETAINED
from tests.forking import start
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.disk

SECRET = "whsec_q8Zr5kWn2Lx7Tj4Vb9Hd3Fg6Ms1PqX5t"
OTHER = "whsec_Yt6Ub3Re9Wq2Kj7Hf5Nc8Xv4Za1DmQ7w"
TOKEN = "tok_9f8e7d6c5b4a3f2e1d"

Given = dict[str, str]
Prepare = Callable[[Path], Given]


def write(path: Path, text: str, mode: int = 0o600) -> str:
    """Write a file with this text and mode; return its path."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def database(path: Path, mode: int = 0o600) -> Given:
    """Make a database file with this mode."""
    write(path, "", mode)
    return {"DATABASE_URL": f"sqlite+aiosqlite:///{path}"}


def folder(path: Path, mode: int) -> Path:
    """Make a folder with this mode."""
    path.mkdir()
    path.chmod(mode)
    return path


def profile(path: Path, old: str, new: str) -> Given:
    """Write the shipped profile with one change."""
    shipped = Path(load.__file__).parents[1] / "providers/profiles/checkout.toml"
    text = shipped.read_text()
    assert old in text
    return {"SOURCES__SHOP__PROFILE": write(path, text.replace(old, new))}


def unsigned(path: Path) -> Given:
    """Write the shipped profile without signatures and questions."""
    given = profile(path, 'mac = "hmac-sha256"', 'mac = "none"')
    text = re.sub(r"(?ms)^\[timestamp\].*?^(?=\[)|^secret = .*?\n", "", path.read_text())
    path.write_text(re.sub(r"(?m)^(where|format|label|encoding|signed) = .*\n", "", text, count=5))
    return given


def stamped(path: Path, environment: str) -> Given:
    """Make a database of this environment."""
    given = {"DATABASE_URL": f"sqlite+aiosqlite:///{path}", "ENVIRONMENT": environment}
    variables = {**RETAINED, **{f"TALLYHOOK_{name}": value for name, value in given.items()}}
    words = [sys.executable, "-m", "app", "db", "upgrade"]
    assert start(words, env=os.environ | variables).wait(PATIENCE_S) == 0
    return {"DATABASE_URL": given["DATABASE_URL"]}


def is_served(path: Path) -> Given:
    """Make a database that somebody else serves."""
    given = database(path)
    ServiceLock(path).serve()
    return given


DANGERS: dict[str, tuple[Given | Prepare, str]] = {
    "no environment": ({"ENVIRONMENT": ""}, "ENVIRONMENT: is required"),
    "no such environment": ({"ENVIRONMENT": "production"}, "ENVIRONMENT: must be sandbox or live"),
    "no secret": (
        {"SOURCES__SHOP__SECRETS": "", "SOURCES__SHOP__PROFILE": "checkout"},
        "SHOP__SECRETS: holds an empty secret",
    ),
    "a short secret": ({"SOURCES__SHOP__SECRETS": "whsec_Zr5kWn2Lx7Tj"}, "fewer than 16"),
    "a default secret": ({"SOURCES__SHOP__SECRETS": "whsec_change-me-change-me"}, "well-known"),
    "one key pressed": ({"SOURCES__SHOP__SECRETS": "a" * 40}, "a well-known secret"),
    "a published secret": (
        {"SOURCES__SHOP__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        "public documents",
    ),
    "the simulator's secret": ({"SOURCES__SHOP__SECRETS": SIMULATOR_SECRET}, "everyone knows"),
    "the simulator's secret for the shop": (
        {"SHOP__URL": "https://shop.example/paid", "SHOP__SECRET": SIMULATOR_SECRET},
        "SHOP__SECRET: holds the simulated provider's secret",
    ),
    "the same secret twice": (
        {"SOURCES__SHOP__SECRETS": f"{SECRET},{SECRET}"},
        "the same secret twice",
    ),
    "one secret for two": ({"SOURCES__B__SECRETS": SECRET}, "give each source its own secret"),
    "the same in another spelling": (
        {"SOURCES__B__SECRETS": SECRET.removeprefix("whsec_")},
        "in another spelling",
    ),
    "the token as a secret": (
        {"CHECKOUT__BASE_URL": "https://pay.example", "CHECKOUT__TOKEN": SECRET},
        "CHECKOUT__TOKEN: holds the same secret",
    ),
    "a public key as a secret": (
        {
            "SOURCES__SHOP__PROFILE": "stripe",
            "SOURCES__SHOP__SECRETS": "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
        },
        "SHOP__SECRETS: source shop: secret 1 of 1 is a public key or its private half",
    ),
    "a path for a secret": (
        lambda at: {"SOURCES__SHOP__SECRETS": write(at / "secrets-of-the-shop", SECRET)},
        "set TALLYHOOK_SOURCES__SHOP__SECRETS_FILE to that path",
    ),
    "a sandbox secret in live": (
        {"SOURCES__SHOP__SECRETS": "whsec_test_" + OTHER[6:]},
        "a sandbox secret in environment live",
    ),
    "a live secret in the sandbox": (
        {"ENVIRONMENT": "sandbox", "SOURCES__SHOP__SECRETS": "whsec_live_" + OTHER[6:]},
        "a live secret in environment sandbox",
    ),
    "the other environment's token": (
        {"CHECKOUT__BASE_URL": "https://pay.example", "CHECKOUT__TOKEN": "sk_test_" + OTHER},
        "CHECKOUT__TOKEN: holds a sandbox secret",
    ),
    "the service's sandbox in live": (
        {"CHECKOUT__BASE_URL": "https://api-sandbox.pay.example", "CHECKOUT__TOKEN": TOKEN},
        "a test host",
    ),
    "plain http": (
        {"CHECKOUT__BASE_URL": "http://pay.example", "CHECKOUT__TOKEN": TOKEN},
        "BASE_URL: sends the token unencrypted",
    ),
    "a password in the address": (
        {"CHECKOUT__BASE_URL": "https://u:p@pay.example", "CHECKOUT__TOKEN": TOKEN},
        "BASE_URL: must be a URL without user",
    ),
    "everyone is a proxy": ({"FORWARDED_ALLOW_IPS": "*"}, "any sender forge its address"),
    "half the world is a proxy": ({"FORWARDED_ALLOW_IPS": "128.0.0.0/1"}, "any sender forge"),
    "debugging": (
        {"LOG_LEVEL": "debug"},
        "LOG_LEVEL: has the value debug, which is for testing only",
    ),
    "no assertions": ({"PYTHONOPTIMIZE": "1"}, "PYTHONOPTIMIZE: turns off"),
    "development mode": ({"PYTHONDEVMODE": "1"}, "PYTHONDEVMODE: is for testing only"),
    "a body without end": ({"MAX_BODY_BYTES": "99999999999"}, "MAX_BODY_BYTES: must be"),
    "no body at all": ({"MAX_BODY_BYTES": "0"}, "MAX_BODY_BYTES: must be"),
    "a body beyond all bodies": (
        {"MAX_BODY_BYTES": "1048576", "MAX_BODIES_BYTES": "1024"},
        "must not be more than TALLYHOOK_MAX_BODIES_BYTES",
    ),
    "no deadline": ({"RECEIVE_DEADLINE_S": "0"}, "RECEIVE_DEADLINE_S: must be"),
    "a future without end": ({"FUTURE_TOLERANCE_S": "999999"}, "FUTURE_TOLERANCE_S: must be"),
    "connections without end": ({"MAX_CONNECTIONS": "1000000"}, "MAX_CONNECTIONS: must be"),
    "one address takes all": (
        {"MAX_CONNECTIONS_PER_ADDRESS": "500", "MAX_CONNECTIONS": "400"},
        "must not be more than TALLYHOOK_MAX_CONNECTIONS",
    ),
    "a batch beyond the queue": (
        {"INBOX_BATCH": "9", "INBOX_QUEUE": "8"},
        "must not be more than TALLYHOOK_INBOX_QUEUE",
    ),
    "a misspelt setting": ({"ENVIROMENT": "live"}, "the closest name is TALLYHOOK_ENVIRONMENT"),
    "no file of settings": (
        {"CONFIG": "/nowhere/at/all"},
        "CONFIG: names no existing file",
    ),
    "a folder of settings": (lambda at: {"CONFIG": str(at)}, "CONFIG: names no existing file"),
    "settings that are no text": (
        lambda at: {"CONFIG": str(binary(at / "settings.env"))},
        "CONFIG: names a file that is not UTF-8 text",
    ),
    "settings that others change": (
        lambda at: {"CONFIG": write(at / "settings.env", "TALLYHOOK_GRACE_S=7\n", 0o666)},
        "CONFIG: names a file others can change",
    ),
    "secrets that everyone reads": (
        lambda at: secrets_file(at / "secrets", 0o644),
        "SHOP__SECRETS_FILE: names a file of secrets that any user can access (mode 644)",
    ),
    "secrets in an open folder": (
        lambda at: secrets_file(folder(at / "open", 0o777) / "secrets", 0o600),
        "SHOP__SECRETS_FILE: names a file in a folder others can change",
    ),
    "a database in memory": ({"DATABASE_URL": "sqlite+aiosqlite:///:memory:"}, "must be a file"),
    "a database without locks": (
        {"DATABASE_URL": "sqlite+aiosqlite:////srv/t.db?nolock=1"},
        "they can turn off locks",
    ),
    "another database": ({"DATABASE_URL": "mysql://h/d"}, "DATABASE_URL: must begin with sqlite"),
    "a folder as a database": (
        lambda at: {"DATABASE_URL": f"sqlite+aiosqlite:///{at}"},
        "names a folder or a device",
    ),
    "a database that cannot be looked at": (
        {"DATABASE_URL": f"sqlite+aiosqlite:////{'x' * 300}"},
        "names a file that this user may not access (File name too long); run this as",
    ),
    "a device as a database": (
        {"DATABASE_URL": "sqlite+aiosqlite:////dev/null"},
        "names a folder or a device",
    ),
    "a database that everyone reads": (
        lambda at: database(at / "t.db", 0o644),
        "names a database that any user can access (mode 644); chmod 600 it",
    ),
    "a database in an open folder": (
        lambda at: database(folder(at / "open", 0o777) / "t.db"),
        "names a database in a folder that other users can write to (mode 777)",
    ),
    "the other environment's database": (
        lambda at: stamped(at / "t.db", "sandbox"),
        "ENVIRONMENT: this database belongs to sandbox",
    ),
    "a database somebody serves": (
        lambda at: is_served(at / "t.db"),
        "DATABASE_URL: another process already serves",
    ),
    "a profile that verifies nothing": (
        lambda at: unsigned(at / "own.toml"),
        'set confirm = "fetch_back"',
    ),
    "a profile that takes old deliveries": (
        lambda at: profile(at / "own.toml", "past_s = 300", "past_s = 604800"),
        "SHOP__PROFILE: accepts deliveries signed more than an hour",
    ),
    "books kept for nobody knows how long": (
        {"RETENTION_ACCOUNTS_DAYS": ""},
        "which the law requires you to keep books, or 0",
    ),
    "no period for disputes": ({"RETENTION_DISPUTES_DAYS": ""}, "usually 120 to 540"),
    "no period for a payer": ({"RETENTION_UNALLOCATED_DAYS": ""}, "RETENTION_UNALLOCATED_DAYS: is"),
    "no profile of that name": ({"SOURCES__SHOP__PROFILE": "nobodys"}, "SHOP__PROFILE: there is"),
}
"""Changes to a sound live configuration, and the sentence that must report each."""


def binary(path: Path) -> Path:
    """Write a file that is no text."""
    path.write_bytes(b"\xff\xfe\x00")
    return path


def secrets_file(path: Path, mode: int) -> Given:
    """Write the shop's secrets to a file."""
    return {"SOURCES__SHOP__SECRETS_FILE": write(path, SECRET, mode)}


def environment(at: Path, given: Given) -> Given:
    """Return a sound configuration of live, changed by what is given."""
    own = folder(at / "own", 0o700)
    sound = {
        **{name.removeprefix("TALLYHOOK_"): days for name, days in RETAINED.items()},
        "ENVIRONMENT": "live",
        "DATABASE_URL": f"sqlite+aiosqlite:///{own}/t.db",
        "SOURCES__SHOP__SECRETS": SECRET,
    }
    if "SOURCES__SHOP__SECRETS_FILE" in given:
        del sound["SOURCES__SHOP__SECRETS"]
    together = {**sound, **given}
    return {
        name if name.startswith("PYTHON") else f"TALLYHOOK_{name}": value
        for name, value in together.items()
    }


@pytest.fixture(autouse=True)
def a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the tests' folder is on a local disk."""
    table = tmp_path / "mounts"
    table.write_text("/dev/vda / ext4 rw 0 0\n")
    monkeypatch.setattr(database_place, "MOUNTS", table)


def serve_refuses(
    variables: Given, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the one line that `serve` ends with, exit code 3."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(["serve", "--port", "0"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, err
    return err


LOADED = "from app.config.load import load_settings; load_settings(serving=True)"
IN_PROCESS = [name for name, (given, _) in DANGERS.items() if "PYTHON" not in str(given)]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_serve_refuses_it_with_one_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the variable's name, what would be right, and no secret."""
    danger, sentence = DANGERS[name]
    given = danger if isinstance(danger, dict) else danger(tmp_path)
    line = serve_refuses(environment(tmp_path, given), monkeypatch, capsys)
    assert line.startswith("TALLYHOOK_")
    assert sentence in line
    secrets = [v for k, v in given.items() if k.endswith(("SECRETS", "TOKEN")) and len(v) > 3]
    assert not any(part in line for value in secrets for part in value.split(","))


def test_everything_wrong_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {
        "GRACE_S": "soon",
        "SOURCES__SHOP__SECRETS": "whsec_" + "not*base64" * 4,
        "SOURCES__TILL__PROFILE": "strip",
        "SOURCES__TILL__SECRETS": OTHER,
        "SOURCES__SHORT__SECRETS": "short",
        "SOURCES__MOMO__PROFILE": "flutterwave_v3",
        "SOURCES__MOMO__SECRETS": TOKEN + OTHER,
    }
    for name, value in environment(tmp_path, given).items():
        monkeypatch.setenv(name, value)
    assert run(["serve", "--port", "0"]) == 3
    names = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(names) == [
        "TALLYHOOK_GRACE_S",
        "TALLYHOOK_SOURCES__MOMO__CREDENTIALS",
        "TALLYHOOK_SOURCES__SHOP__SECRETS",
        "TALLYHOOK_SOURCES__SHORT__SECRETS",
        "TALLYHOOK_SOURCES__TILL__PROFILE",
    ]


def test_options_of_the_interpreter_are_refused(tmp_path: Path) -> None:
    """They can only be tried in a process of its own. A whole service would first be compiled
    without its assertions."""
    dangers = [DANGERS[name] for name in ("a default secret", "no assertions", "development mode")]
    given: Given = {}
    for danger, _ in dangers:
        assert isinstance(danger, dict)
        given |= danger
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADED],
        env=os.environ | environment(tmp_path, given),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "ConfigurationError" in done.stderr
    assert [done.stderr.count(sentence) for _, sentence in dangers] == [1, 1, 1], done.stderr


def test_there_are_more_than_thirty_and_the_simulators_secret_is_the_simulators() -> None:
    assert len(DANGERS) >= 40
    assert SIMULATOR_SECRET == SANDBOX_SECRET


@pytest.mark.slow
def test_what_the_service_makes_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "t.db"
    stamped(path, "live")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_network_of_proxies_is_written_as_the_server_reads_it() -> None:
    """Uvicorn would match nobody with host bits."""
    assert networks("10.1.2.3/8,192.168.1.7,fd00::1/64") == (
        "10.0.0.0/8", "192.168.1.7", "fd00::/64",
    )  # fmt: skip


@pytest.mark.parametrize("name", shipped_profiles())
def test_what_is_shipped_serves_live(name: str, tmp_path: Path) -> None:
    given = environment(tmp_path, {"SOURCES__SHOP__PROFILE": name})
    settings = load_settings(given)
    assert settings.environment == "live"
    problems = problems_of_sources(settings)
    assert [each for each in problems if "__PROFILE:" in each] == []
