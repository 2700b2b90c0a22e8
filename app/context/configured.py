"""Build sources and provider clients from the settings."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from app.config.settings import Settings, SourceSettings
from app.core.errors import ConfigurationError
from app.core.phone_key import PhoneKey
from app.providers.doctor import Account
from app.providers.fields import LOCATIONS, compile_location
from app.providers.fingerprints import key_identities
from app.providers.profile import load_profile, profile_text, read_profile, shipped_profiles
from app.providers.questions import Questions
from app.providers.rules_together import covers
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import Instant

if TYPE_CHECKING:
    import httpx2

    from app.providers.provider_client import ProviderClient

MAX_TOLERANCE_S = 3600
"""Maximum tolerance of a merchant's own profile in live, in seconds. A longer tolerance would allow
replays of deleted deliveries."""


def keep_profiles(settings: Settings) -> None:
    """Store the text of the merchant's own profiles in the settings."""
    texts = dict(settings.profile_files)
    for path in {each.profile for each in settings.sources.values()} - {*shipped_profiles()}:
        with suppress(ConfigurationError):
            texts.setdefault(path, profile_text(path))
    settings._profile_files = texts


def text_of_profile(settings: Settings, source: str) -> str:
    """Return the stored text of a source's profile."""
    named = settings.sources[source].profile
    return settings.profile_files.get(named) or profile_text(named)


def profile_of(settings: Settings, source: str) -> Profile:
    """Return a source's profile, parsed from its stored text."""
    named = settings.sources[source].profile
    text = settings.profile_files.get(named)
    return load_profile(named) if text is None else read_profile(Path(named), text)


def secrets_of(given: SourceSettings) -> list[str] | dict[str, str]:
    """Return a source's secrets, by key id if known."""
    if given.keys:
        return {name: key.get_secret_value() for name, key in given.keys.items()}
    return [secret.get_secret_value() for secret in given.secrets]


def webhook_credentials(given: SourceSettings) -> list[str]:
    """Return the credentials that the provider sends with its requests."""
    return [
        pair.get_secret_value()
        for name, pair in given.credentials.items()
        if name == "webhook" or name.startswith("webhook_")
    ]


def ends_of(given: SourceSettings) -> dict[str, Instant]:
    """Return the expiry of each secret that expires, by secret."""
    return {s.get_secret_value(): s.until for s in given.secrets if s.until is not None}


def accounts(settings: Settings) -> dict[str, Account]:
    """Return every configured source with its secrets."""
    return {
        name: Account(
            name=name,
            profile=profile_of(settings, name),
            secrets=secrets_of(given),
            address=settings.public_url,
            ends=ends_of(given),
        )
        for name, given in settings.sources.items()
    }


def askers(settings: Settings, client: "httpx2.AsyncClient") -> dict[str, "ProviderClient"]:
    """Return a client for each source whose provider must be asked. Raises ConfigurationError that
    names every missing credential."""
    from app.providers.provider_client import ProviderClient  # only the service asks

    return {name: ProviderClient(each, client) for name, each in questions_of(settings).items()}


