"""Secrets: which are good enough to start with, and that none is ever shown."""

import traceback
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from tests.providers.builders import CHECKOUT, NOW, SECRET, made, profile_file, raw, source
from tests.rows import for_each


def problems(*secrets: str, encoding: str = "whsec", folder: Path | None = None) -> tuple[str, ...]:
    profile = CHECKOUT
    if folder is not None:
        profile = load_profile(profile_file(folder, secret={"encoding": encoding}))
    with pytest.raises(ConfigurationError) as caught:
        Source(name="acme", profile=profile, secrets=secrets)
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(secret.strip() and secret.strip() in shown for secret in secrets)
    return caught.value.problems


def test_a_source_without_a_secret_does_not_start() -> None:
    assert problems() == ("source acme: has no secret; give at least one",)


@for_each(
    ("secret", "message"),
    [
        ("", "empty or blank"),
        (" \t\n", "empty or blank"),
        ("whsec_", "too short"),
        (
            "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=",
            "too short: it has 23 of at least 24 bytes",
        ),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "not well-formed whsec"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_", "not well-formed whsec"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA", "not well-formed whsec"),
        ("whsec_whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "not well-formed whsec"),
        ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "not well-formed whsec"),
        ("whsec_MfKQ9r8GKYqr TwjUPD8ILPZIo2LaLaSw", "not well-formed whsec"),
        ("whsec_\u00e9" + "A" * 32, "not well-formed whsec"),
        (SECRET + "\n", "begins or ends with a blank"),
        (" " + SECRET, "begins or ends with a blank"),
    ],
)
def test_a_bad_secret_is_reported_and_not_shown(secret: str, message: str) -> None:
    (problem,) = problems(secret)
    assert problem.startswith("source acme: secret 1 of 1 ")
    assert message in problem


@for_each(
    ("profile", "secret", "meant"),
    [
        ("stripe", "sk_live_", "the endpoint's signing secret (whsec_…"),
        ("stripe", "rk_test_", "the endpoint's signing secret (whsec_…"),
        ("paystack", "pk_test_", "the account's own API secret key (sk_live_…"),
        ("korapay", "pk_live_", "the API secret key (sk_live_…"),
        ("openai", "sk-proj-", "that of the webhook endpoint"),
    ],
)
def test_another_credential_of_the_provider_is_refused_as_a_secret(
    profile: str, secret: str, meant: str
) -> None:
    chosen, given = load_profile(profile), secret + "4f1d" * 12
    with pytest.raises(ConfigurationError) as caught:
        Source(name="acme", profile=chosen, secrets=["fine-" * 8, given])
    (problem,) = caught.value.problems
    assert problem.startswith(f"source acme: secret 2 of 2 begins with {secret.split('_')[0][:3]}")
    assert meant in problem
    assert given not in problem
    Source(name="acme", profile=chosen, secrets=[given], strict=False)  # to look at old requests


@pytest.mark.parametrize(
    ("encoding", "secret", "message"),
    [
        ("text", "k" * 23, "too short"),
        ("text", "\ud800" * 24, "not well-formed text"),
        ("hex", "ab" * 23, "too short"),
        ("hex", "abc" * 21, "not well-formed hex"),
        ("hex", "zz" * 24, "not well-formed hex"),
        ("base64", "whsec_" + "A" * 32, "not well-formed base64"),
    ],
)
def test_each_encoding_refuses_bad_secrets(
    encoding: str, secret: str, message: str, tmp_path: Path
) -> None:
    (problem,) = problems(secret, encoding=encoding, folder=tmp_path)
    assert message in problem


@pytest.mark.parametrize(
    ("encoding", "secret"),
    [
        ("text", "whsec_" + "k" * 18),
        ("hex", "aB" * 24),
        ("base64", "A" * 32),
        ("base64", "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGQ"),
        ("base64", "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGQ=="),
        ("whsec", "A" * 32),
        ("whsec", "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGQ"),
    ],
)
def test_good_secrets_are_accepted(encoding: str, secret: str, tmp_path: Path) -> None:
    good = made(tmp_path, key=secret, secret={"encoding": encoding})
    headers = raw(good.sign(b"{}", event_id="e", now=NOW))
    assert good.verify(Incoming(headers, b"{}"), now=NOW) is None


def test_all_bad_secrets_are_reported_at_once() -> None:
    found = problems("", SECRET, "whsec_AAAA")
    assert [problem.split("secret ")[1][:6] for problem in found] == ["1 of 3", "3 of 3"]


def test_no_representation_shows_a_secret() -> None:
    acme = source()
    inside = [repr(acme), repr(vars(acme)), repr(vars(acme._verifier))]
    assert not any(SECRET[6:] in text or "1\\xf2\\x90" in text for text in inside)


@for_each("event_id", ["", "a b", "a\r\nb", "\u00e9", "x" * 256])
def test_an_id_with_characters_that_no_provider_sends_is_not_signed(event_id: str) -> None:
    with pytest.raises(ValueError, match="event_id"):
        source().sign(b"{}", event_id=event_id, now=NOW)


def test_a_covered_header_is_made_up_and_an_absent_covered_member_reported(tmp_path: Path) -> None:
    covering = made(tmp_path, signature={"signed": "{header:x-nonce}.{body}"})
    assert ("x-nonce", "e") in covering.sign(b"{}", event_id="e", now=NOW)
    covering = made(tmp_path, signature={"signed": "{json:total}.{body}"})
    with pytest.raises(ConfigurationError, match="cannot be signed"):
        covering.sign(b"{}", event_id="e", now=NOW)
