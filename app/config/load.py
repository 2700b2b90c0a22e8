"""Load the settings once, check them together, and report every mistake.

A message never quotes a value, because any value could be a misplaced secret.
"""

import os
import re
import resource
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from app.config.config_file import (
    CONFIG,
    ENVIRONMENT,
    PREFIX,
    SettingsReading,
    given_variables,
    read_secret_file,
)
from app.config.database_place import database_lies_well
from app.config.settings import SECTIONS, Settings, SourceSettings
from app.core.errors import ConfigurationError
from app.core.process import SPARE_FILES
from app.core.schedule import schedule_entries


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    serving: bool = False,
    also: Callable[[Settings], list[str]] | None = None,
) -> Settings:
    """Load the settings. The environment overrides the file that TALLYHOOK_CONFIG names.

    environ  the variables; None for the process's environment
    serving  whether the settings must name an environment
    also     returns further problems to report

    Raises ConfigurationError with every problem, one line each.
    """
    reading = SettingsReading(serving=serving)
    reading.given = given_variables(
        os.environ if environ is None else environ, known=known_variables(), reading=reading
    )
    tree: dict[str, Any] = {}
    for name, value in reading.given.items():
        if name in (PREFIX + each for each in OF_COMMANDS):
            continue
        fields = tree
        *groups, last = name.removeprefix(PREFIX).lower().split("__")
        for group in groups:
            fields = fields.setdefault(group, {})
        fields[last] = value
    _fill_in(tree, reading)
    settings = _validated(tree, reading)
    for check in CHECKS:
        check(settings, reading)
    further = [] if also is None else also(settings)
    lines = [*reading.lines(), *(line for line in further if not reading.has_reported(line))]
    if lines:
        raise ConfigurationError(lines)
    settings._warnings = tuple(reading.warnings)
    return settings


OF_COMMANDS: Final = ("CONFIG", "OPERATOR", "OPERATOR_TOKEN", "PLAY_TOKEN")
"""Variables that are defaults of command options and no settings. The names have no prefix."""


def known_variables() -> tuple[str, ...]:
    """Return the names of all variables. `<NAME>` stands for the name of a source."""
    of_source = [f"SOURCES__<NAME>__{name.upper()}" for name in SourceSettings.model_fields]
    others = [name for name, _ in declared()]
    return (*(PREFIX + name for name in (*OF_COMMANDS, *of_source)), *others)


def declared() -> Iterator[tuple[str, FieldInfo]]:
    """Yield each setting's variable and declaration. The settings of sources are left out."""
    for name, field in Settings.model_fields.items():
        if name in SECTIONS:
            for inner, each in SECTIONS[name].model_fields.items():
                yield f"{PREFIX}{name}__{inner}".upper(), each
        elif name != "sources":
            yield f"{PREFIX}{name}".upper(), field


_SECRETS_OF_SECTIONS: Final = tuple(
    (section, name)
    for section, kind in SECTIONS.items()
    for name in kind.model_fields
    if f"{name}_file" in kind.model_fields
)
"""Secrets in sections that can also be read from a file. The variable that names the file ends with
`_FILE`."""


def _fill_in(tree: dict[str, Any], reading: SettingsReading) -> None:
    sources = tree.get("sources", {})
    for name, fields in sources.items():
        if "secrets_file" in fields and "secrets" not in fields:
            variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS_FILE"
            fields["secrets"] = read_secret_file(Path(fields["secrets_file"]), variable, reading)
    checkout = tree.setdefault("checkout", {})
    for section, name in _SECRETS_OF_SECTIONS:
        fields = tree.get(section, {})
        if f"{name}_file" in fields and name not in fields:
            variable = f"{PREFIX}{section}__{name}_FILE".upper()
            lines = read_secret_file(Path(fields[f"{name}_file"]), variable, reading)
            fields[name] = lines[0] if lines else None
    if len(sources) == 1:
        checkout.setdefault("source", next(iter(sources)))