def questions_of(settings: Settings) -> dict[str, Questions]:
    found: dict[str, Questions] = {}
    problems: list[str] = []
    for name, given in settings.sources.items():
        try:
            rule = profile_of(settings, name).fetch_back
        except ConfigurationError:
            continue  # `compile_sources` reports the profile's mistakes
        if rule is None:
            continue
        credentials = {key: value.get_secret_value() for key, value in given.credentials.items()}
        environment = settings.environment or "sandbox"
        try:
            found[name] = Questions(name, rule, environment=environment, credentials=credentials)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def compile_sources(settings: Settings, *, phone_key: PhoneKey | None = None) -> dict[str, Source]:
    """Compile every configured source. Raises ConfigurationError with the mistakes of all
    sources."""
    sources, problems = {}, []
    for name, given in settings.sources.items():
        variable = f"TALLYHOOK_SOURCES__{name.upper()}__PROFILE"
        try:
            profile = profile_of(settings, name)
            if settings.environment == "live" and given.profile not in shipped_profiles():
                rule = profile.timestamp
                if rule is not None and max(rule.past_s, rule.future_s) > MAX_TOLERANCE_S:
                    raise ConfigurationError(
                        [
                            "accepts deliveries signed more than an hour before or after they "
                            "arrive, so an old one could be replayed; write at most "
                            f"{MAX_TOLERANCE_S} in [timestamp]"
                        ]
                    )
            variable = f"TALLYHOOK_SOURCES__{name.upper()}__SECRETS"
            source = Source(
                name=name,
                profile=profile,
                secrets=secrets_of(given),
                address=settings.public_url,
                ends=ends_of(given),
                phone_key=phone_key,
                accounts=given.account,
                only=only_locations(given, profile),
                own_orders=given.orders == "own",
                links=given.link_by == "order",
                captures=given.captures,
                webhook=webhook_credentials(given),
                addresses={each.get_secret_value(): each.until for each in given.address},
            )
            problems += _problems_of_account(name, given, profile)
            problems += _problems_of_only(name, given, profile)
            problems += _problems_of_sharing(name, given, profile)
            problems += _problems_of_captures(name, given, profile)
            if source.signs_address and given.address:
                variable = f"TALLYHOOK_SOURCES__{name.upper()}__ADDRESS"
                raise ConfigurationError(
                    [
                        "must be left out: the provider signs the address, so every delivery is "
                        "kept with its address, and the signature protects the source"
                    ]
                )
            if source.signs_address and not settings.public_url:
                variable = "TALLYHOOK_PUBLIC_URL"
                raise ConfigurationError(
                    [
                        f"source {name}: its provider signs the address that it sends to; write"
                        " scheme and host, such as https://hooks.shop.example"
                    ]
                )
            sources[name] = source
        except ConfigurationError as error:
            problems += [f"{variable}: {problem}" for problem in error.problems]
    problems += _problems_of_keys(settings)
    if problems:
        raise ConfigurationError(problems)
    return sources


def _problems_of_account(name: str, given: SourceSettings, profile: Profile) -> list[str]:
    variable, where = f"TALLYHOOK_SOURCES__{name.upper()}__ACCOUNT", profile.account.where
    answer = () if profile.fetch_back is None else profile.fetch_back.account
    if profile.shares_key and not given.account:
        return [
            f"{variable}: is missing; write your account as {' or '.join(where)} of profile"
            f" {profile.name} names it, or other merchants' events would count"
        ]
    if given.account and not (where or answer):
        return [
            f"{variable}: has no effect, because the events of profile {profile.name} name no "
            "account; remove it"
        ]
    return []


def only_locations(given: SourceSettings, profile: Profile) -> dict[str, tuple[str, ...]]:
    """Return the setting ONLY with full locations. A path without a kind refers to the body."""
    form = profile.request.body == "form" and not profile.unconfirmed  # answers are JSON
    return {
        member
        if member.partition(":")[0] in LOCATIONS
        else f"{'form' if form else 'json'}:{member}": values
        for member, values in given.only.items()
    }


def ways_to_tell_apart(profile: Profile) -> str:
    """Return the settings that distinguish shops, the best first."""
    account = profile.account.where or (profile.fetch_back and profile.fetch_back.account)
    return ("ACCOUNT, " if account else "") + "ONLY or LINK_BY"


def separates_shops(given: SourceSettings) -> bool:
    """Check if a setting separates several shops' payments."""
    return bool(given.account or given.only) or given.link_by == "references"


def _problems_of_sharing(name: str, given: SourceSettings, profile: Profile) -> list[str]:
    if given.shared != "yes" or separates_shops(given):
        return []
    return [
        f"TALLYHOOK_SOURCES__{name.upper()}__SHARED: another shop uses the account, so its "
        f"payments would count as yours; set {ways_to_tell_apart(profile)} (the first ones are "
        "better)"
    ]


