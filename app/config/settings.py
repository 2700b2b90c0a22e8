"""Declarations of all settings, with types, bounds and defaults.

The docstring below each setting explains it to operators; `make write` copies it to
config.example.env. An import of this module reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
)

from app.config import values
from app.config.database_url import sqlite_file
from reconcile.instants import SECOND, Instant
from reconcile.ledger.policy import Policy

KIB: Final = 1024
MIB: Final = 1024 * KIB


def _number(default: int, low: int, high: int) -> Any:
    return Field(default=default, ge=low, le=high)


class Section(BaseModel):
    """Group of settings. The docstring of each subclass is the group's heading in
    config.example.env."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SourceSettings(Section):
    """Sources: one block for each provider account. Write the source's name in place of SHOP: 1 to
    40 letters, digits, _ and -. Everywhere else the name is in lower case. Deliveries arrive at
    /webhooks/shop. One instance serves one merchant. Run another instance for a shop that uses the
    same order numbers for different orders."""

    profile: values.Profile = "checkout"
    """Profile of the provider. It describes how the provider signs, names, dates and prices its
    events. Give the name of a shipped profile, or the path of your own file."""

    address: values.Addresses = Field((), examples=["<address>"])
    """Secret end of the webhook path, used instead of the source's name. Set it for a provider that
    signs nothing. `tallyhook connect` creates the address, and --rotate-address replaces it. A JSON
    list may contain several addresses, newest first. An old address may expire: "<older> until
    2027-12-01T00:00:00Z"."""

    secrets: values.Secrets = Field((), examples=['["<newest>", "<older>"]'])
    """Signing secrets, newest first, as a JSON list or separated by commas. A delivery is accepted
    if any of the secrets matches, so that you can change a secret without losing events. Restart
    the service after a change. An old secret may expire: "<older> until 2026-12-01T00:00:00Z".

    Each secret must have at least 16 characters and belong to one source only. Otherwise an event
    of one source could pass for an event of another source.
    """

    secrets_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-shop"])
    """File that contains the signing secrets, instead of SECRETS. Each line holds one secret,
    newest first. Keys in PEM keep their lines."""

    keys: values.NamedSecrets = Field({}, examples=['{"<key id>": "<key>"}'])
    """Verification keys by key id, as a JSON object. Set them if each request of the provider names
    the key that signed it. A public key may be PEM, with \\n for its line ends."""

    credentials: values.NamedSecrets = Field({}, examples=['{"api_key": "<value>"}'])
    """Credentials for queries at the provider, as a JSON object. They are needed if the signature
    does not cover what an event states. `tallyhook profiles show` lists the names that a profile
    needs. A provider that signs nothing (profile mpesa_stk) needs only credentials, and no
    secret."""

    account: values.Accounts = Field((), examples=["<account>"])
    """Your account at the provider, as the provider's events name it, or a JSON list of several
    accounts. `tallyhook profiles show` tells which member of an event names the account
    (account.where). An event of another account is acknowledged and kept, but does not count as
    yours.

    The setting is required if all merchants of the provider share the provider's key. An event that
    names another account or no account is then refused.
    """

    only: values.Only = Field({}, examples=['{"data.object.metadata.shop": ["north"]}'])
    """Signed members of events that name the shop, each with your values. Set it if several shops
    use one account. Payments of other shops are kept, but do not count as yours. After a change,
    run `tallyhook reindex`, which judges earlier events again."""

    orders: Annotated[Literal["shared", "own"], values.Lowered] = "shared"
    """Scope of the source's order references. shared: a reference means the same order in every
    source. own: this source has its own orders. Tallyhook then names order 1001 of this source
    @shop:1001, also in API calls. After a change, run `tallyhook reindex`."""

    link_by: Annotated[Literal["order", "references"], values.Lowered] = "order"
    """Rule for linking a payment to its order. order: the payment belongs to the order that its
    event names. references: the order number in the event is only a suggestion. The payment is
    linked if the shop named the payment or its session. It is also linked if a signed or fetched
    event connects it with such a payment or session. Choose references if other shops use the
    account too. After a change, run `tallyhook reindex`."""

    shared: Annotated[Literal["unknown", "yes", "no"], values.Lowered] = "unknown"
    """Answer to the question whether another shop or system uses the account: yes, no or unknown.
    If yes, set ACCOUNT, ONLY or LINK_BY too. Otherwise payments of others would count as yours."""

    captures: values.Accounts = Field((), examples=['["ideal"]'])
    """Payment methods whose payments the provider captures automatically, each as the provider's
    events name it. Only the profile adyen uses this setting. A payment by another method stays
    authorized until a capture is reported.

    The setting needs "webhook" in CREDENTIALS: the user name and password that the provider sends
    with each webhook, because its signature does not cover the method. Keep an old pair as
    "webhook_old".
    """

    link_mismatch: Annotated[Literal["accept", "hold"], values.Lowered] = "accept"
    """Treatment of a payment that is linked to an order only by the order number. accept: the
    payment counts. hold: the payment counts only if its amount, or the sum of several such
    payments, is a price of the order. Choose hold if other shops use the account too."""


