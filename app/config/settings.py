"""The settings: environment variables, or a dotenv file named by TALLYHOOK_CONFIG.

Leaves out: whether a profile of that name exists (app.providers knows) and whether the database
can be reached. Nothing is read at import; `load_settings` reads once and reports every mistake at
once, never with a value in it, since any value could be a secret in the wrong place.
config.example.env explains each setting; a test holds the two together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.config.checks import CHECKS
from app.config.reading import PREFIX, Reading, given_variables, read_secret_file
from app.config.values import (
    DatedSecret,
    accounts,
    base_url,
    database_url,
    endpoint_url,
    lowered,
    named,
    networks,
    public_url,
    secrets,
    switched,
)
from app.core.errors import ConfigurationError
from reconcile.instants import SECOND, Instant
from reconcile.ledger.policy import Policy

KIB: Final = 1024
MIB: Final = 1024 * KIB

Secrets = Annotated[tuple[DatedSecret, ...], NoDecode, BeforeValidator(secrets)]
NamedSecrets = Annotated[dict[str, SecretStr], NoDecode, BeforeValidator(named)]
Accounts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(accounts)]
BaseUrl = Annotated[str, BeforeValidator(base_url)]
PublicUrl = Annotated[str, BeforeValidator(public_url)]
EndpointUrl = Annotated[str, BeforeValidator(endpoint_url)]
DatabaseUrl = Annotated[str, BeforeValidator(database_url)]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(switched)]
Networks = Annotated[tuple[str, ...], NoDecode, BeforeValidator(networks)]
Profile = Annotated[str, StringConstraints(pattern=r"^(?:[a-z0-9_-]{1,40}|[^\x00]*[/.][^\x00]*)$")]
Name = Annotated[str, BeforeValidator(lowered), StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")]


def _number(default: int, low: int, high: int) -> Any:
    """A whole number with its bounds, both included; the unit is in the setting's name."""
    return Field(default=default, ge=low, le=high)


class SourceSettings(BaseModel):
    """One provider account: how it signs, and with what.

    profile       a shipped profile's name, or the path of a file of one's own (with / or .toml)
    secrets       newest first, wherever they came from: any of them may match
    secrets_file  where they came from, if a file; `read_secret_file` reads it again
    keys          of profiles whose requests name their key: key id, or the part's name, to the key
    credentials   with which the provider is asked back, by the names that the profile uses
    account       of profiles whose events name an account: those whose events count
    orders        `own`: no other source's event, and no record of the shop but one that says so,
                  speaks of an order of this source
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Profile = "checkout"
    secrets: Secrets = ()
    secrets_file: Path | None = None
    keys: NamedSecrets = Field(default_factory=dict)
    credentials: NamedSecrets = Field(default_factory=dict)
    account: Accounts = ()
    orders: Annotated[Literal["shared", "own"], BeforeValidator(lowered)] = "shared"


class CheckoutSettings(BaseModel):
    """Where sessions are opened. All None: this installation opens none.

    token   the bearer token, wherever it came from
    source  name of the source that the sessions' webhooks come from
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: BaseUrl | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    source: Name | None = None


class ShopSettings(BaseModel):
    """Where the shop is told of every revision. All None: it reads the feed, or nothing.

    secret  signs the notifications, wherever it came from
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class EvidenceSettings(BaseModel):
    """With what evidence is signed.

    key_file  the ed25519 key in PEM, made at the first start; None: beside the database
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_file: Path | None = None


class PhonesSettings(BaseModel):
    """By what orders are found that a phone number belongs to.

    key_file  the key of the numbers' digests, made at the first start; None: beside the database
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_file: Path | None = None


class RehearsalSettings(BaseModel):
    """What `tallyhook rehearse` plays.

    numbers  a test number for each scenario's name; empty: those of the simulated provider
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    numbers: NamedSecrets = Field(default_factory=dict)
    amount: Annotated[str, StringConstraints(pattern=r"^\d{1,12}(?:\.\d{1,4})?$")] = "1500.00"
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "KES"