def _problems_of_captures(name: str, given: SourceSettings, profile: Profile) -> list[str]:
    variable = f"TALLYHOOK_SOURCES__{name.upper()}__CAPTURES"
    if not given.captures:
        return []
    if profile.particulars.capturing is None:
        return [
            f"{variable}: has no effect, because profile {profile.name} captures by no "
            "method; remove it"
        ]
    if all(":" in each and each.isascii() for each in webhook_credentials(given) or [""]):
        return []
    return [
        f"{variable}: nothing signs the payment method, so anyone could write it; set a user name "
        'and password at the provider\'s webhook, and here as CREDENTIALS {"webhook": '
        '"user:password"}'
    ]


def _problems_of_only(name: str, given: SourceSettings, profile: Profile) -> list[str]:
    variable, problems = f"TALLYHOOK_SOURCES__{name.upper()}__ONLY", []
    for location in only_locations(given, profile):
        try:
            compile_location(location)
        except ValueError as error:
            problems.append(f"{variable}: {location} {error}")
            continue
        if not profile.unconfirmed and not covers(asdict(profile), location):
            problems.append(
                f"{variable}: {location} is not covered by the signature of profile "
                f"{profile.name}, so anyone could write it; name a signed member"
            )
        elif profile.unconfirmed and profile.fetch_back is None:
            problems.append(
                f"{variable}: has no effect, because no event of profile {profile.name} counts by "
                "itself, and its provider is not asked; remove it"
            )
        elif profile.unconfirmed and not location.startswith(("json:", "root:")):
            problems.append(
                f"{variable}: {location} is not a member of the provider's answer, and only the "
                "answer counts; name one such as json:metadata.shop"
            )
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyHolder:
    variable: str
    keys: frozenset[bytes] = field(repr=False)
    accounts: frozenset[str]


def _problems_of_keys(settings: Settings) -> list[str]:
    """Return a problem for each key in two settings. Such a key could count one payment twice."""
    problems = []
    holders = list(_holders(settings))
    for number, one in enumerate(holders):
        for other in holders[:number]:
            apart = one.accounts and other.accounts and not one.accounts & other.accounts
            if one.keys & other.keys and not apart:
                problems.append(
                    f"{one.variable}: holds a key that {other.variable} holds too, perhaps in"
                    " another spelling; each needs its own, or an ACCOUNT of its own where the"
                    " profile's events name one"
                )
                break
    return problems


def _holders(settings: Settings) -> Iterator[_KeyHolder]:
    for name, given in settings.sources.items():
        try:
            profile = profile_of(settings, name)
        except ConfigurationError:
            continue  # `compile_sources` reports it
        stem = f"TALLYHOOK_SOURCES__{name.upper()}__"
        given_as = "KEYS" if given.keys else "SECRETS_FILE" if given.secrets_file else "SECRETS"
        yield _KeyHolder(
            variable=stem + given_as,
            keys=key_identities(profile, secrets_of(given)),
            accounts=frozenset(given.account if profile.shares_key else ()),
        )
    if settings.shop.secret is not None:
        secret = settings.shop.secret.get_secret_value()
        yield _KeyHolder(
            variable="TALLYHOOK_SHOP__SECRET",
            keys=key_identities(load_profile("checkout"), [secret]),
            accounts=frozenset(),
        )


def signer_of_section(section: str, secret: SecretStr) -> Source:
    """Return the source that signs a settings section's requests. Raises ConfigurationError for a
    secret that cannot sign."""
    try:
        return Source(
            name=section, profile=load_profile("checkout"), secrets=[secret.get_secret_value()]
        )
    except ConfigurationError as error:
        raise ConfigurationError(
            [f"TALLYHOOK_{section.upper()}__SECRET: {problem}" for problem in error.problems]
        ) from None