class CheckoutSettings(Section):
    """Checkout. Set it only if Tallyhook opens payment sessions at your payment service, for POST
    /api/v1/checkout/sessions and `tallyhook checkout start`. app/checkout/session_api.py describes
    the requests and answers."""

    base_url: values.BaseUrl | None = Field(None, examples=["https://payments.example"])
    """Address of the payment service. It must be https in live, because requests contain the
    token."""

    token: SecretStr | None = Field(None, examples=["<token>"])
    """Bearer token for the payment service. A live environment refuses a token that looks like a
    sandbox token, and a sandbox refuses a live one."""

    token_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-checkout"])
    """File that contains the token, instead of TOKEN."""

    source: values.Name | None = Field(None, examples=["shop"])
    """Source that receives the webhooks of the payment sessions. If there is only one source, it is
    the default."""


class ShopSettings(Section):
    """Notifications of the shop about every change of an order. The shop can also read the outcome
    feed."""

    url: values.EndpointUrl | None = Field(
        None, examples=["https://shop.example/payments/outcomes"]
    )
    """Address to which notifications are posted. It must be https in live. The shop must answer
    with a 2xx status within ten seconds. Otherwise the notification is sent again, for three days.

    While no notification is accepted, Tallyhook tries one notification each minute. After the first
    success it sends all waiting notifications.
    """

    secret: SecretStr | None = Field(None, examples=["<shop secret>"])
    """Secret that signs notifications (Standard Webhooks): whsec_ and at least 24 bytes in base64.
    The shop verifies notifications with the same secret."""

    secret_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-notifications"])
    """File that contains the secret, instead of SECRET."""


class ReportsSettings(Section):
    """Reports: accounts, exchange rates, and destinations of the reports that TALLYHOOK_SCHEDULE
    orders."""

    accounts: Path | None = Field(None, examples=["/etc/tallyhook/accounts.toml"])
    """TOML file with the names of your accounts for every journal, as for `tallyhook report journal
    --accounts`."""

    currency: values.Currency | None = Field(None, examples=["EUR"])
    """Your own currency, in which reports show totals. Without it, reports have no such totals."""

    rates: Path | None = Field(None, examples=["/srv/rates/eurofxref-hist.csv"])
    """File of exchange rates to your own currency. Its lines are date,currency,rate, where the rate
    is the price of one unit in your currency. The European Central Bank's eurofxref-hist.csv also
    works.

    For a day without a rate, the latest rate of the seven days before applies. If the file has
    none, reports use the rate at which the provider's statements converted the currency.
    """

    folder: Path | None = Field(None, examples=["/srv/reports"])
    """Existing folder into which report files are written. A file appears only when it is complete,
    and replaces a file of the same name."""

    mail_server: values.MailServerPlace | None = Field(None, examples=["smtp.example:587"])
    """Mail server: its host and optionally its port, by default 587. Port 465 is encrypted from the
    start. On other ports the server must offer STARTTLS, unless the server is on this machine.
    Reports of more than 20 MiB together are not mailed."""

    mail_user: str | None = Field(None, examples=["tallyhook"])
    """User name for the mail server, if the server requires one."""

    mail_password: SecretStr | None = Field(None, examples=["<mail password>"])
    """Password for the mail server, if the server requires one."""

    mail_password_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-mail"])
    """File that contains the password, instead of MAIL_PASSWORD."""

    mail_from: values.MailAddress | None = Field(None, examples=["reports@shop.example"])
    """Address from which reports and alarms are mailed."""

    mail_to: values.MailAddresses = Field((), examples=["finance@shop.example,cfo@shop.example"])
    """Recipients of reports: 1 to 20 addresses, separated by commas."""

    url: values.EndpointUrl | None = Field(None, examples=["https://shop.example/reports"])
    """Address to which each report is posted. It must be https in live."""

    secret: SecretStr | None = Field(None, examples=["<reports secret>"])
    """Secret that signs posted reports, in the form of TALLYHOOK_SHOP__SECRET."""

    secret_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-reports"])
    """File that contains the secret, instead of SECRET."""