class Settings(BaseSettings):
    """Every setting, checked. Built by `load_settings`, or in tests by keyword.

    Numbers ending in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB; the others count what they
    name.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    environment: Annotated[Literal["sandbox", "live"], BeforeValidator(lowered)] | None = None
    # Not shown: a PostgreSQL URL carries a password.
    database_url: DatabaseUrl = Field(default="sqlite+aiosqlite:///var/tallyhook.db", repr=False)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    checkout: CheckoutSettings = Field(default_factory=CheckoutSettings)
    shop: ShopSettings = Field(default_factory=ShopSettings)
    evidence: EvidenceSettings = Field(default_factory=EvidenceSettings)
    phones: PhonesSettings = Field(default_factory=PhonesSettings)
    rehearsal: RehearsalSettings = Field(default_factory=RehearsalSettings)
    erasure_journal: Path | None = None

    require_order_record: Switch = "auto"

    payment_window_s: int = _number(1800, 1, 30 * 86_400)
    grace_s: int = _number(300, 0, 7 * 86_400)
    late_after_s: int = _number(300, 1, 7 * 86_400)
    future_tolerance_s: int = _number(300, 0, 86_400)
    fulfillment_window_s: int = _number(86_400, 0, 365 * 86_400)

    max_body_bytes: int = _number(MIB, KIB, 16 * MIB)
    max_header_bytes: int = _number(16 * KIB, KIB, 64 * KIB)
    max_bodies_bytes: int = _number(16 * MIB, KIB, 16 * KIB * MIB)
    max_connections: int = _number(2048, 1, 65_536)
    max_connections_per_address: int = _number(256, 1, 65_536)
    receive_deadline_s: int = _number(10, 1, 300)
    send_deadline_s: int = _number(10, 1, 300)
    idle_deadline_s: int = _number(75, 1, 3600)
    forwarded_allow_ips: Networks = ()
    public_url: PublicUrl = ""

    inbox_queue: int = _number(4096, 1, 65_536)
    inbox_batch: int = _number(512, 1, 4096)
    inbox_max_bytes: int = _number(4 * KIB * MIB, MIB, MIB * MIB)
    inbox_alarm_s: int = _number(10, 1, 86_400)
    inbox_red_s: int = _number(60, 1, 86_400)
    rejections_max_count: int = _number(10_000, 0, 1_000_000)
    rejections_max_bytes: int = _number(64 * MIB, 0, 16 * KIB * MIB)
    rejected_body_bytes: int = _number(64 * KIB, 0, 16 * MIB)
    rejections_per_minute: int = _number(3000, 1, 1_000_000)
    rejections_per_minute_per_address: int = _number(600, 1, 1_000_000)
    unsigned_per_minute: int = _number(1200, 1, 1_000_000)
    unsigned_per_minute_per_address: int = _number(600, 1, 1_000_000)
    disk_low_water_mb: int = _number(64, 0, MIB)

    retention_days: int = _number(0, 0, 3650)
    retention_phones_days: int = _number(0, 0, 3650)
    retention_rejections_days: int = _number(0, 0, 3650)
    retention_book_phones_days: int = _number(0, 0, 3650)
    retention_minimum_days: int = _number(0, 0, 3650)

    closing_margin_days: int = _number(10, 1, 60)

    longpoll_max_s: int = _number(60, 1, 600)
    page_max: int = _number(1000, 1, 10_000)
    worker_batch: int = _number(500, 1, 10_000)

    log_format: Annotated[Literal["json", "console", "auto"], BeforeValidator(lowered)] = "auto"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lowered)] = (
        "info"
    )
    log_lines_per_minute: int = _number(12_000, 100, 10_000_000)

    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed here but would not be in live, one sentence each with the variable."""
        return self._warnings

    @property
    def requires_order_record(self) -> bool:
        """Whether an order needs a price of the shop's own: in live unless that is switched off."""
        chosen = self.require_order_record
        return self.environment == "live" if chosen == "auto" else chosen == "on"

    def policy(self, *, required_since: Instant | None = None) -> Policy:
        """What a fold depends on, in microseconds. required_since: see `folding.order_records`."""
        return Policy(
            payment_window=self.payment_window_s * SECOND,
            grace=self.grace_s * SECOND,
            late_after=self.late_after_s * SECOND,
            future_tolerance=self.future_tolerance_s * SECOND,
            fulfillment_window=self.fulfillment_window_s * SECOND or None,
            require_order_record_since=required_since,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is handed over: construction never looks at the process's environment."""
        return (init_settings,)


SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "checkout": CheckoutSettings,
    "shop": ShopSettings,
    "evidence": EvidenceSettings,
    "phones": PhonesSettings,
    "rehearsal": RehearsalSettings,
}
"""Settings in groups of which there is one each."""


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    serving: bool = False,
    also: Callable[[Settings], list[str]] | None = None,
) -> Settings:
    """The settings of `environ` (default: the process's own), over those of TALLYHOOK_CONFIG.

    serving  whether webhooks will be received, for which an environment must be chosen
    also     what finds further problems, one line each: told together with the others

    Raises ConfigurationError with every problem, one line each: the variable, what is wrong and
    what would be right.
    """
    reading = Reading(serving=serving)
    reading.given = given_variables(
        os.environ if environ is None else environ, known=known_variables(), reading=reading
    )
    tree = _tree(reading.given)
    _fill_in(tree, reading)
    settings = _validated(tree, reading)
    for check in CHECKS:
        check(settings, reading)
    further = [] if also is None else also(settings)
    lines = [*reading.lines(), *(line for line in further if not reading.has_told(line))]
    if lines:
        raise ConfigurationError(lines)
    settings._warnings = tuple(reading.warnings)
    return settings


