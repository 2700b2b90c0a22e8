"""Explanation of rejected deliveries by known mistakes that could have caused the rejection. The
deliveries stay rejected."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.providers.doctor import Account, Diagnosis, diagnose
from app.receiving.header_codec import read_request
from app.receiving.refusal_store import Rejection, find_rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """Rejected delivery, with every known mistake that explains the rejection."""

    rejection: Rejection
    diagnoses: list[Diagnosis]
    unexplained: str | None


async def diagnose_delivery(
    context: AppContext, delivery_id: str, *, accounts: Mapping[str, Account]
) -> Diagnosed:
    """Return the known mistakes that explain a rejected delivery.

    Raise NotFoundError without such a rejection, and UsageError if too little was stored.
    """
    async with context.database.reading() as connection:
        rejection = await find_rejection(connection, delivery_id)
    if rejection is None:
        raise NotFoundError(
            f"there is no refused delivery {delivery_id!r}: it was accepted, or is no longer stored"
        )
    if rejection.size != len(rejection.body):
        raise UsageError(
            f"only {len(rejection.body):,} of the {counted(rejection.size, 'byte')} of its body "
            "were stored, so no signature can be tried. To store more of each later delivery, "
            "raise TALLYHOOK_REJECTED_BODY_BYTES"
        )
    account = accounts.get(rejection.source)
    if account is None:
        found = [_unknown(rejection.source, sorted(accounts))]
    elif rejection.verdict == "wrong_environment":
        found = [_OTHER_ENVIRONMENT]
    elif rejection.verdict == "wrong_account":
        found = [_OTHER_ACCOUNT]
    else:
        others = [each for each in accounts.values() if each.name != account.name]
        kept = read_request(rejection.headers, rejection.body)
        request = kept._replace(url=kept.url or f"/webhooks/{rejection.source}")
        # Off the event loop: this computes hundreds of signatures.
        found = await asyncio.to_thread(
            diagnose, account, others, request, now=rejection.received_at
        )
    return Diagnosed(
        rejection=rejection,
        diagnoses=found,
        unexplained=None if found else unexplained(rejection.verdict, account),
    )


def unexplained(verdict: str, account: Account | None) -> str:
    """Return a sentence about what to check if no known mistake explains a rejection."""
    beginning = "No known mistake explains this:"
    if verdict in ("signature_missing", "timestamp_missing"):
        missing = verdict.removesuffix("_missing")
        return (
            f"{beginning} the provider puts its {missing} elsewhere than the profile says, or "
            f"sends none until a secret is set there; a proxy drops the {missing}; or the request "
            "never came from the provider."
        )
    left = (
        f"{beginning} the secret is not configured here, the request was changed on its way, or "
        "it never came from the provider."
    )
    if verdict != "signature_mismatch" or account is None or not account.profile.setup.secret:
        return left
    variable = f"TALLYHOOK_SOURCES__{account.name.upper()}__SECRETS"
    return f"{left} {variable} is {account.profile.setup.secret}."


_OTHER_ENVIRONMENT = Diagnosis(
    mistake="other_environment",
    sentence="Its signature is right, but the event belongs to the other environment: have the "
    "provider send it to that environment's installation. If the event is misread, correct "
    "[environment] in the profile and run `deliveries reverify`.",
)


_OTHER_ACCOUNT = Diagnosis(
    mistake="other_account",
    sentence="Its signature is right. But all merchants of the provider share the key, and the "
    "event names no account, or another account than the source's ACCOUNT. If the event is yours, "
    "find its account in the body (`profiles show` says where, under account.where). Add the "
    "account to the source's ACCOUNT, and run `deliveries reverify`.",
)


_MAX_NAMES: Final = 12


def _unknown(name: str, known: Sequence[str]) -> Diagnosis:
    if name.lower() in known:
        return Diagnosis(
            mistake="source_unknown",
            sentence=f"No source is named {name}: names in addresses are in lower case; have the "
            f"provider send to /webhooks/{name.lower()}.",
        )
    names = ", ".join(known[:_MAX_NAMES]) + (", …" if len(known) > _MAX_NAMES else "")
    return Diagnosis(
        mistake="source_unknown",
        sentence=f"No source is named {name}: configure "
        f"TALLYHOOK_SOURCES__{name.upper()}__PROFILE and its secret, or have the provider send to "
        f"a configured name{': ' + names if names else ''}.",
    )
