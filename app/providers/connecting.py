"""What a person has to know to connect a provider, from section [setup] of its profile.

`python -m app.cli.page_tables` writes the table of README.md, which a test compares.
Leaves out: the address to register, which only a running installation knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.providers import keys
from app.providers.profile import load_profile, shipped_profiles
from app.providers.questions import credentials_of
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile

UNDOCUMENTED: Final = "not documented here"
"""Said of whatever the profile does not state: nothing is guessed."""

SetupFacts = Mapping[str, str | list[str]]


def setup_facts(profile: Profile) -> SetupFacts:
    """Each part of [setup] in words: `where`, `secret`, `credentials`, `events`, `fields`,
    `traps`, `silence`. What the file does not say is UNDOCUMENTED, what there is not is absent."""
    setup = profile.setup
    facts: dict[str, str | list[str]] = {"where": setup.where or UNDOCUMENTED}
    if profile.signature.mac != UNSIGNED:
        facts["secret"] = setup.secret or UNDOCUMENTED
    if credentials := described_credentials(profile):
        facts["credentials"] = [f"{name}: {what}" for name, what in credentials.items()]
    facts["events"] = list(setup.events) or UNDOCUMENTED
    if not profile.verifies_only:
        facts["fields"] = list(setup.fields) or UNDOCUMENTED
    if setup.traps:
        facts["traps"] = list(setup.traps)
    facts["silence"] = setup.silence or UNDOCUMENTED
    return facts


def described_credentials(profile: Profile) -> dict[str, str]:
    """The name of each credential with which the provider is asked back → what it is."""
    needed = sorted(credentials_of(profile.fetch_back)) if profile.fetch_back else []
    known = dict(profile.setup.credentials)
    return {name: known.get(name, UNDOCUMENTED) for name in (*known, *needed)}


def takes_keys(profile: Profile) -> bool:
    """Whether its secrets are keys of the provider's, and none that both sides share."""
    return keys.takes_keys(profile.signature.mac)


def setup_table() -> str:
    """Every shipped profile that moves money, as a table of Markdown."""
    lines = [
        "| profile | where the address is registered | events | the order's reference |",
        "|---|---|---|---|",
    ]
    for name in shipped_profiles():
        profile = load_profile(name)
        if not profile.verifies_only:
            lines.append(_row(profile))
    return "\n".join(lines) + "\n"


def _row(profile: Profile) -> str:
    facts = setup_facts(profile)
    events = facts["events"]
    counted = events if isinstance(events, str) else f"{len(events)}, `{events[0]}` the first"
    if isinstance(events, list) and len(events) == 1:
        counted = f"`{events[0]}`"
    fields = facts["fields"] if isinstance(facts["fields"], str) else "; ".join(facts["fields"])
    cells = (f"`{profile.name}`", str(facts["where"]), counted, fields)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