OF_COMMANDS: Final = ("CONFIG", "OPERATOR", "PLAY_TOKEN")
"""Variables that are no settings but words of commands: the file with the settings, who asks, and
the token of `sandbox --play`."""


def known_variables() -> tuple[str, ...]:
    """Every variable there can be; `<NAME>` stands for a source's name."""
    names = [PREFIX + name for name in OF_COMMANDS]
    for field in Settings.model_fields:
        if field == "sources":
            nested = [f"SOURCES__<NAME>__{name.upper()}" for name in SourceSettings.model_fields]
        elif field in SECTIONS:
            nested = [f"{field}__{name}".upper() for name in SECTIONS[field].model_fields]
        else:
            nested = [field.upper()]
        names += [PREFIX + name for name in nested]
    return tuple(names)


def _tree(given: Mapping[str, str]) -> dict[str, Any]:
    """The variables as nested values, still text."""
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in given.items()}
    return source()


def _fill_in(tree: dict[str, Any], reading: Reading) -> None:
    """Secrets from their files, and the only source as the one that sessions come from."""
    sources = tree.get("sources", {})
    for name, fields in sources.items():
        if "secrets_file" in fields and "secrets" not in fields:
            variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS_FILE"
            fields["secrets"] = read_secret_file(Path(fields["secrets_file"]), variable, reading)
    checkout = tree.setdefault("checkout", {})
    for section, name in (("checkout", "token"), ("shop", "secret")):
        fields = tree.get(section, {})
        if f"{name}_file" in fields and name not in fields:
            variable = f"{PREFIX}{section}__{name}_FILE".upper()
            lines = read_secret_file(Path(fields[f"{name}_file"]), variable, reading)
            fields[name] = lines[0] if lines else None
    if len(sources) == 1:
        checkout.setdefault("source", next(iter(sources)))


def _validated(tree: dict[str, Any], reading: Reading) -> Settings:
    """The settings; those that do not fit are reported and left at their defaults.

    With the defaults in their place, the checks across settings can still find their own problems.
    """
    try:
        return Settings(**tree)
    except ValidationError as error:
        for mistake in error.errors(include_url=False, include_input=False):
            path = [part for part in mistake["loc"] if isinstance(part, str)]
            reading.problem(PREFIX + "__".join(path).upper(), _sentence(mistake, path[-1]))
            _drop(tree, path)
    return Settings(**tree)


def _drop(tree: dict[str, Any], path: list[str]) -> None:
    for part in path[:-1]:
        tree = tree.get(part, {})
    tree.pop(path[-1], None)


def _sentence(mistake: Any, field: str) -> str:
    """What would be right, in our words: pydantic's may hold the value."""
    context = mistake.get("ctx", {})
    if mistake["type"] == "value_error":
        return str(context["error"])
    if mistake["type"] == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if field in _SHAPES:
        return _SHAPES[field]
    if field in ("profile", "source"):
        return "must be a name of 1 to 40 of a-z, 0-9, _ and -"
    return f"must be a whole number{_unit(field)} from {' to '.join(_bounds(field))}"


_SHAPES: Final = {
    "amount": "must be an amount in major units, such as 1500.00",
    "currency": "must be an ISO 4217 code, such as KES",
}


def _unit(field: str) -> str:
    return {"s": " of seconds", "days": " of days", "bytes": " of bytes", "mb": " of MiB"}.get(
        field.rpartition("_")[2], ""
    )


def _bounds(field: str) -> list[str]:
    metadata = Settings.model_fields[field].metadata
    low = next(part.ge for part in metadata if hasattr(part, "ge"))
    high = next(part.le for part in metadata if hasattr(part, "le"))
    return [f"{low:,}", f"{high:,}"]
