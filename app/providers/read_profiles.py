"""Profiles as people look at them: which there are, what one says, what is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.core.errors import ConfigurationError, NotFoundError
from app.providers.profile import load_profile, shipped_profiles
from app.providers.sections import Profile


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
    key is every merchant's, and nothing tells whose an event is), or `none` (it verifies only)."""
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
    """What the shop has to tell of each payment, where neither the provider's events nor its answer
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