def _validated(tree: dict[str, Any], reading: SettingsReading) -> Settings:
    """Return the validated settings. A wrong setting is reported and replaced with its default, so
    that later checks can run."""
    try:
        return Settings(**tree)
    except ValidationError as error:
        for mistake in error.errors(include_url=False, include_input=False):
            path = [part for part in mistake["loc"] if isinstance(part, str)]
            reading.problem(PREFIX + "__".join(path).upper(), _sentence(mistake, path[-1]))
            fields = tree
            for part in path[:-1]:
                fields = fields.get(part, {})
            fields.pop(path[-1], None)
    return Settings(**tree)


def _sentence(mistake: Any, field: str) -> str:
    """Return a sentence on the allowed values; Pydantic's own message could reveal a secret."""
    context = mistake.get("ctx", {})
    if mistake["type"] == "value_error":
        return str(context["error"])
    if mistake["type"] == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if mistake["type"] == "string_unicode":
        return "must be text in UTF-8"
    if mistake["type"].startswith("bool"):
        return "must be true or false"
    units = {"s": " of seconds", "days": " of days", "bytes": " of bytes", "mb": " of MiB"}
    unit = units.get(field.rpartition("_")[2], "")
    fields = [Settings.model_fields, *(each.model_fields for each in SECTIONS.values())]
    metadata = next(each[field].metadata for each in fields if field in each)
    low = next(part.ge for part in metadata if hasattr(part, "ge"))
    high = next(part.le for part in metadata if hasattr(part, "le"))
    return f"must be a whole number{unit} from {low:,} to {high:,}"


SIMULATOR_SECRET: Final = "whsec_dGFsbHlob29rLXNhbmRib3gtbm90LWEtc2VjcmV0IQ=="  # noqa: S105
"""Secret of the simulated provider. The secret is public, because the documentation shows it."""

_TRYING_OUT: Final = frozenset({"sandbox", "staging", "test", "uat", "demo", "dev"})


def _secrets_of_a_source_are_different_and_no_paths(
    settings: Settings, reading: SettingsReading
) -> None:
    for name, source in settings.sources.items():
        variable = _variable(f"{PREFIX}SOURCES__{name.upper()}__SECRETS", reading)
        times = Counter(_bare(secret.get_secret_value()) for secret in source.secrets)
        if any(count > 1 for secret, count in times.items() if secret):
            reading.problem(variable, "holds the same secret twice; write each secret once")
        for secret in source.secrets:
            text = secret.get_secret_value()
            if text.startswith(("/", "./")) and "\0" not in text and os.path.exists(text):
                reading.problem(
                    variable, f"holds the path of a file; set {variable}_FILE to that path instead"
                )


def _bare(secret: str) -> str:
    return secret.strip().removeprefix("whsec_").rstrip("=")


def _variable(name: str, reading: SettingsReading) -> str:
    return name if name in reading.given else name + "_FILE"


def _nothing_of_the_simulator_in_live(settings: Settings, reading: SettingsReading) -> None:
    if not reading.live:
        return
    for variable, secret in _secrets(settings, reading):
        if _bare(secret) == _bare(SIMULATOR_SECRET):
            reading.problem(
                variable,
                "holds the simulated provider's secret, which everyone knows; write your own",
            )


def _the_interpreter_is_as_it_should_be(settings: Settings, reading: SettingsReading) -> None:
    if not reading.serving:
        return
    if reading.live and settings.log_level == "debug":
        reading.problem(
            PREFIX + "LOG_LEVEL",
            "has the value debug, which is for testing only; in a live environment, set it to info",
        )
    if reading.live and sys.flags.dev_mode:
        reading.problem("PYTHONDEVMODE", "is for testing only; unset it in a live environment")
    if sys.flags.optimize:
        reading.problem("PYTHONOPTIMIZE", "turns off the checks around each write; unset it")


def _orders_need_a_price_of_the_shop(settings: Settings, reading: SettingsReading) -> None:
    if reading.live and settings.require_order_record == "off":
        reading.warnings.append(
            f"{PREFIX}REQUIRE_ORDER_RECORD: is off in live: if the shop has stated no price, an "
            "order counts as paid at the price in the provider's event"
        )


