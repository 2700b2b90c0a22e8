"""The configuration says everything that is wrong with it at once, and never a secret."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.config.load import known_variables, load_settings
from app.config.settings import Settings
from app.core.errors import ConfigurationError
from app.evidence.witnesses import witnesses_of
from reconcile.instants import SECOND
from reconcile.ledger.policy import Policy
from tests.evidence.witness import TestWitness
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.disk

SECRET = "whsec_q8Zr5kWn2Lx7Tj4Vb9Hd3Fg6Ms1P"
OTHER = "whsec_Yt6Ub3Re9Wq2Kj7Hf5Nc8Xv4Za1D"
CANARY = "CANARYcanary7319QZ"


def variables(**settings: str) -> dict[str, str]:
    """Add the prefix to names of settings."""
    return {f"TALLYHOOK_{name}": value for name, value in settings.items()}


def load(**settings: str) -> Settings:
    return load_settings(variables(**settings))


def problems(*, serving: bool = False, **settings: str) -> tuple[str, ...]:
    """Return what is reported of these settings."""
    try:
        load_settings(variables(**settings), serving=serving)
    except ConfigurationError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("bad", ["x", "-1", "\udc80", "9" * 5_000])
def test_every_setting_is_taken_or_refused_with_a_sentence(bad: str) -> None:
    """Bytes of an environment that are no UTF-8 are halves of pairs in Python."""
    for variable in known_variables():
        name = variable.replace("<NAME>", "SHOP").removeprefix("TALLYHOOK_")
        given: dict[str, Any] = {name: bad}
        assert all(problems(**given)), name


def test_keys_are_a_json_object_of_texts() -> None:
    keys = '{"key-1": "wQ7m4Rz9Kp2Lx8Vt", "key-2": "aB3dE5fG7hJ9kL1m"}'
    given = {"TALLYHOOK_SOURCES__SHOP__KEYS": keys}
    found = load_settings(given).sources["shop"].keys
    assert {name: key.get_secret_value()[0] for name, key in found.items()} == {
        "key-1": "w",
        "key-2": "a",
    }
    for bad in ("[]", "{", '{"a": 1}', "key"):
        with pytest.raises(ConfigurationError, match="SHOP__KEYS: must be a JSON object"):
            load_settings({"TALLYHOOK_SOURCES__SHOP__KEYS": bad})


def test_nothing_given_is_a_whole_configuration_with_the_policy_of_the_engine() -> None:
    settings = load()
    assert settings.environment is None
    assert settings.sources == {}
    assert settings.checkout.base_url is None
    assert settings.policy() == Policy()


def test_source_names_are_lower_case_and_their_secrets_keep_their_order() -> None:
    settings = load(
        SOURCES__SHOP__SECRETS=f"{SECRET}, {OTHER}", **{"SOURCES__B-2_x__PROFILE": "stripe"},
        **{"SOURCES__B-2_x__SECRETS": f'["{SECRET}0"]'},
    )  # fmt: skip
    shop, other = settings.sources["shop"], settings.sources["b-2_x"]
    assert shop.profile == "checkout"
    assert [secret.get_secret_value() for secret in shop.secrets] == [SECRET, OTHER]
    assert (other.profile, other.secrets[0].get_secret_value()) == ("stripe", SECRET + "0")


def test_policy_is_in_microseconds_and_no_window_means_the_shop_does_not_tell() -> None:
    policy = load(GRACE_S="7", FULFILLMENT_WINDOW_S="0", LATE_AFTER_S="9").policy()
    assert (policy.grace, policy.late_after) == (7 * SECOND, 9 * SECOND)
    assert policy.fulfillment_window is None


def test_environment_is_required_to_serve_and_only_then() -> None:
    assert problems(serving=True) == (
        "TALLYHOOK_ENVIRONMENT: is required by `tallyhook serve`: set it to sandbox or live, in "
        "the environment or in the file that TALLYHOOK_CONFIG names",
    )
    assert problems() == ()
    assert problems(serving=True, ENVIRONMENT="sandbox") == ()


def test_all_problems_are_reported_at_once_one_line_each() -> None:
    found = problems(
        serving=True,
        MAX_BODY_BYTES="lots",
        GRACE_S="-1",
        LOG_LEVEL="loud",
        SOURCES__A__SECRETS="short",
        SOURCES__B__PROFILE="x y",
        CHECKOUT__BASE_URL="nowhere",
        NOTHING="1",
    )
    assert [line.partition(":")[0].removeprefix("TALLYHOOK_") for line in found] == [
        "CHECKOUT__BASE_URL",
        "CHECKOUT__TOKEN",
        "ENVIRONMENT",
        "GRACE_S",
        "LOG_LEVEL",
        "MAX_BODY_BYTES",
        "NOTHING",
        "SOURCES__A__SECRETS",
        "SOURCES__B__PROFILE",
        "SOURCES__B__SECRETS",
    ]
    assert all("\n" not in line for line in found)


GOOD = {"SOURCES__SHOP__SECRETS": SECRET}
CHECKOUT = {"CHECKOUT__BASE_URL": "https://pay.example", "CHECKOUT__TOKEN": OTHER}

WITNESSES = "EVIDENCE__WITNESSES"
WITNESS = TestWitness("witness.example/w1", lambda: 0).key
W_URL = "https://witness.example/w1"
LOG_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"

DANGEROUS = [
    ({"ENVIRONMENT": "production"}, "ENVIRONMENT: must be sandbox or live"),
    ({"DATABASE_URL": "sqlite:///x.db"}, "begin with sqlite+aiosqlite:// instead of sqlite://"),
    ({"DATABASE_URL": "sqlite+aiosqlite://"}, "three slashes"),
    ({"DATABASE_URL": "sqlite+aiosqlite:///:memory:"}, "must be a file"),
    ({"DATABASE_URL": "sqlite+aiosqlite:///x?mode=memory&uri=true"}, "must be a file"),
    ({"DATABASE_URL": "sqlite+aiosqlite:///"}, "must be a file"),
    ({"DATABASE_URL": "postgresql://u:p@h/d"}, "postgresql+asyncpg:// instead of postgresql://"),
    ({"DATABASE_URL": "postgres://h/d"}, "postgresql+asyncpg:// instead of postgres://"),
    ({"DATABASE_URL": "postgresql+asyncpg://u:p@h:x/d"}, "is not a URL"),
    ({"DATABASE_URL": "postgresql+asyncpg://u:p@w@h/d"}, "special characters in it as %XX"),
    ({"DATABASE_URL": "postgresql+asyncpg://u:p@s/w@h/d"}, "special characters in it as %XX"),
    ({"DATABASE_URL": "postgresql+asyncpg://u:p@s/w#d@h/d"}, "special characters in it as %XX"),
    ({"DATABASE_URL": "postgresql+asyncpg://h/d?sslmode=require"}, "ssl= instead of sslmode="),
    ({"DATABASE_URL": "postgresql+asyncpg://h/d?ssl=true"}, "verify-ca, verify-full"),
    ({"DATABASE_URL": "postgresql+asyncpg://h/d?connect_timeout=5"}, "an unknown option"),
    ({"DATABASE_URL": "mysql://h/d"}, "must begin with sqlite+aiosqlite:/// and a path"),
    ({"SOURCES__SHOP__PROFILE": "checkout"}, "SOURCES__SHOP__SECRETS: is missing"),
    ({"SOURCES__SHOP__SECRETS": ""}, "SHOP__SECRETS: holds an empty secret"),
    ({"SOURCES__SHOP__SECRETS": f"{SECRET},"}, "holds an empty secret"),
    ({"SOURCES__SHOP__SECRETS": "whsec_123456789abcdef"}, "fewer than 16 characters"),
    ({"SOURCES__SHOP__SECRETS": "whsec_change-me-change-me"}, "a well-known secret"),
    ({"SOURCES__SHOP__SECRETS": "YOUR_WEBHOOK_SECRET_HERE"}, "a well-known secret"),
    ({"SOURCES__SHOP__SECRETS": "x" * 40}, "a well-known secret"),
    ({"SOURCES__SHOP__SECRETS": f'"{SECRET}"'}, "holds a secret in quotes; remove the quotes"),
    ({"SOURCES__SHOP__SECRETS": f"\u201c{SECRET}\u201d"}, "holds a secret in quotes"),
    ({"SOURCES__SHOP__SECRETS": '["a", 1]'}, "must be a JSON list of texts"),
    ({"SOURCES__SHOP__SECRETS": '["unfinished'}, "must be a JSON list of texts"),
    ({"PUBLIC_URL": "https://hooks.example/webhooks/shop"}, "PUBLIC_URL: must be only scheme"),
    ({"PUBLIC_URL": "https://hooks example"}, "PUBLIC_URL: must be a URL"),
    ({**GOOD, "SOURCES__B__SECRETS": SECRET}, "same secret as TALLYHOOK_SOURCES__"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__TOKEN": SECRET}, "secret as TALLYHOOK_SOURCES__SHOP__SECRETS"),
    ({**GOOD, "SOURCES__SHOP__SECRETS_FILE": "/dev/null"}, "keep one of the two"),
    ({"SOURCES__SHOP__SECRETS_FILE": "/nowhere/at/all"}, "no existing file"),
    ({"SOURCES__SHOP__SECRETS_FILE": "/dev/zero"}, "no existing file"),
    ({"SOURCES__SHOP__SECRETS_FILE": "a\0b"}, "SECRETS_FILE: names"),
    ({"SOURCES__SH OP__SECRETS": SECRET}, "has an invalid source name"),
    ({f"SOURCES__{'A' * 41}__SECRETS": SECRET}, "has an invalid source name"),
    ({"SOURCES__MY__SHOP__SECRETS": SECRET}, "closest name is TALLYHOOK_SOURCES__<NAME>__SECRET"),
    ({"SOURCES__SHOP__SECRET": SECRET}, "the closest name is TALLYHOOK_SOURCES__SHOP__SECRETS"),
    ({"SOURCES": "{}"}, "SOURCES: is not a setting"),
    ({"ENVIROMENT": "live"}, "the closest name is TALLYHOOK_ENVIRONMENT"),
    ({"PORT": "8081"}, "use the command's option: `tallyhook serve --port`"),
    ({"ENVIRONMENT": "live", "SOURCES__SHOP__SECRETS": "whsec_test_" + OTHER}, "a sandbox secret"),
    ({"ENVIRONMENT": "sandbox", **GOOD, **CHECKOUT, "CHECKOUT__TOKEN": "sk_live_" + OTHER},
     "CHECKOUT__TOKEN: holds a live secret in"),
    ({"ENVIRONMENT": "live", "SOURCES__SHOP__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
     "public documents"),
    ({**GOOD, "CHECKOUT__BASE_URL": "https://pay.example"}, "TOKEN: is missing, although"),
    ({**GOOD, "CHECKOUT__TOKEN": OTHER}, "BASE_URL: is missing, although the token is set"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__BASE_URL": "http://pay.example"}, "unencrypted"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__BASE_URL": "Http://pay.example"}, "unencrypted"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__BASE_URL": "https://u:p@pay.example"}, "without user"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__BASE_URL": "ftp://pay.example"}, "must be a URL such as"),
    ({**GOOD, **CHECKOUT, "CHECKOUT__SOURCE": "other"}, "is not a configured source"),
    ({**GOOD, **CHECKOUT, "SOURCES__B__SECRETS": OTHER + "0"}, "SOURCE: is missing"),
    (CHECKOUT, (
        "SOURCE: is missing; write the source that receives the payment service's webhooks: "
        "none is configured yet"
    )),
    ({"FORWARDED_ALLOW_IPS": "*"}, "lets any sender forge its address"),
    ({"FORWARDED_ALLOW_IPS": "10.0.0.1,0.0.0.0/0"}, "lets any sender forge its address"),
    ({"FORWARDED_ALLOW_IPS": "proxy"}, "must be IP addresses or networks"),
    ({"MAX_BODY_BYTES": "1023"}, "must be a whole number of bytes from 1,024 to 16,777,216"),
    ({"MAX_BODY_BYTES": "16777217"}, "must be a whole number of bytes from 1,024 to 16,777,216"),
    ({"PAYMENT_WINDOW_S": "1.5"}, "must be a whole number of seconds from 1 to 2,592,000"),
    ({"INBOX_BATCH": "9", "INBOX_QUEUE": "8"}, "must not be more than TALLYHOOK_INBOX_QUEUE"),
    ({"LOG_FORMAT": "xml"}, "must be json, console or auto"),
    ({"CONFIG": "/nowhere/at/all"}, "CONFIG: names no existing file"),
    ({WITNESSES: WITNESS}, "witness 1 must be a verifier key, a space and an address"),
    ({WITNESSES: f"x {W_URL},{WITNESS} {W_URL},y"},
     "witness 1 is no verifier key, which has the form NAME+ID+BASE64; witness 3 must be"),
    ({WITNESSES: f"{WITNESS} http://witness.example"}, "would be contacted without encryption"),
    ({WITNESSES: f"{WITNESS} https://u:p@witness.example"}, "without user"),
    ({WITNESSES: f"{WITNESS} {W_URL},{WITNESS} {W_URL}/2"}, "witness 2 has the same key or name"),
    ({WITNESSES: f"{LOG_KEY} {W_URL}"}, "is not a witness's Ed25519 key"),
    ({WITNESSES: f"{WITNESS} {W_URL}", "EVIDENCE__WITNESS_QUORUM": "2"},
     "QUORUM: must be at most 1, the number of witnesses"),
    ({WITNESSES: f"{WITNESS} {W_URL}", "EVIDENCE__WITNESS_QUORUM": "17"}, "from 0 to 16"),
    ({WITNESSES: f"{WITNESS} {W_URL}", "EVIDENCE__WITNESS_EVERY_S": "59"}, "from 60 to 86,400"),
    ({WITNESSES: f"{WITNESS} {W_URL}", "EVIDENCE__WITNESS_ALARM_S": "300"}, "at least twice"),
    ({"EVIDENCE__WITNESS_QUORUM": "1"}, "QUORUM: has no use without TALLYHOOK_EVIDENCE__WITNESSES"),
]  # fmt: skip


def test_witnesses_are_as_many_as_are_named() -> None:
    one, other = (TestWitness(name, lambda: 0).key for name in ("one.example", "other.example"))
    given = f" {one}  {W_URL}/ , {other} http://127.0.0.1:8080/w,"
    settings = load_settings({f"TALLYHOOK_{WITNESSES}": given})
    assert settings.evidence.witnesses == (f"{one} {W_URL}", f"{other} http://127.0.0.1:8080/w")
    assert load_settings({f"TALLYHOOK_{WITNESSES}": ""}).evidence.witnesses == ()
    found = witnesses_of(settings)
    assert found is not None
    assert (found.quorum, [each.url for each in found.each]) == (
        2, [W_URL, "http://127.0.0.1:8080/w"],
    )  # fmt: skip


@pytest.mark.parametrize(("settings", "sentence"), DANGEROUS)
def test_a_dangerous_configuration_is_refused_with_what_would_be_right(
    settings: dict[str, Any], sentence: str
) -> None:
    found = problems(**settings)
    assert len(found) == 1, found
    assert sentence in found[0]
    assert "Value error" not in found[0]
    assert not any(value in found[0] for value in settings.values() if "whsec" in value)


def test_bounds_are_included() -> None:
    assert problems(MAX_BODY_BYTES="1024") == problems(MAX_BODY_BYTES="16777216") == ()


HOLES = [
    "DATABASE_URL", "ENVIRONMENT", "SOURCES__SHOP__PROFILE", "SOURCES__SHOP__SECRETS",
    "SOURCES__SHOP__SECRETS_FILE", "CHECKOUT__BASE_URL", "CHECKOUT__TOKEN", "CHECKOUT__TOKEN_FILE",
    "CHECKOUT__SOURCE", "GRACE_S", "FORWARDED_ALLOW_IPS", "LOG_LEVEL", "CONFIG", "UNKNOWN",
]  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.parametrize(
    "shape", ["{}", '["{}', "sqlite:///{}", "https://u:{}@h:p", "[{}]", "{}:// x"]
)
def test_a_secret_in_the_wrong_place_is_never_printed(hole: str, shape: str) -> None:
    settings: dict[str, Any] = {
        "ENVIRONMENT": "live",
        "CHECKOUT__TOKEN": CANARY,
        hole: shape.format(CANARY),
    }
    text = "\n".join(problems(**settings))
    assert text
    assert CANARY.lower() not in text.lower()


def test_secrets_are_not_in_the_representation() -> None:
    settings = load(
        SOURCES__SHOP__SECRETS=f"{SECRET}{CANARY}",
        CHECKOUT__TOKEN=f"{OTHER}{CANARY}",
        CHECKOUT__BASE_URL="https://pay.example/",
        DATABASE_URL=f"postgresql+asyncpg://u:{CANARY}@h/d",
    )
    assert CANARY not in repr(settings) + str(settings)
    assert CANARY in settings.database_url
    assert settings.checkout.base_url == "https://pay.example"
    assert settings.checkout.source == "shop"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8090", "http://localhost", "http://pay.example"])
def test_plain_http_is_for_the_sandbox(url: str) -> None:
    settings: dict[str, Any] = {**GOOD, **CHECKOUT, "CHECKOUT__BASE_URL": url}
    assert problems(**settings, ENVIRONMENT="sandbox") == ()
    assert any("unencrypted" in line for line in problems(**settings, ENVIRONMENT="live"))


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.env"
    path.write_text("export TALLYHOOK_GRACE_S=7\nTALLYHOOK_PAGE_MAX='8' # why\nPATH=/x\n\n# x\n")
    settings = load(CONFIG=str(path), GRACE_S="9")
    assert (settings.grace_s, settings.page_max) == (9, 8)


def test_a_line_of_the_file_that_cannot_be_read_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "settings.env"
    path.write_text(f"TALLYHOOK_GRACE_S=7\nTALLYHOOK_PAGE_MAX {CANARY}\nTALLYHOOK_LOG_LEVEL\n")
    found = problems(CONFIG=str(path))
    assert found == tuple(
        f"TALLYHOOK_CONFIG: names a file whose line {number} is not NAME=value" for number in (2, 3)
    )
    assert CANARY not in str(found)


def test_two_spellings_of_one_variable_are_refused() -> None:
    found = problems(GRACE_S="7", grace_s="8")
    assert found == (
        "TALLYHOOK_GRACE_S: is set twice, with different capitals; keep the name in upper case",
    )


def test_a_long_secret_that_begins_as_a_path_is_a_secret() -> None:
    long = "/" + "".join(f"{number:x}Zq" for number in range(300))
    assert problems(SOURCES__SHOP__SECRETS=long) == ()


def test_one_name_twice_in_a_file_is_no_other_spelling(tmp_path: Path) -> None:
    path = tmp_path / "settings.env"
    path.write_text("TALLYHOOK_GRACE_S=7\nTALLYHOOK_GRACE_S=8\n")
    found = problems(CONFIG=str(path))
    assert found == ("TALLYHOOK_GRACE_S: is set twice, in one file; keep one of the two",)


def secret_file(path: Path, *, mode: int, text: str = f"{SECRET}\n\n{OTHER}\n") -> str:
    """Write a file of secrets with this mode."""
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_secrets_and_tokens_come_from_files_one_a_line(tmp_path: Path) -> None:
    settings = load(
        ENVIRONMENT="live",
        SOURCES__SHOP__SECRETS_FILE=secret_file(tmp_path / "s", mode=0o640),
        CHECKOUT__BASE_URL="https://pay.example",
        CHECKOUT__TOKEN_FILE=secret_file(tmp_path / "t", mode=0o600, text="tok_9f8e7d6c5b4a3f2e1d"),
    )
    secrets = settings.sources["shop"].secrets
    assert [secret.get_secret_value() for secret in secrets] == [SECRET, OTHER]
    assert settings.checkout.token is not None
    assert settings.checkout.token.get_secret_value() == "tok_9f8e7d6c5b4a3f2e1d"
    assert settings.warnings == ()


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o601])
def test_a_file_that_everyone_may_use_is_refused_in_live_and_warned_of_in_sandbox(
    tmp_path: Path, mode: int
) -> None:
    path = secret_file(tmp_path / "s", mode=mode)
    sentence = (
        f"TALLYHOOK_SOURCES__SHOP__SECRETS_FILE: names a file of secrets that any user can access"
        f" (mode {mode:o}); chmod 640 it"
    )
    assert problems(ENVIRONMENT="live", SOURCES__SHOP__SECRETS_FILE=path) == (sentence,)
    sandbox = load(ENVIRONMENT="sandbox", SOURCES__SHOP__SECRETS_FILE=path)
    assert sandbox.warnings == (sentence,)


def test_the_settings_file_too_must_not_show_its_secrets_to_everyone(tmp_path: Path) -> None:
    path = tmp_path / "settings.env"
    path.write_text(f"TALLYHOOK_ENVIRONMENT=live\nTALLYHOOK_SOURCES__SHOP__SECRETS={SECRET}\n")
    path.chmod(0o644)
    assert [line[:24] for line in problems(CONFIG=str(path))] == ["TALLYHOOK_CONFIG: names "]
    path.chmod(0o640)
    assert problems(CONFIG=str(path)) == ()


def test_a_secret_file_must_hold_text_and_not_too_much_of_it(tmp_path: Path) -> None:
    empty = secret_file(tmp_path / "e", mode=0o600, text="\n \n")
    large = secret_file(tmp_path / "l", mode=0o600, text="x" * (256 * 1024 + 1))
    binary = tmp_path / "b"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, sentence in (
        (empty, "without a secret"),
        (large, "larger than 256"),
        (binary, "UTF-8"),
    ):
        found = problems(ENVIRONMENT="sandbox", SOURCES__SHOP__SECRETS_FILE=str(path))
        assert len(found) == 1, found
        assert sentence in found[0]


def test_serving_without_a_source_is_warned_of() -> None:
    settings = load_settings(variables(ENVIRONMENT="sandbox"), serving=True)
    assert "no source is set up" in settings.warnings[0]


def test_a_console_behind_a_proxy_that_is_not_named_is_warned_of() -> None:
    """All who sign in would share its address, and the tries of one stranger."""
    public = {"ENVIRONMENT": "sandbox", "CONSOLE__PUBLIC_URL": "https://console.shop.example"}
    (warning,) = load_settings(variables(**public)).warnings
    assert warning.startswith("TALLYHOOK_FORWARDED_ALLOW_IPS: is empty")
    named = load_settings(variables(**public, FORWARDED_ALLOW_IPS="127.0.0.1"))
    assert named.warnings == ()


def test_construction_by_keyword_does_not_look_at_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TALLYHOOK_GRACE_S", "9")
    assert Settings().grace_s == 300
    assert load_settings().grace_s == 9


def test_settings_cannot_be_changed() -> None:
    settings: Any = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.grace_s = 1


def test_import_reads_nothing_and_loads_no_server_or_database() -> None:
    code = "import sys, app.config.settings; print([m for m in ('sqlalchemy', 'starlette', " \
        "'uvicorn', " \
        "'typer', 'rich', 'cryptography', 'httpx2') if m in sys.modules])"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_sources_may_share_a_published_key() -> None:
    pem = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD\n-----END PUBLIC KEY-----"
    given = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_SOURCES__ONE__SECRETS": json.dumps([pem]),
        "TALLYHOOK_SOURCES__TWO__SECRETS": json.dumps([pem]),
    }
    settings = load_settings(given, serving=True)
    assert [source.secrets[0].get_secret_value() for source in settings.sources.values()] == [
        pem
    ] * 2