class AlarmsSettings(Section):
    """Alarms: destinations of messages. Each destination gets one message when an alarm begins, and
    one message when it ends."""

    url: values.EndpointUrl | None = Field(None, examples=["https://pager.example/tallyhook"])
    """Address to which alarms are posted. It must be https in live. A message is posted again, with
    pauses of up to an hour, until a 2xx status arrives within ten seconds. Notices about waiting
    work (`work.waits`) are posted here too, for operators who chose this on the page My notices."""

    secret: SecretStr | None = Field(None, examples=["<alarms secret>"])
    """Secret that signs posted alarms, in the form of TALLYHOOK_SHOP__SECRET."""

    secret_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-alarms"])
    """File that contains the secret, instead of SECRET."""

    mail_to: values.MailAddresses = Field((), examples=["oncall@shop.example"])
    """Recipients of alarms by mail: 1 to 20 addresses, separated by commas. Mails use
    TALLYHOOK_REPORTS__MAIL_SERVER and TALLYHOOK_REPORTS__MAIL_FROM."""


class EvidenceSettings(Section):
    """Evidence: all stored evidence is sealed in a log. A signed checkpoint vouches for the log's
    content."""

    key_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-evidence"])
    """File of the ed25519 signing key (PEM). The first start creates the file, readable only by its
    owner. By default, the file is beside the SQLite database (tallyhook.evidence.key), and with
    PostgreSQL in var/tallyhook.evidence.key.

    On PostgreSQL, all receivers and workers of one database need a copy of the same key; another
    key is refused. Keep a copy away from the database, because `tallyhook backup` does not contain
    the key.
    """

    publish: bool = False
    """Publication of the log's public data: true or false. If true, everybody can read four things
    under /.well-known/tallyhook/, without a token. These are the receiver's public keys, the newest
    checkpoint, the newest checkpoint that witnesses cosigned, and proofs that the log only grew.

    Anybody can keep a checkpoint, and later check that the log still agrees with it: `tallyhook
    evidence verify --checkpoint` and `tallyhook log verify --against`. A checkpoint contains no
    order, amount or person, but reveals how many entries the log has.
    """

    witnesses: values.WitnessList = Field(
        (),
        examples=["<witness key> https://witness.example/w1,<other key> https://other.example"],
    )
    """Witnesses that cosign checkpoints (C2SP tlog-witness): at most 16, separated by commas. Each
    is a verifier key (NAME+ID+KEY), a space and an address. The address must be https, unless the
    witness runs on this machine. Give each witness's operator the "log" and "note" from `tallyhook
    log key`.

    A witness refuses a checkpoint that does not continue the previous checkpoint. Anybody who
    trusts the witnesses can therefore check that the log was never rewritten: `tallyhook evidence
    verify --witness KEY`.
    """

    witness_quorum: int = Field(default=0, ge=0, le=values.MAX_WITNESSES, examples=[2])
    """Number of witnesses that must cosign a checkpoint. Default 0: more than half of all
    witnesses."""

    witness_every_s: int = Field(default=600, ge=60, le=86_400, examples=[600])
    """Seconds between two requests to the witnesses. Default: 600."""

    witness_alarm_s: int = Field(default=7200, ge=300, le=30 * 86_400, examples=[7200])
    """Seconds without enough cosignatures after which an alarm begins. Default: 7,200. It must be
    at least twice TALLYHOOK_EVIDENCE__WITNESS_EVERY_S."""


class PhonesSettings(Section):
    """Customers' phone numbers"""

    key_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-phones"])
    """File of the key with which customers' phone numbers, mail addresses and names are turned into
    digests. Orders are found by the digests, and the database alone does not reveal the data. The
    first start creates the file, readable only by its owner. By default, the file is beside the
    SQLite database (tallyhook.phone.key), and with PostgreSQL in var/tallyhook.phone.key.

    All receivers of one PostgreSQL database need the same file. Back up the file, but not beside
    the database. If it is lost, `tallyhook reindex` creates the digests again.
    """

    shown_per_hour: int = _number(20, 1, 10_000)
    """Maximum number of phone numbers that one operator may see in an hour without a proposal to a
    second operator. The body of a delivery and a full evidence bundle count as one number each."""


class RehearsalSettings(Section):
    """Rehearsal: the payments that `tallyhook rehearse` plays before going live."""

    numbers: values.NamedSecrets = Field(
        {}, examples=['{"success": "<number>", "decline": "<other number>"}']
    )
    """Test phone numbers of your provider, as a JSON object with a number for each scenario. Only
    the named scenarios are played. By default, the sandbox uses the sixteen numbers of the
    simulated provider. A live environment has no default, and its rehearsal is refused without
    numbers."""

    amount: values.Amount = "1500.00"
    """Amount of each order, in major units."""

    currency: values.Currency = "KES"
    """Currency of each order (ISO 4217)."""


