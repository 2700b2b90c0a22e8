"""What two settings say together, or a secret alone: each check a small function in one tuple.

Leaves out: the form of single values. A check that cannot judge, because a setting it needs was
already reported, says nothing. Secrets are compared here and never written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from app.config import dangers
from app.config import shop as config_shop
from app.config.places import database_lies_well
from app.config.reading import ENVIRONMENT, PREFIX, Reading

if TYPE_CHECKING:
    from app.config.settings import Settings

MIN_SECRET_CHARS: Final = 16
"""Shorter ones can be guessed: 16 hex digits are 64 bits."""

_MIN_DISTINCT: Final = 5
"""Fewer different characters than this is somebody leaning on a key."""

_PLACEHOLDERS: Final = (
    "changeme",
    "replaceme",
    "placeholder",
    "yoursecret",
    "yourwebhook",
    "yoursigning",
    "supersecret",
    "secretsecret",
    "webhooksecret",
    "mysecret",
    "testsecret",
    "password",
    "example",
    "0123456789",
    "1234567890",
    "abcdefghij",
)
"""Parts of secrets that were copied from a guide; compared without case and punctuation."""

_PUBLISHED: Final = frozenset(
    {
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    }
)
"""Whole secrets that public documents print, such as the Standard Webhooks specification's."""

_KIND = re.compile(r"(?:[a-z]{1,8}[_-])?(test|sandbox|live)[_-]", re.IGNORECASE)


def _environment(settings: Settings, reading: Reading) -> None:
    if reading.serving and settings.environment is None and ENVIRONMENT not in reading.problems:
        reading.problem(
            ENVIRONMENT,
            "is required to serve: write sandbox or live, in the environment or in the file that "
            "TALLYHOOK_CONFIG names",
        )


def _each_source_has_secrets(settings: Settings, reading: Reading) -> None:
    for name in settings.sources:
        variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS"
        both = {variable, variable + "_FILE"}
        others = {f"{PREFIX}SOURCES__{name.upper()}__{key}" for key in ("KEYS", "CREDENTIALS")}
        if both <= reading.given.keys():
            reading.problem(variable, f"is given beside {variable}_FILE; keep one of the two")
        elif not (both | others) & (reading.given.keys() | reading.problems.keys()):
            reading.problem(
                variable,
                f"is missing; give it, or {variable}_FILE; of a provider that signs nothing,"
                " the CREDENTIALS it is asked with",
            )
    if reading.serving and not settings.sources and not reading.problems:
        reading.warnings.append(
            f"{PREFIX}SOURCES__<NAME>__SECRETS: no source is given, so every webhook is refused"
        )


def _secrets_are_sound(settings: Settings, reading: Reading) -> None:
    for variable, secret in _secrets(settings, reading):
        if not secret:
            reading.problem(variable, "holds an empty secret; write the provider's signing secret")
        elif len(re.sub(r"\A(whsec|whsk|whpk)_", "", secret)) < MIN_SECRET_CHARS:
            reading.problem(
                variable,
                f"holds a secret of fewer than {MIN_SECRET_CHARS} characters; no key is",
            )
        elif _is_placeholder(secret):
            reading.problem(variable, "holds a well-known secret; write the provider's own")
        elif secret in _PUBLISHED:
            reading.only_in_sandbox(variable, "holds a secret that public documents print")