RETAINED: Final = {
    "RETENTION_ACCOUNTS_DAYS": "the number of days for which the law requires you to keep books",
    "RETENTION_DISPUTES_DAYS": "the number of days after a payment in which it can be disputed, "
    "usually 120 to 540",
    "RETENTION_UNALLOCATED_DAYS": "the number of days for which you look for a payment's order",
}


def _live_says_how_long_data_are_kept(settings: Settings, reading: SettingsReading) -> None:
    if not (reading.live and reading.serving):
        return
    for name, what in RETAINED.items():
        variable = PREFIX + name
        if variable not in reading.given and variable not in reading.problems:
            reading.problem(
                variable, f"is required in a live environment: write {what}, or 0 for none"
            )


def _the_consoles_proxy_is_named(settings: Settings, reading: SettingsReading) -> None:
    if settings.console.public_url and not settings.forwarded_allow_ips:
        reading.warnings.append(
            f"{PREFIX}FORWARDED_ALLOW_IPS: is empty, so all console users appear with the proxy's "
            "address and share one limit of sign-in attempts; write the proxy's address"
        )


def _files_of_settings_are_safe(settings: Settings, reading: SettingsReading) -> None:
    files = {CONFIG: reading.config_file}
    for name, source in settings.sources.items():
        files[f"{PREFIX}SOURCES__{name.upper()}__SECRETS_FILE"] = source.secrets_file
    for section, name in _SECRETS_OF_SECTIONS:
        variable = f"{PREFIX}{section}__{name}_FILE".upper()
        files[variable] = getattr(getattr(settings, section), f"{name}_file")
    reported = {*reading.problems, *(warning.partition(":")[0] for warning in reading.warnings)}
    for variable, path in files.items():
        if path is None or variable in reported:
            continue
        if _others_write(path):
            reading.only_in_sandbox(variable, "names a file others can change; chmod go-w it")
        elif _others_write(path.parent):
            reading.only_in_sandbox(
                variable, "names a file in a folder others can change; chmod go-w the folder"
            )


