"""Reading a profile file: all of its mistakes at once, each with its line, or a frozen Profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from app.core.errors import ConfigurationError, NotFoundError
from app.core.toml_file import read_toml
from app.providers.rules import ProfileFile, read_free
from app.providers.rules_together import check_together
from app.providers.sections import (
    AccountRule,
    AcknowledgementRule,
    AlsoRule,
    AmountsRule,
    CheckoutRule,
    CustomerRule,
    EnvironmentRule,
    EventRule,
    FetchBackRule,
    HandshakeRule,
    Profile,
    RequestRule,
    RestsOnRule,
    SecretRule,
    SetupRule,
    SignatureRule,
    TimestampRule,
)

__all__ = ["SHIPPED", "Profile", "load_profile", "profile_text", "read_profile", "shipped_profiles"]

SHIPPED: Final = Path(__file__).parent / "profiles"

MAX_FILE_BYTES: Final = 32 * 1024
"""A profile is a page or two; what is larger is another file by mistake, or made to be slow to
read: bundles and scenarios of strangers hold profiles, and a TOML parser's time grows with the
square."""

_TOO_LARGE: Final = f"is larger than {MAX_FILE_BYTES} bytes"


def shipped_profiles() -> list[str]:
    """Names that `load_profile` knows without a path, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """The profile of a shipped name, or of a path (it has a `/` or ends in `.toml`).

    Raises ConfigurationError with every mistake of the file at once, each with file, line and key.
    """
    path = _path_of(name_or_path)
    return read_profile(path, _text(path))


KEPT: Final = 128
"""Profiles kept as they were read, more than are shipped: a start reads the same one several times,
and to read it takes some milliseconds."""


@lru_cache(maxsize=KEPT)
def read_profile(path: Path, text: str) -> Profile:
    """The profile in a text; `path` names it, in mistakes too. Raises as `load_profile` does."""
    values = read_toml(
        text,
        ProfileFile,
        name=str(path),
        most_bytes=MAX_FILE_BYTES,
        together=lambda read: [*read_free(read), *check_together(read)],
    )
    return _build(path.stem, values)


def profile_text(name_or_path: str) -> str:
    """The file of a profile that `load_profile` takes. Raises as that does for one that is none."""
    return _text(_path_of(name_or_path))


def _path_of(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in shipped_profiles():
        if Path(name_or_path).is_file():
            meant = f"write ./{name_or_path} for the file"
            raise ConfigurationError([f"there is no shipped profile {name_or_path!r}; {meant}"])
        shipped = ", ".join(shipped_profiles())
        near = get_close_matches(name_or_path.lower(), shipped_profiles(), n=1, cutoff=0.7)
        nearest = f"; the nearest one is {near[0]}" if near else ""
        raise ConfigurationError(
            [
                f"there is no profile {name_or_path!r}{nearest}: name one of {shipped}, or a path "
                "to a file"
            ]
        )
    return SHIPPED / f"{name_or_path}.toml"


def _text(path: Path) -> str:
    try:
        if path.stat().st_size <= MAX_FILE_BYTES:
            return path.read_text(encoding="utf-8-sig")
        problem = _TOO_LARGE
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'it is not a file'}"
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except ValueError:
        problem = "cannot be read: it is not a file"
    raise ConfigurationError([f"{path}: {problem}"])


def _build(name: str, values: dict[str, Any]) -> Profile:
    signature, event = values["signature"], values["event"]
    fetch_back, amounts = values["fetch_back"], values["amounts"]
    also = signature.pop("also")
    return Profile(
        name=name,
        verifies_only=values["verifies_only"],
        confirm=values["confirm"],
        setup=SetupRule(**values["setup"]),
        signature=SignatureRule(**signature, also=also and AlsoRule(**also)),
        account=AccountRule(**values["account"]),
        secret=SecretRule(**values["secret"]),
        timestamp=values["timestamp"] and TimestampRule(**values["timestamp"]),
        request=RequestRule(**values["request"]),
        acknowledgement=AcknowledgementRule(**values["acknowledgement"]),
        handshake=values["handshake"] and HandshakeRule(**values["handshake"]),
        event=EventRule(**event),
        customer=CustomerRule(**values["customer"]),
        environment=EnvironmentRule(**values["environment"]),
        amounts=AmountsRule(**amounts),
        fetch_back=fetch_back and FetchBackRule(**fetch_back),
        checkout=CheckoutRule(**values["checkout"]),
        rests_on=values["rests_on"] and RestsOnRule(**values["rests_on"]),
        claims=values["claims"],
    )


