"""Instructions for connecting a provider, from the section [setup] of its profile."""

from collections.abc import Mapping
from typing import Final

from app.providers import keys
from app.providers.questions import credentials_of
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile

UNDOCUMENTED: Final = "not documented here"

SetupFacts = Mapping[str, str | list[str]]


def setup_facts(profile: Profile) -> SetupFacts:
    """Return the instructions of a profile as sentences, by part."""
    setup = profile.setup
    facts: dict[str, str | list[str]] = {"where": setup.where or UNDOCUMENTED}
    if profile.signature.mac != UNSIGNED:
        facts["secret"] = setup.secret or UNDOCUMENTED
    if credentials := described_credentials(profile):
        facts["credentials"] = [f"{name}: {what}" for name, what in credentials.items()]
    facts["events"] = list(setup.events) or UNDOCUMENTED
    if not profile.verifies_only:
        facts["fields"] = list(setup.fields) or UNDOCUMENTED
    if traps := [*setup.traps, *_apart(profile)]:
        facts["traps"] = traps
    facts["silence"] = setup.silence or UNDOCUMENTED
    return facts


APART: Final = ("several shops", "several sellers")


def _apart(profile: Profile) -> list[str]:
    said = " ".join(profile.setup.traps).casefold()
    if profile.verifies_only or any(words in said for words in APART):
        return []
    answer = () if profile.fetch_back is None else profile.fetch_back.account
    named = [place.partition(":")[2] for place in profile.account.where or answer]
    if named:
        return [
            f"Several shops on one account: ACCOUNT tells them apart by {' or '.join(named)}. If "
            "the shops share this, too, use ONLY with a member that you write yourself, or "
            "LINK_BY references."
        ]
    return [
        "Several shops on one account: nothing that the provider sends by itself tells them "
        "apart. Use ONLY with a member that you write yourself, or LINK_BY references."
    ]


def where_to_put_the_reference(profile: Profile) -> str:
    """Return what the shop must do so that this provider's events name their order."""
    fields = list(profile.setup.fields)
    if fields and fields[0].startswith("none"):  # "none: the shop names …"
        return fields[0].partition(": ")[2]
    if fields or profile.event.order:
        return f"put the reference into {'; '.join(fields or profile.event.order)}"
    return "name its payment or session in `references` of PUT /api/v1/orders/REF"


def names_no_order(profile: Profile) -> str:
    """Return the instruction about deliveries without an order."""
    return f"Accepted, but it names no order: {where_to_put_the_reference(profile)}."


def described_credentials(profile: Profile) -> dict[str, str]:
    """Return the meaning of each credential."""
    needed = sorted(credentials_of(profile.fetch_back)) if profile.fetch_back else []
    known = dict(profile.setup.credentials)
    return {name: known.get(name, UNDOCUMENTED) for name in (*known, *needed)}


def takes_keys(profile: Profile) -> bool:
    """Check whether the profile's secrets are the provider's public keys."""
    return keys.takes_keys(profile.signature.mac)