class ConsoleSettings(Section):
    """Console"""

    public_url: values.HttpsUrl = ""
    """Address of the console for browsers: https and host, such as https://console.shop.example. If
    it is empty, the console is available only on this machine."""

    port: int = _number(8081, 1, 65_535)
    """Port of `tallyhook console` and `serve --console`. Links from `tallyhook operators invite`
    use this port if TALLYHOOK_CONSOLE__PUBLIC_URL is empty."""

    mappings: Path | None = None
    """Folder of mapping files (*.toml). A mapping file describes the columns of an imported file.
    Import forms offer each mapping by its name. Without this setting, the forms accept only files
    with the usual column names."""


class OidcSettings(Section):
    """Company accounts: sign-in to the console by OpenID Connect."""

    issuer: values.Issuer | None = Field(None, examples=["https://login.example/realms/shop"])
    """Issuer of the company's accounts, exactly as the provider's configuration states it. If it is
    not set, operators sign in by password. Register the console's address with
    /sign-in/company/back at the provider. The provider is responsible for the second factor."""

    client_id: values.MerchantWords = Field("", examples=["tallyhook"])
    """Client id of the console at the provider."""

    client_secret: SecretStr | None = Field(None, examples=["<client secret>"])
    """Client secret of the console at the provider."""

    client_secret_file: Path | None = Field(None, examples=["/etc/tallyhook/oidc.secret"])
    """File that contains the secret, instead of CLIENT_SECRET."""

    scopes: values.Words = ("email", "profile")
    """Scopes to request in addition to openid, separated by commas."""

    name_claim: values.MerchantWords = "email"
    """Claim of the ID token that states a person's name. The audit trail keeps the name
    permanently."""

    role_claim: values.MerchantWords = "groups"
    """Claim that decides the role at each sign-in: a name, or a path such as realm_access.roles."""

    roles: values.RolesByValue = Field(
        {}, examples=['{"tallyhook-admins": "admin", "books": "finance"}']
    )
    """Role for each value of the role claim, as a JSON object. If a person has several of these
    values, the value that comes first here decides. A person without any of the values cannot sign
    in."""

    domains: values.Domains = ()
    """Mail domains, separated by commas. A person may sign in only with a verified mail address in
    one of the domains. If the list is empty, everyone whom the provider lets in may sign in."""

    acr: values.Words = ()
    """Authentication classes (acr), separated by commas. The ID token must state one of the
    classes. If the list is empty, every class is accepted."""

    amr: values.Words = ()
    """Authentication methods (amr), such as mfa, separated by commas. The ID token must state one
    of the methods. If the list is empty, every method is accepted."""

    local_accounts: values.OnOff = "on"
    """Sign-in by password: on or off. If it is off and the company's provider fails, the owner of
    the machine creates a sign-in link with `tallyhook operators let-in`."""