# --- profiles as people look at them --------------------------------------------------------------


def list_profiles() -> list[dict[str, Any]]:
    """Every shipped profile: how it signs, what its events are worth, what its facts rest on."""
    return [_summary(load_profile(name)) for name in shipped_profiles()]


def _summary(profile: Profile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "mac": profile.signature.mac,
        "key": profile.signature.key,
        "where": profile.signature.where,
        "events": what_events_are_worth(profile),
        "rests_on": profile.rests_on.mark if profile.rests_on else None,
    }


def what_events_are_worth(profile: Profile) -> str:
    """`signed`, `fetched back` (they count only then), `unconfirmed` (none counts by itself: the
    key is every merchant's, and nothing says whose an event is), or `none` (it verifies only)."""
    if profile.verifies_only:
        return "none"
    if profile.account.undocumented:
        return "unconfirmed"
    return "fetched back" if profile.confirm else "signed"


def show_profile(name_or_path: str) -> dict[str, Any]:
    """Everything that a profile says, section by section, defaults included.

    Raises ConfigurationError with every mistake, NotFoundError where there is no such profile.
    """
    _must_exist(name_or_path)
    profile = load_profile(name_or_path)
    shown = asdict(profile)
    for section in (shown, *(each for each in shown.values() if type(each) is dict)):
        for key, value in section.items():
            if _is_free(value):
                section[key] = dict(value)
    summary = {"profile": shown.pop("name"), "events": what_events_are_worth(profile)}
    must = what_the_shop_must_name(profile)
    return summary | ({} if must is None else {"the_shop_must": must}) | shown


def what_the_shop_must_name(profile: Profile) -> str | None:
    """What the shop must state of each payment, where neither the provider's events nor its answer
    names an order; None where one does, or where no event moves money."""
    answers = profile.fetch_back.order if profile.fetch_back else ()
    if profile.verifies_only or profile.event.order or answers:
        return None
    kinds = [kind for kind in ("session", "payment") if getattr(profile.event, kind)]
    if not kinds:
        return (
            "know that no event names an order, a session or a payment: none can be led to an order"
        )
    unstated = profile.fetch_back is not None and not profile.fetch_back.amount
    amount = {"session": ', "amount": …, "currency": …'} if unstated else {}
    return (
        f"name the {' or the '.join(kinds)} of each order, for no event names the order: "
        "PUT /api/v1/orders/REF with "
        + " or ".join(
            f'{{"references": [{{"source": …, "{kind}": …{amount.get(kind, "")}}}]}}'
            for kind in kinds
        )
        + ", or those columns in an order book; sessions that are opened here are known"
        + ("; the provider's answer states no amount: name it" if unstated else "")
    )


def _is_free(value: Any) -> bool:
    return type(value) is tuple and bool(value) and all(type(each) is tuple for each in value)


def rows_of(shown: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The same as dotted keys with their values; what is not there is left out."""
    for key, value in shown.items():
        if type(value) is dict:
            yield from rows_of(value, f"{prefix}{key}.")
        elif value not in (None, ()):
            yield f"{prefix}{key}", list(value) if type(value) is tuple else value


def check_profile(name_or_path: str) -> list[str]:
    """Every mistake of a file, one sentence each with file, line and key; empty: it is in order.

    Raises NotFoundError where there is no such file.
    """
    _must_exist(name_or_path)
    try:
        load_profile(name_or_path)
    except ConfigurationError as error:
        return list(error.problems)
    return []


def _must_exist(name_or_path: str) -> None:
    if name_or_path not in shipped_profiles() and not Path(name_or_path).exists():
        raise NotFoundError(
            f"there is no file {name_or_path!r}, nor a shipped profile of that name; "
            "`tallyhook profiles list` shows those that are shipped"
        )
