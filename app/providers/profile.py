"""Profiles: what one provider's webhooks look like, as frozen data read from a TOML file.

Each section of the file is one class here, each key one attribute, so that the file is the
documentation of the class and the other way round. `rules.py` says what each key may hold.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError
from app.providers.rules import check, check_together
from reconcile.events import ClaimKind

SHIPPED: Final = Path(__file__).parent / "profiles"

Locations = tuple[str, ...]
"""`json:PATH` or `header:NAME`, of which the first present counts; empty: the provider has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Section [signature]: which scheme, where it stands, how it is written, what it covers."""

    mac: str
    where: str
    format: str
    encoding: str
    signed: str
    label: str | None
    prefix: str | None
    separator: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """Section [secret]: how a secret is written where it is configured."""

    encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRule:
    """Section [timestamp], absent where the provider signs no time. Tolerances in seconds."""

    where: str
    unit: str
    past_s: int
    future_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRule:
    """Section [acknowledgement]: how the provider's retries end.

    status           the HTTP status, 200 to 299, that ends them
    redelivery_days  after how many days at the latest they end by themselves
    """

    status: int
    redelivery_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """Section [event]: where an event's own fields stand."""

    id: Locations
    kind: Locations
    occurred_at: Locations
    dates: str
    order: Locations
    session: Locations
    payment: Locations
    movement: Locations
    reason: Locations


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRule:
    """Section [environment]: where the environment stands and the provider's words for the two."""

    where: Locations
    sandbox: str
    live: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountsRule:
    """Section [amounts]: the unit, and where each amount and its currency stand."""

    unit: str
    payment: Locations
    payment_currency: Locations
    refund: Locations
    refund_currency: Locations
    order: Locations
    order_currency: Locations


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one provider signs, names, dates and prices its events.

    claims  (the provider's word, what it means), in the order of the file
    """

    name: str
    signature: SignatureRule
    secret: SecretRule
    timestamp: TimestampRule | None
    acknowledgement: AcknowledgementRule
    event: EventRule
    environment: EnvironmentRule
    amounts: AmountsRule
    claims: tuple[tuple[str, ClaimKind], ...]


def shipped_profiles() -> list[str]:
    """Names that `load_profile` knows without a path, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """The profile of a shipped name, or of a path (it has a `/` or ends in `.toml`).

    Raises ConfigurationError with every mistake of the file at once, each with file and key.
    """
    path = _path_of(name_or_path)
    document = _read(path)
    values, problems = check(document)
    problems.extend(check_together(values))
    if problems:
        raise ConfigurationError([f"{path}: {problem}" for problem in problems])
    return _build(path.stem, values)


def _path_of(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in shipped_profiles():
        shipped = ", ".join(shipped_profiles())
        raise ConfigurationError(
            [f"there is no profile {name_or_path!r}: name one of {shipped}, or a path to a file"]
        )
    return SHIPPED / f"{name_or_path}.toml"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'it is not a file'}"
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problem = f"is not TOML: {error}"
    raise ConfigurationError([f"{path}: {problem}"])


def _build(name: str, values: dict[str, dict[str, Any]]) -> Profile:
    timestamp = values["timestamp"]
    return Profile(
        name=name,
        signature=SignatureRule(**values["signature"]),
        secret=SecretRule(**values["secret"]),
        timestamp=TimestampRule(**timestamp) if timestamp else None,
        acknowledgement=AcknowledgementRule(**values["acknowledgement"]),
        event=EventRule(**values["event"]),
        environment=EnvironmentRule(**values["environment"]),
        amounts=AmountsRule(**values["amounts"]),
        claims=tuple(values["claims"].items()),
    )