class Settings(BaseModel):
    """All settings after validation. `load_settings` builds this object; a test passes the settings
    by keyword.

    Numbers whose names end in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    environment: Annotated[Literal["sandbox", "live"], values.Lowered] | None = Field(
        None, examples=["sandbox"]
    )
    """Environment: sandbox or live. `tallyhook serve` requires it. An instance and its database can
    never change to the other environment."""

    # Left out of the repr, because a PostgreSQL URL has a password.
    database_url: values.DatabaseUrl = Field(
        default="sqlite+aiosqlite:///var/tallyhook.db", repr=False
    )
    """URL of the database: an SQLite file for one process, or PostgreSQL for several receivers and
    workers: postgresql+asyncpg://user:password@host/name
    A database in memory is refused, because acknowledged deliveries must outlive the process.

    If a PostgreSQL standby may take over, name both hosts; Tallyhook uses the one that accepts
    writes:
    postgresql+asyncpg://user:password@/name?host=one,two&port=5432,5432&target_session_attrs=read-write
    Name the server itself, not a pooler such as PgBouncer, because locks and limits belong to a
    connection.
    Write special characters in user and password as %XX (@ is %40, / is %2F, # is %23, % is %25).
    For encryption, write ?ssl=verify-full (other programs call this option sslmode). Tallyhook then
    checks the server's certificate with the CA file that the environment variable PGSSLROOTCERT
    names. PGSSLROOTCERT cannot be set in this file."""

    timezone: values.TimeZone = ""
    """Time zone of the merchant, such as Africa/Nairobi or UTC. It decides when days and months
    begin in reports, closing and pages. It also applies to local times in imported files whose
    mapping names no zone. If it is empty, days and months are in UTC, and such local times are
    refused.

    Stored data and the API are always in UTC. A change applies from the first open month, which
    begins where the last closed month ended. Closed months do not change.
    """

    merchant: values.Merchant = ""
    """Name of the merchant on every page of reports. At most 80 characters; it may be empty."""

    merchant_address: values.MerchantWords = ""
    """Postal address of the merchant in letters about disputes. At most 200 characters; it may be
    empty."""

    merchant_contact: values.MerchantWords = ""
    """Contact of the merchant in letters about disputes, such as a name, a phone number and a mail
    address. At most 200 characters; it may be empty."""

    phone_country: values.CallingCode = ""
    """Calling code for phone numbers that are written without one, such as 254. A search for
    0700000001 then finds +254700000001. Searches also try the calling codes that the sources'
    profiles state. If this setting is empty, searches try only the profiles' codes.

    The code also applies to order books whose mapping names no code. A reason that contains a phone
    number with this code is refused.
    """

    require_order_record: values.Switch = "auto"
    """Requirement of a price from the shop: on, off or auto. If on, an order is fulfillable only at
    a price that the shop stated, by PUT /api/v1/orders or by opening a checkout session. auto is on
    in live and off in the sandbox.

    The first start with "on" stores the time, and a start with "off" deletes the stored time. The
    setting applies to orders whose first evidence came after the stored time. For earlier orders
    without a price from the shop, the price in the provider's event counts. Anybody who can pay at
    the provider can then choose the price.
    """

    schedule: values.Schedule = ""
    """Scheduled work: at most 20 entries, separated by semicolons. Each entry is a name, a time and
    words, separated by |. The time has the five fields of cron (minute, hour, day of the month,
    month, day of the week) in TALLYHOOK_TIMEZONE. The minute must be a number.

    The words are one or more of:
    - reconcile
    - month or day, for a report on the last complete one, with forms (pdf, xlsx, html, csv, json)
      and ways (folder, mail, post: see TALLYHOOK_REPORTS__)
    - checkpoint with ways, for sending the newest signed head of the log to somebody outside.

    Work that was missed while the service was down is done once, and reported as late. Examples:
      nightly | 30 2 * * * | reconcile; month | 0 6 12 * * | reconcile month pdf xlsx folder mail
      log | 0 7 * * * | checkpoint mail"""

    import_folder: Path | None = None
    """Existing folder from which files are imported automatically. Create one folder in it for each
    source, with the source's name, and the folders books and bank. A file in such a folder is
    imported when the file is complete and every row is clear. It is then moved to the folder done
    beside it. Any other file stays, and the pages Now and Imports say what to do with it. If this
    setting is empty, nothing is imported automatically."""

    erasure_journal: Path | None = None
    """File of the erasure journal: the ids of erased rows, about 40 bytes each. With the journal, a
    restore of an older backup does not bring erased data back. The first start creates the file,
    and its key beside it (suffix .key). By default, the file is beside the SQLite database
    (tallyhook.erasures).

    No backup contains the journal. Copy both files to a safe place, and copy the journal after each
    erasure. If the journal is lost, erasing and restoring need a person's confirmation. On
    PostgreSQL there is no default, and nobody can be erased until a file is set, such as
    /var/lib/tallyhook/erasures. Put the file on the machine that erases, on a disk that no restore
    of the database overwrites.
    """

    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    checkout: CheckoutSettings = Field(default_factory=CheckoutSettings)
    shop: ShopSettings = Field(default_factory=ShopSettings)
    reports: ReportsSettings = Field(default_factory=ReportsSettings)
    alarms: AlarmsSettings = Field(default_factory=AlarmsSettings)
    evidence: EvidenceSettings = Field(default_factory=EvidenceSettings)
    phones: PhonesSettings = Field(default_factory=PhonesSettings)
    rehearsal: RehearsalSettings = Field(default_factory=RehearsalSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)

    payment_window_s: int = _number(1800, 1, 30 * 86_400)
    """Seconds after the start of a payment attempt at which the attempt ends, if the provider
    states no expiry.

    30 minutes are usual for hosted payment pages.
    """

    grace_s: int = _number(300, 0, 7 * 86_400)
    """Seconds added to the payment window, because an attempt's final event takes time to
    arrive."""

    late_after_s: int = _number(300, 1, 7 * 86_400)
    """Seconds that an event may take to arrive. An event that takes longer is marked as late."""

    future_tolerance_s: int = _number(300, 0, 86_400)
    """Seconds by which an event's date may lie after the event's arrival. An event with a later
    date is marked as dated in the future.

    Two accurate clocks differ by much less.
    """

    fulfillment_window_s: int = _number(86_400, 0, 365 * 86_400)
    """Seconds that an order may stay fulfillable without being fulfilled. After that, a finding
    reports the order. Write 0 if the shop does not report when it ships."""

    refund_window_s: int = _number(864_000, 3600, 365 * 86_400)
    """Seconds that a refund may be under way. After that, a finding reports that the refund is
    overdue at the provider.

    Card networks take at most ten days.
    """

    max_body_bytes: int = _number(MIB, KIB, 16 * MIB)
    """Maximum size of a webhook's body in bytes. A larger body is refused.

    Payment events are a few KiB.
    """

    max_header_bytes: int = _number(16 * KIB, KIB, 64 * KIB)
    """Maximum size of a request's headers in bytes, names and values together."""

    max_bodies_bytes: int = _number(16 * MIB, KIB, 16 * KIB * MIB)
    """Maximum number of bytes in all long bodies that are arriving or waiting to be stored. The
    first 64 KiB of each body do not count. Beyond this limit, senders get 503.

    Events are short, so only a flood reaches this limit.
    """

    max_connections: int = _number(2048, 1, 65_536)
    """Maximum number of open connections. Beyond this limit, a new connection gets 503 and is
    closed.

    A connection needs about 10 KiB and a file descriptor."""

    max_connections_per_address: int = _number(256, 1, 65_536)
    """Maximum number of open connections from one address, except from proxies in
    TALLYHOOK_FORWARDED_ALLOW_IPS. It must not exceed TALLYHOOK_MAX_CONNECTIONS.

    The limit prevents one sender from taking all connections. A provider has a few dozen."""

    receive_deadline_s: int = _number(10, 1, 300)
    """Seconds in which a whole request must arrive. The time begins with the request's first byte;
    for a connection's first request, with the opening of the connection. A slower connection is
    closed.

    A provider needs much less than one second.
    """

    send_deadline_s: int = _number(10, 1, 300)
    """Seconds in which a client must read the next 16 KiB of an answer, or the rest of the answer.
    A slower connection is closed."""

    idle_deadline_s: int = _number(75, 1, 3600)
    """Seconds that a connection may be idle between two requests.

    Choose more than the idle time of a load balancer in front, and more than the time for which
    providers keep connections for reuse.
    """

    forwarded_allow_ips: values.Networks = ()
    """Addresses or networks of the proxies in front, separated by commas. The header
    X-Forwarded-For is believed only if it comes from one of these proxies. By default, it is never
    believed. "*" is refused, because every sender could then choose its address."""

    public_url: values.PublicUrl = ""
    """Address of this service as providers know it, scheme and host, such as
    https://hooks.shop.example. The address is needed if a provider signs the address to which it
    sends (Square, Twilio), because the service cannot see the address behind a proxy."""

    inbox_queue: int = _number(4096, 1, 65_536)
    """Maximum number of received deliveries that wait to be stored in the database. Beyond this
    limit, senders get 503 and try again.

    The limit keeps the service's memory bounded.
    """

    inbox_batch: int = _number(512, 1, 4096)
    """Maximum number of deliveries that are stored in one transaction. It must not exceed
    TALLYHOOK_INBOX_QUEUE.

    The deliveries of a transaction share one fsync, and none waits long for it.
    """

    inbox_max_bytes: int = _number(4 * KIB * MIB, MIB, MIB * MIB)
    """Maximum number of bytes in accepted deliveries that the inbox's reader has not processed yet.
    Beyond this limit, senders get 503 and try again."""

    inbox_alarm_s: int = _number(10, 1, 86_400)
    """Seconds that an accepted delivery may wait to be processed before an alarm begins. It must
    not exceed TALLYHOOK_INBOX_RED_S."""

    inbox_red_s: int = _number(60, 1, 86_400)
    """Seconds that an accepted delivery may wait to be processed before /readyz reports that the
    service is not ready. The delivery is kept, and processed later."""

    unallocated_alarm_s: int = _number(86_400, 1, 365 * 86_400)
    """Seconds that a payment without an order may wait before an alarm begins. The wait ends when a
    person assigns or dismisses the payment."""

    accept_provider_discounts: int = _number(0, 0, 100)
    """Maximum discount, in percent of an order's price, that you give at the provider, such as a
    coupon of Stripe. An accepted discount lowers the amount that is due. With 0, an order with such
    a discount is not paid."""

    rejections_max_count: int = _number(10_000, 0, 1_000_000)
    """Maximum number of rejected deliveries that are kept, so that they can be judged again. Newer
    deliveries replace older ones.

    The limit prevents a flood from filling the disk.
    """

    rejections_max_bytes: int = _number(64 * MIB, 0, 16 * KIB * MIB)
    """Maximum number of bytes in all kept rejected deliveries together."""

    rejected_body_bytes: int = _number(64 * KIB, 0, 16 * MIB)
    """Maximum number of bytes that are kept from a rejected delivery's body. It must not exceed
    TALLYHOOK_REJECTIONS_MAX_BYTES.

    A truncated body cannot be judged again.
    """

    rejections_per_minute: int = _number(3000, 1, 1_000_000)
    """Maximum number of rejected deliveries that are kept and logged in a minute, from all senders
    together. Further rejected deliveries are only answered and counted.

    A wrong secret is noticed long before this limit. In a flood, storing more rejections has no
    use.
    """

    rejections_per_minute_per_address: int = _number(600, 1, 1_000_000)
    """Maximum number of rejected deliveries from one address in a minute. Further rejected
    deliveries get 429 and are only counted. A delivery that verifies is always accepted."""

    unsigned_per_minute: int = _number(1200, 1, 1_000_000)
    """Maximum number of requests in a minute, from all senders together, to sources whose provider
    signs nothing (mac = "none"). Further requests get 429 and are counted. Each session and payment
    that your shop has named by PUT /api/v1/orders has a separate limit of ten a minute.

    Anybody can send such a request. Each request is stored, and the provider is asked about it. If
    you can, let only the provider's addresses through.
    """

    unsigned_per_minute_per_address: int = _number(600, 1, 1_000_000)
    """Maximum number of requests in a minute from one address to sources whose provider signs
    nothing. Further requests get 429 and are counted.

    Choose less than TALLYHOOK_UNSIGNED_PER_MINUTE, so that one stranger leaves room for the
    provider.
    """

    disk_low_water_mb: int = _number(64, 0, MIB)
    """MiB that must stay free on the disk of the SQLite database. With less free space, senders get
    503 with Retry-After and nothing is written. Everything can still be read. Deliveries are
    accepted again when there is room. With 0, no delivery is refused for this reason.

    SQLite needs this room to copy its write-ahead log into the database file.
    """

    standbys: int = _number(0, 0, 100)
    """Number of synchronous PostgreSQL standbys that must be connected. An alarm begins if fewer
    are connected, because acknowledged deliveries are then on fewer machines. With 0, there is no
    such alarm."""

    retention_days: int = _number(0, 0, 3650)
    """Days from the last evidence of a settled order until the bodies and headers of its deliveries
    are deleted. For deliveries that mention no order or payment, the days count from their arrival.
    Ledgers, digests, dates, amounts and references are kept. With 0, everything is kept. Otherwise
    the number must be at least the number of days for which the sources' providers may send again.

    Deleted bodies cannot be shown to a bank or a court. Your law decides how long you may keep
    them.
    """

    retention_phones_days: int = _number(0, 0, 3650)
    """Days until digests of phone numbers, mail addresses, names, cards and further ids are
    deleted, counted like TALLYHOOK_RETENTION_DAYS. With 0, TALLYHOOK_RETENTION_DAYS applies.

    A settled order without these digests can still be found by everything else.
    """

    retention_rejections_days: int = _number(0, 0, 3650)
    """Days from the arrival of a rejected delivery until the delivery is deleted. With 0,
    TALLYHOOK_RETENTION_DAYS applies.

    Allow time to correct a wrong secret and to judge the deliveries again: a month is enough.
    Anybody may have sent rejected deliveries, with any content.
    """

    retention_book_phones_days: int = _number(0, 0, 3650)
    """Days from the import of an order book until the phone numbers in the book are deleted. With
    0, TALLYHOOK_RETENTION_DAYS applies.

    These numbers only help to find an order, and the merchant has them elsewhere.
    """

    retention_minimum_days: int = _number(0, 0, 3650)
    """Minimum number of days for which bodies of a settled order's deliveries are kept, even if the
    customer asks for erasure. With 0, they are erased as soon as nothing is open.

    Your law decides what you must be able to show.
    """

    retention_accounts_days: int = _number(0, 0, 7305)
    """Days for which accounting records are kept. The days count from the last evidence of an
    order, or from the booking of a bank's line. With 0, nothing is kept longer for this reason. A
    live environment requires a value.

    Your tax law decides: 8 to 10 years in Germany, 5 to 7 in Kenya.
    """

    retention_disputes_days: int = _number(0, 0, 3650)
    """Days from the last capture for which evidence is kept in case of a dispute. With 0, nothing
    is kept longer for this reason. A live environment requires a value.

    Card networks usually allow 120 days, and in some cases 540 days.
    """

    retention_unallocated_days: int = _number(0, 0, 3650)
    """Days from the arrival of a payment without an order for which the data of its payer is kept.
    The time ends earlier if the payment is assigned or dismissed. With 0, nothing is kept longer
    for this reason. A live environment requires a value."""

    backups_kept_days: int = _number(0, 0, 3650)
    """Days after which you delete a backup. The report of an erasure names each backup that still
    contains the data, with the day on which you delete the backup. 0 means unknown.

    An erasure does not change backups.
    """

    closing_margin_days: int = _number(10, 1, 60)
    """Days after the end of a month before the month can be closed.

    Until then, webhooks may still be sent again (usually for three days), refunds may be under way,
    and the last statement may be missing. Evidence that arrives after closing is reported as an
    adjustment in the next month.
    """

    longpoll_max_s: int = _number(60, 1, 600)
    """Maximum number of seconds for which a request to the outcome feed may wait for news.

    Choose less than the idle time of proxies in front.
    """

    page_max: int = _number(1000, 1, 10_000)
    """Maximum number of rows on one page of a listing."""

    worker_batch: int = _number(500, 1, 10_000)
    """Maximum number of due orders whose ledgers are computed at once."""

    log_format: Annotated[Literal["json", "console", "auto"], values.Lowered] = "auto"
    """Format of log lines on standard error. json: one object on each line. console: text for
    people. auto: console on a terminal, otherwise json."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], values.Lowered] = "info"
    """Lowest level that is logged: debug, info, warning or error. debug is refused in live."""

    log_lines_per_minute: int = _number(12_000, 100, 10_000_000)
    """Maximum number of log lines in a minute. Further lines are left out, and one line states
    their number. Errors are always logged.

    12,000 lines are about 4 MB, and enough for 200 deliveries a second.
    """

    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _profile_files: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each setting that a live environment would refuse. Each sentence
        names the setting's environment variable."""
        return self._warnings

    @property
    def profile_files(self) -> Mapping[str, str]:
        """Return the texts of the merchant's own profile files. The keys are the files' paths."""
        return self._profile_files

    def _beside_database(self, ending: str) -> Path | None:
        database = sqlite_file(self.database_url)
        return None if database is None else database.with_name(f"{database.stem}.{ending}")

    @property
    def phone_key_path(self) -> Path:
        """Return the path of the key for phone digests. Without the setting, it is beside the
        database file, or in `var` for PostgreSQL."""
        path = self.phones.key_file or self._beside_database("phone.key")
        return path or Path("var/tallyhook.phone.key")

    @property
    def evidence_key_path(self) -> Path:
        """Return the path of the signing key for evidence. Without the setting, it is beside the
        database file, or in `var` for PostgreSQL."""
        path = self.evidence.key_file or self._beside_database("evidence.key")
        return path or Path("var/tallyhook.evidence.key")

    @property
    def erasure_journal_path(self) -> Path | None:
        """Return the path of the erasure journal. Without the setting, it is beside the SQLite
        file. Return None for PostgreSQL without the setting."""
        return self.erasure_journal or self._beside_database("erasures")

    def for_copy(self, database_url: str) -> Settings:
        """Return the settings for work with a copy of the database. Keys and the erasure journal
        stay those of the original database."""
        return self.model_copy(
            update={
                "database_url": database_url,
                "phones": PhonesSettings(key_file=self.phone_key_path),
                "evidence": self.evidence.model_copy(update={"key_file": self.evidence_key_path}),
                "erasure_journal": self.erasure_journal_path,
            }
        )

    @property
    def deletes_phones(self) -> bool:
        """Return whether digests of phone numbers are deleted after some days."""
        return bool(self.retention_phones_days or self.retention_days)

    @property
    def requires_order_record(self) -> bool:
        """Return whether an order needs a price that the shop stated. By default, the live
        environment requires one."""
        chosen = self.require_order_record
        return self.environment == "live" if chosen == "auto" else chosen == "on"

    def policy(self, *, required_since: Instant | None = None) -> Policy:
        """Return the rules by which an order's ledger is computed from its history.

        required_since  instant since which the shop must state each order's price; None if it need
                        not
        """
        return Policy(
            payment_window=self.payment_window_s * SECOND,
            grace=self.grace_s * SECOND,
            late_after=self.late_after_s * SECOND,
            future_tolerance=self.future_tolerance_s * SECOND,
            fulfillment_window=self.fulfillment_window_s * SECOND or None,
            refund_window=self.refund_window_s * SECOND,
            require_order_record_since=required_since,
            provider_discount_percent=self.accept_provider_discounts,
            mismatch_held=tuple(
                sorted(n for n, each in self.sources.items() if each.link_mismatch == "hold")
            ),
        )


SECTIONS: Final[Mapping[str, type[Section]]] = {
    name: kind
    for name, field in Settings.model_fields.items()
    if isinstance(kind := field.annotation, type) and issubclass(kind, Section)
}
"""Classes of the settings' sections, by section name. SourceSettings is left out, because each
source has a section of its own."""
