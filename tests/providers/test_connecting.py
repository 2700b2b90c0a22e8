"""Section [setup] is read strictly, is complete in every shipped profile, and is shown
unchanged."""

import json
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.providers import connecting
from app.providers.connecting import APART, UNDOCUMENTED, setup_facts
from app.providers.profile import SHIPPED, load_profile, read_profile, shipped_profiles
from app.providers.questions import credentials_of
from tests.providers.test_payloads import LINES
from tests.rows import for_each

README = Path(connecting.__file__).parent / "README.md"
BARE = '[signature]\nmac = "hmac-sha256"\nkey = "merchant"\nwhere = "header:x-signature"\n' + (
    'signed = "{body}"\n'
)


@for_each(
    ("line", "said"),
    [
        ('events = ["charge success"]', "setup.events: must be an exact name"),
        ('events = ["charge.*"]', "setup.events: must be an exact name"),
        (f'events = ["{"e" * 101}"]', "setup.events: must be an exact name of at most 100"),
        (f"events = {json.dumps(['e'] * 61)}", "setup.events: must be a list of at most 60"),
        (f"traps = {json.dumps(['e'] * 13)}", "setup.traps: must be a list of at most 12"),
        ("events = []", "setup.events: must not be an empty list"),
        ("fields = [1]", "setup.fields: must be a text that is not blank"),
        (f'traps = "{"x" * 301}"', "setup.traps: must be one line of at most 300"),
        ('silence = "one\\ntwo"', "setup.silence: must be one line"),
        ('where = "\\u001b[2J"', "setup.where: must be one line"),
        ("secret = true", "setup.secret: must be a text that is not blank"),
        ('page = "Webhooks"', "setup.page: there is no such key; there are where, secret"),
        ('credentials = {"API KEY" = "it"}', 'setup.credentials."API KEY": is not a credential'),
        ('credentials = {key = "it"}', "setup.credentials.key: is not a credential: the"),
    ],
)
def test_a_mistake_in_setup_is_reported_with_file_line_and_key(line: str, said: str) -> None:
    text = f"verifies_only = true\n\n[setup]\n{line}\n\n{BARE}"
    with pytest.raises(ConfigurationError) as caught:
        read_profile(Path("mine.toml"), text)
    (problem,) = caught.value.problems
    assert problem.startswith("mine.toml:4: " + said), problem


def test_setup_of_an_unsigned_profile_may_not_describe_a_secret() -> None:
    text = (SHIPPED / "mpesa_stk.toml").read_text(encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"setup\.secret: has no effect"):
        read_profile(Path("mine.toml"), text.replace("[setup]", '[setup]\nsecret = "a passkey"', 1))


def test_a_file_without_the_section_says_that_nothing_is_documented() -> None:
    facts = setup_facts(read_profile(Path("mine.toml"), f"verifies_only = true\n{BARE}"))
    assert facts == dict.fromkeys(("where", "secret", "events", "silence"), UNDOCUMENTED)


@for_each("name", shipped_profiles())
def test_each_shipped_profile_documents_what_connecting_it_needs(name: str) -> None:
    profile = load_profile(name)
    assert "\n[setup]\n" in (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    needed = credentials_of(profile.fetch_back) if profile.fetch_back else set()
    assert set(dict(profile.setup.credentials)) == needed
    facts = setup_facts(profile)
    assert facts.get("secret") != UNDOCUMENTED
    assert facts.get("fields") != UNDOCUMENTED


@for_each("name", shipped_profiles())
def test_each_shipped_profile_says_once_what_tells_several_shops_apart(name: str) -> None:
    profile = load_profile(name)
    traps = [str(each) for each in setup_facts(profile).get("traps", ())]
    said = [each for each in traps if any(words in each.casefold() for words in APART)]
    assert len(said) == (0 if profile.verifies_only else 1)
    if said and said[0] not in profile.setup.traps:
        answer = () if profile.fetch_back is None else profile.fetch_back.account
        names = [place.partition(":")[2] for place in profile.account.where or answer]
        assert all(name in said[0] for name in names)
        assert ("ACCOUNT" in said[0]) == bool(names)


@for_each("name", [n for n in shipped_profiles() if load_profile(n).setup.events])
def test_each_event_to_subscribe_to_is_known_to_the_profile(name: str) -> None:
    """Its claims have the word, or a documented example does."""
    profile = load_profile(name)
    words = [word for word, claim in profile.claims if claim != "ignored"]
    examples = "\n".join(map(json.dumps, LINES.get(name, ())))
    for event in profile.setup.events:
        known = any(
            word.partition("*")[0].rstrip(":") == event
            or word.startswith(f"{event}:")
            or (word.endswith("*") and event.startswith(word[:-1]))
            for word in words
        )
        assert known or f'"{event}"' in examples, event