def _others_write(path: Path) -> bool:
    """Return whether other users may write to a path. A sticky folder is safe, because other users
    cannot replace files in it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return bool(mode & 0o022) and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)


def _files_suffice_for_connections(settings: Settings, reading: SettingsReading) -> None:
    variable = PREFIX + "MAX_CONNECTIONS"
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or variable not in reading.given:
        return
    if settings.max_connections + SPARE_FILES > limit:
        reading.problem(
            variable,
            f"needs {settings.max_connections + SPARE_FILES:,} open files, but this process may "
            f"open only {limit:,}; raise the limit (ulimit -n) or write a smaller number",
        )


def _is_whole(reading: SettingsReading, *, url: str, secret: str, missing: str) -> None:
    """Report an address without its secret, and a secret without its address.

    missing  the sentence for a missing address
    """
    given = {secret, secret + "_FILE"} & reading.given.keys()
    if len(given) == 2:
        reading.problem(secret, f"is set together with {secret}_FILE; keep one of the two")
    if url in reading.given and not given:
        reading.problem(secret, f"is missing, although {url} is set; set it, or {secret}_FILE")
    if given and url not in reading.given:
        reading.problem(url, missing)


def _shop_is_whole_and_encrypted(settings: Settings, reading: SettingsReading) -> None:
    url, secret = PREFIX + "SHOP__URL", PREFIX + "SHOP__SECRET"
    missing = "is missing, although its secret is set; write the address at which the shop listens"
    _is_whole(reading, url=url, secret=secret, missing=missing)
    if (settings.shop.url or "").startswith("http:") and reading.live:
        reading.problem(url, "sends payment data unencrypted; use https://")


MAIL: Final = PREFIX + "REPORTS__MAIL_"


def _reports_have_their_ways(settings: Settings, reading: SettingsReading) -> None:
    reports, schedule = settings.reports, PREFIX + "SCHEDULE"
    url = PREFIX + "REPORTS__URL"
    missing = (
        "is missing, although its secret is set; write the address to which reports are posted"
    )
    _is_whole(reading, url=url, secret=PREFIX + "REPORTS__SECRET", missing=missing)
    if (reports.url or "").startswith("http:") and reading.live:
        reading.problem(url, "sends reports unencrypted; use https://")
    to = reports.mail_to or settings.alarms.mail_to
    mail = {"SERVER": reports.mail_server, "FROM": reports.mail_from, "TO": to}
    entries = schedule_entries(settings.schedule)
    mailed = any("mail" in entry.ways for entry in entries)  # else operators give their addresses
    if any(mail.values()) or reports.mail_user:
        for name, value in mail.items():
            if not value and (mailed or name != "TO") and MAIL + name not in reading.problems:
                reading.problem(
                    MAIL + name, "is missing, although other mail settings are set; set it"
                )
    if (reports.mail_user is None) != (reports.mail_password is None):
        reading.problem(MAIL + "USER", "must be set together with the password; set both")
    ways = {"folder": reports.folder, "mail": reports.mail_server, "post": reports.url}
    for entry in entries:
        for way in entry.ways:
            if ways[way] is None and schedule not in reading.problems:
                reading.problem(
                    schedule,
                    f"{entry.name}: uses {way}, but {PREFIX}REPORTS__{_WAY[way]} is not set",
                )


def _alarms_have_their_ways(settings: Settings, reading: SettingsReading) -> None:
    url, missing = (
        PREFIX + "ALARMS__URL",
        "is missing, although its secret is set; write the address",
    )
    _is_whole(reading, url=url, secret=PREFIX + "ALARMS__SECRET", missing=missing)
    if (settings.alarms.url or "").startswith("http:") and reading.live:
        reading.problem(url, "sends alarms unencrypted; use https://")


OIDC: Final = PREFIX + "OIDC__"


def _company_account_is_whole(settings: Settings, reading: SettingsReading) -> None:
    oidc = settings.oidc
    secret = OIDC + "CLIENT_SECRET"
    missing = (
        "is missing, although the secret is set; write the issuer's URL, as the sign-in "
        "provider states it"
    )
    _is_whole(reading, url=OIDC + "ISSUER", secret=secret, missing=missing)
    needed = {"ISSUER": oidc.issuer, "CLIENT_ID": oidc.client_id, "ROLES": oidc.roles}
    if any(needed.values()) or oidc.local_accounts == "off":
        for name, value in needed.items():
            if not value and OIDC + name not in reading.problems:
                reading.problem(
                    OIDC + name, "is missing, although other OIDC settings are set; set it"
                )
    if (oidc.issuer or "").startswith("http:"):
        reading.only_in_sandbox(
            OIDC + "ISSUER", "would be contacted without encryption; use https://"
        )


_WAY: Final = {"folder": "FOLDER", "mail": "MAIL_SERVER", "post": "URL"}

WITNESSES: Final = PREFIX + "EVIDENCE__WITNESS"


def _witnesses_fit_together(settings: Settings, reading: SettingsReading) -> None:
    evidence, count = settings.evidence, len(settings.evidence.witnesses)
    names = [WITNESSES + end for end in ("_QUORUM", "_EVERY_S", "_ALARM_S")]
    if any(name in reading.problems for name in (WITNESSES + "ES", *names)):
        return
    for name in reading.given.keys() & set(names) if not count else ():
        reading.problem(name, f"has no use without {WITNESSES}ES; list the witnesses there")
    if count and evidence.witness_quorum > count:
        reading.problem(WITNESSES + "_QUORUM", f"must be at most {count}, the number of witnesses")
    if evidence.witness_alarm_s < 2 * evidence.witness_every_s:
        reading.problem(
            WITNESSES + "_ALARM_S",
            f"must be at least twice {WITNESSES}_EVERY_S, which is {evidence.witness_every_s:,}",
        )


MIN_SECRET_CHARS: Final = 16
"""Minimum number of characters in a secret. Even 16 hexadecimal digits are only 64 bits."""

_MIN_DISTINCT: Final = 5
"""Minimum number of different characters in a secret."""

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
"""Typical parts of example secrets in guides. Upper case and punctuation do not count in
comparisons."""

_PUBLISHED: Final = frozenset(
    {
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    }
)
"""Secrets that documents such as the Standard Webhooks specification have published."""

_QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d"

_KIND = re.compile(r"(?:[a-z]{1,8}[_-])?(test|sandbox|live)[_-]", re.IGNORECASE)


def _environment(settings: Settings, reading: SettingsReading) -> None:
    if reading.serving and settings.environment is None and ENVIRONMENT not in reading.problems:
        reading.problem(
            ENVIRONMENT,
            "is required by `tallyhook serve`: set it to sandbox or live, in the environment or "
            "in the file that TALLYHOOK_CONFIG names",
        )


def _each_source_has_secrets(settings: Settings, reading: SettingsReading) -> None:
    for name in settings.sources:
        variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS"
        both = {variable, variable + "_FILE"}
        others = {f"{PREFIX}SOURCES__{name.upper()}__{key}" for key in ("KEYS", "CREDENTIALS")}
        if both <= reading.given.keys():
            reading.problem(variable, f"is set together with {variable}_FILE; keep one of the two")
        elif not (both | others) & (reading.given.keys() | reading.problems.keys()):
            reading.problem(
                variable,
                f"is missing; set it, or {variable}_FILE, or CREDENTIALS for a provider that does "
                "not sign its events",
            )
    if reading.serving and not settings.sources and not reading.problems:
        reading.warnings.append(
            f"{PREFIX}SOURCES__<NAME>__SECRETS: no source is set up, so every webhook is refused"
        )


def _secrets_are_sound(settings: Settings, reading: SettingsReading) -> None:
    for variable, secret in _secrets(settings, reading):
        if not secret:
            reading.problem(variable, "holds an empty secret; write the provider's signing secret")
        elif secret[0] in _QUOTES and secret[-1] in _QUOTES:
            reading.problem(variable, "holds a secret in quotes; remove the quotes")
        elif len(re.sub(r"\A(whsec|whsk|whpk)_", "", secret)) < MIN_SECRET_CHARS:
            reading.problem(
                variable,
                f"holds a secret of fewer than {MIN_SECRET_CHARS} characters, which is too short; "
                "copy the whole secret",
            )
        elif len(set(secret)) < _MIN_DISTINCT or any(
            part in re.sub(r"[^a-z0-9]", "", secret.lower()) for part in _PLACEHOLDERS
        ):
            reading.problem(variable, "holds a well-known secret; write the provider's own")
        elif secret in _PUBLISHED:
            reading.only_in_sandbox(
                variable, "holds a secret printed in public documents; write the provider's own"
            )


def _secrets_fit_the_environment(settings: Settings, reading: SettingsReading) -> None:
    for variable, secret in _secrets(settings, reading):
        match = _KIND.match(secret)
        kind = "" if match is None else "live" if match[1].lower() == "live" else "sandbox"
        if kind and settings.environment and kind != settings.environment:
            reading.problem(
                variable,
                f"holds a {kind} secret in environment {settings.environment}; use the "
                f"{settings.environment} one",
            )


def _secrets_are_different(settings: Settings, reading: SettingsReading) -> None:
    seen: dict[str, str] = {}
    for variable, secret in _secrets(settings, reading):
        if not secret or is_public(secret):
            continue  # all accounts of a provider share its published key
        other = seen.setdefault(secret, variable)
        if other != variable:
            reading.problem(
                variable, f"holds the same secret as {other}; give each source its own secret"
            )


def _addresses_are_no_other_name(settings: Settings, reading: SettingsReading) -> None:
    for name, source in settings.sources.items():
        for end in source.address:
            if end.get_secret_value() in settings.sources.keys() - {name}:
                reading.problem(
                    f"{PREFIX}SOURCES__{name.upper()}__ADDRESS",
                    "is the name of another source; choose an address that nobody can guess",
                )


def is_public(secret: str) -> bool:
    """Return whether a text is a public key or a certificate in PEM, and therefore no secret."""
    return secret.startswith(("-----BEGIN PUBLIC", "-----BEGIN CERT"))


def _secrets(settings: Settings, reading: SettingsReading) -> Iterator[tuple[str, str]]:
    for name, source in settings.sources.items():
        variable = _variable(f"{PREFIX}SOURCES__{name.upper()}__SECRETS", reading)
        for secret in source.secrets:
            yield variable, secret.get_secret_value()
        for end in source.address:
            if end.get_secret_value() == name:
                continue  # it was the end of the path before there was a secret one
            yield f"{PREFIX}SOURCES__{name.upper()}__ADDRESS", end.get_secret_value()
    for section, name in _SECRETS_OF_SECTIONS:
        one = getattr(getattr(settings, section), name)
        if one is not None and name != "mail_password":  # a mail server may accept a short password
            yield _variable(f"{PREFIX}{section}__{name}".upper(), reading), one.get_secret_value()


def _checkout_is_whole_and_safe(settings: Settings, reading: SettingsReading) -> None:
    variable, url = PREFIX + "CHECKOUT__BASE_URL", settings.checkout.base_url or ""
    missing = "is missing, although the token is set; write the payment service's address"
    _is_whole(reading, url=variable, secret=PREFIX + "CHECKOUT__TOKEN", missing=missing)
    if url.startswith("http:") and settings.environment != "sandbox":
        reading.problem(variable, "sends the token unencrypted; use https://")
    host = urlsplit(url).hostname or ""
    parts = {part for label in host.split(".") for part in label.split("-")}
    if reading.live and parts & _TRYING_OUT:
        reading.problem(
            variable,
            "names a test host in environment live; write the live service's address",
        )


def _checkout_has_its_source(settings: Settings, reading: SettingsReading) -> None:
    variable, source = PREFIX + "CHECKOUT__SOURCE", settings.checkout.source
    if variable in reading.problems:
        return
    found = settings.sources.get(source or "")
    if settings.checkout.base_url and found is not None and found.orders == "own":
        reading.problem(
            f"{PREFIX}SOURCES__{(source or '').upper()}__ORDERS",
            "must have the value shared, because checkout opens sessions for the shop's orders",
        )
    names = ", ".join(sorted(settings.sources)) or "none is configured yet"
    if source is not None and source not in settings.sources:
        reading.problem(variable, f"is not a configured source; write one of: {names}")
    elif settings.checkout.base_url and source is None and len(settings.sources) != 1:
        reading.problem(
            variable,
            f"is missing; write the source that receives the payment service's webhooks: {names}",
        )


def _sizes_fit_together(settings: Settings, reading: SettingsReading) -> None:
    for small, large in (
        ("inbox_batch", "inbox_queue"),
        ("inbox_alarm_s", "inbox_red_s"),
        ("rejected_body_bytes", "rejections_max_bytes"),
        ("max_connections_per_address", "max_connections"),
        ("max_body_bytes", "max_bodies_bytes"),
    ):
        variable, other = PREFIX + small.upper(), PREFIX + large.upper()
        limit = getattr(settings, large)
        # A default above a smaller limit is harmless.
        if variable in reading.given and getattr(settings, small) > limit:
            reading.problem(variable, f"must not be more than {other}, which is {limit:,}")


CHECKS: Final[tuple[Callable[[Settings, SettingsReading], None], ...]] = (
    _environment,
    _each_source_has_secrets,
    _secrets_are_sound,
    _secrets_fit_the_environment,
    _secrets_are_different,
    _addresses_are_no_other_name,
    _checkout_is_whole_and_safe,
    _checkout_has_its_source,
    _sizes_fit_together,
    _shop_is_whole_and_encrypted,
    _reports_have_their_ways,
    _witnesses_fit_together,
    _alarms_have_their_ways,
    _company_account_is_whole,
    _secrets_of_a_source_are_different_and_no_paths,
    _nothing_of_the_simulator_in_live,
    _the_interpreter_is_as_it_should_be,
    _orders_need_a_price_of_the_shop,
    _live_says_how_long_data_are_kept,
    _the_consoles_proxy_is_named,
    _files_of_settings_are_safe,
    _files_suffice_for_connections,
    database_lies_well,
)