def _is_placeholder(secret: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", secret.lower())
    return len(set(secret)) < _MIN_DISTINCT or any(part in plain for part in _PLACEHOLDERS)


def _secrets_fit_the_environment(settings: Settings, reading: Reading) -> None:
    for variable, secret in _secrets(settings, reading):
        match = _KIND.match(secret)
        kind = "" if match is None else "live" if match[1].lower() == "live" else "sandbox"
        if kind and settings.environment and kind != settings.environment:
            reading.problem(
                variable,
                f"holds a {kind} secret in environment {settings.environment};"
                f" write the {settings.environment} one",
            )


def _secrets_are_different(settings: Settings, reading: Reading) -> None:
    seen: dict[str, str] = {}
    for variable, secret in _secrets(settings, reading):
        if not secret or is_public(secret):
            continue  # what a provider publishes, every account of it has in common
        other = seen.setdefault(secret, variable)
        if other != variable:
            reading.problem(variable, f"holds a secret that {other} holds too; each needs its own")


def is_public(secret: str) -> bool:
    """Whether it is the public half of a key, or a certificate, in PEM."""
    return secret.startswith(("-----BEGIN PUBLIC", "-----BEGIN CERT"))


def _secrets(settings: Settings, reading: Reading) -> Iterator[tuple[str, str]]:
    """Every secret with the variable it came by."""
    for name, source in settings.sources.items():
        variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS"
        variable += "_FILE" if variable not in reading.given else ""
        for secret in source.secrets:
            yield variable, secret.get_secret_value()
    for variable, one in (
        ("CHECKOUT__TOKEN", settings.checkout.token),
        ("SHOP__SECRET", settings.shop.secret),
    ):
        if one is not None:
            variable = PREFIX + variable
            variable += "_FILE" if variable not in reading.given else ""
            yield variable, one.get_secret_value()


def _checkout_is_whole(settings: Settings, reading: Reading) -> None:
    url, token = PREFIX + "CHECKOUT__BASE_URL", PREFIX + "CHECKOUT__TOKEN"
    tokens = {token, token + "_FILE"}
    if tokens <= reading.given.keys():
        reading.problem(token, f"is given beside {token}_FILE; keep one of the two")
    if url in reading.given and not tokens & reading.given.keys():
        reading.problem(token, f"is missing beside {url}; give it, or {token}_FILE")
    if tokens & reading.given.keys() and url not in reading.given:
        reading.problem(url, "is missing beside the token; write the payment service's address")


def _checkout_is_encrypted(settings: Settings, reading: Reading) -> None:
    url = settings.checkout.base_url
    if url and url.startswith("http:") and settings.environment != "sandbox":
        reading.problem(
            PREFIX + "CHECKOUT__BASE_URL", "sends the token unencrypted; write https:// in front"
        )


def _checkout_has_its_source(settings: Settings, reading: Reading) -> None:
    variable, source = PREFIX + "CHECKOUT__SOURCE", settings.checkout.source
    if variable in reading.problems:
        return
    names = ", ".join(sorted(settings.sources)) or "none is given yet"
    if source is not None and source not in settings.sources:
        reading.problem(variable, f"is no source; write one of them: {names}")
    elif settings.checkout.base_url and source is None and len(settings.sources) > 1:
        reading.problem(variable, f"is missing; say which source its webhooks come from: {names}")


def _sessions_are_of_shared_orders(settings: Settings, reading: Reading) -> None:
    source = settings.sources.get(settings.checkout.source or "")
    if settings.checkout.base_url and source is not None and source.orders == "own":
        reading.problem(
            f"{PREFIX}SOURCES__{(settings.checkout.source or '').upper()}__ORDERS",
            "must be shared: sessions are opened for the orders of the shop's records",
        )


def _sizes_fit_together(settings: Settings, reading: Reading) -> None:
    for small, large in (
        ("inbox_batch", "inbox_queue"),
        ("inbox_alarm_s", "inbox_red_s"),
        ("rejected_body_bytes", "rejections_max_bytes"),
        ("max_connections_per_address", "max_connections"),
        ("max_body_bytes", "max_bodies_bytes"),
    ):
        variable, other = PREFIX + small.upper(), PREFIX + large.upper()
        limit = getattr(settings, large)
        # A default that is too large for a smaller limit is harmless: the limit holds.
        if variable in reading.given and getattr(settings, small) > limit:
            reading.problem(variable, f"must not be more than {other}, which is {limit:,}")


CHECKS: Final[tuple[Callable[[Settings, Reading], None], ...]] = (
    _environment,
    _each_source_has_secrets,
    _secrets_are_sound,
    _secrets_fit_the_environment,
    _secrets_are_different,
    _checkout_is_whole,
    _checkout_is_encrypted,
    _checkout_has_its_source,
    _sessions_are_of_shared_orders,
    _sizes_fit_together,
    *config_shop.CHECKS,
    *dangers.CHECKS,
    database_lies_well,
)
