"""Declaration of all settings, with types, bounds and defaults.

Settings come from environment variables, or from the dotenv file that TALLYHOOK_CONFIG names.
Nothing is read at import: `load_settings` reads once. The docstring below each setting explains it
to operators: `make write` copies it to config.example.env, with the default, or with the first of
`examples`. Leaves out: whether a profile exists (app.providers knows), and whether the database can
be reached.
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
    """Group of settings. Its docstring is its heading in config.example.env."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SourceSettings(Section):
    """Sources: one block for each provider account. Write the source's name in place of SHOP: 1 to
    40 letters, digits, _ and -. Everywhere else the name is in lower case. Deliveries arrive at
    /webhooks/shop. One instance serves one merchant. Run another instance for a shop whose order
    1001 is a different order."""

    profile: values.Profile = "checkout"
    """Profile of the provider: how it signs, names, dates and prices its events. Give the name of a
    shipped profile, or the path of your own file."""

    address: values.Addresses = Field((), examples=["<address>"])
    """Secret end of the webhook path, used instead of the source's name. Set it for a provider that
    signs nothing. `tallyhook connect` creates it, and --rotate-address replaces it. A JSON list may
    contain several addresses, newest first. An old one may expire: "<older> until
    2027-12-01T00:00:00Z"."""

    secrets: values.Secrets = Field((), examples=['["<newest>", "<older>"]'])
    """Signing secrets, newest first, as a JSON list or separated by commas. A delivery is accepted
    if any of them matches, so that you can change a secret without losing events. Restart the
    service after a change. An old secret may expire: "<older> until 2026-12-01T00:00:00Z".

    Each secret must have at least 16 characters and belong to one source only. Otherwise an event
    of one source could pass for an event of another."""

    secrets_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-shop"])
    """File of the signing secrets, instead of SECRETS. It has one secret on each line, newest
    first. Keys in PEM keep their lines."""

    keys: values.NamedSecrets = Field({}, examples=['{"<key id>": "<key>"}'])
    """Keys by key id, as a JSON object. Set them if the provider's requests name the key that
    signed them. A public key may be PEM, with \\n for its line ends."""

    credentials: values.NamedSecrets = Field({}, examples=['{"api_key": "<value>"}'])
    """Credentials for asking the provider, as a JSON object. They are needed if the signature does
    not cover what an event states. `tallyhook profiles show` lists the names that a profile needs.
    A provider that signs nothing (profile mpesa_stk) needs only these, and no secret."""

    account: values.Accounts = Field((), examples=["<account>"])
    """Your account at the provider, as its events name it, or a JSON list of several accounts.
    `tallyhook profiles show` names the member of the event (account.where). An event of another
    account is acknowledged and kept as not ours.

    It is required if all merchants of the provider share its key. An event of another account, or
    of none, is then refused."""

    only: values.Only = Field({}, examples=['{"data.object.metadata.shop": ["north"]}'])
    """Signed members of events that name the shop, each with your values. Set it if several shops
    use one account. Payments of other shops are kept as not ours. After a change, run `tallyhook
    reindex`, which judges earlier events again."""

    orders: Annotated[Literal["shared", "own"], values.Lowered] = "shared"
    """Scope of the source's order references. shared: a reference means the same order everywhere.
    own: this source has its own orders. Tallyhook then names order 1001 of this source @shop:1001,
    also in API calls. After a change, run `tallyhook reindex`."""

    link_by: Annotated[Literal["order", "references"], values.Lowered] = "order"
    """Rule for linking a payment to its order. order: by the order that the payment's event names.
    references: only if the shop named the payment or its session, or if a signed or fetched event
    ties the payment to one of these; the order number is then only a suggestion. Choose references
    if other shops use the account too. After a change, run `tallyhook reindex`."""

    shared: Annotated[Literal["unknown", "yes", "no"], values.Lowered] = "unknown"
    """Use of the account by another shop or system: yes, no or unknown. If yes, set ACCOUNT,
    ONLY or LINK_BY too. Otherwise payments of others would count as yours."""

    captures: values.Accounts = Field((), examples=['["ideal"]'])
    """Payment methods that the provider captures automatically, as its events name them. Only the
    profile adyen uses this setting. A payment by another method stays authorized until it is
    captured.

    The setting needs "webhook" in CREDENTIALS: the user name and password that the provider sends
    with each webhook, because its signature does not cover the method. Keep an old pair as
    "webhook_old"."""

    link_mismatch: Annotated[Literal["accept", "hold"], values.Lowered] = "accept"
    """Treatment of a payment that only its order number links to an order. accept: the payment
    counts. hold: it counts only if its amount, or the sum of several such payments, is a price of
    the order. Choose hold if other shops use the account too."""


class CheckoutSettings(Section):
    """Checkout. Set it only if Tallyhook opens sessions at your payment service, for POST
    /api/v1/checkout/sessions and `tallyhook checkout start`. app/checkout/session_api.py describes
    the requests and answers."""

    base_url: values.BaseUrl | None = Field(None, examples=["https://payments.example"])
    """Address of the payment service. It must be https in live, because requests contain the
    token."""

    token: SecretStr | None = Field(None, examples=["<token>"])
    """Bearer token for the payment service. A token that looks like one of the other environment is
    refused."""

    token_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-checkout"])
    """File that contains the token, instead of TOKEN."""

    source: values.Name | None = Field(None, examples=["shop"])
    """Source that receives the webhooks of these sessions. If there is only one source, it is the
    default."""


class ShopSettings(Section):
    """Notifications: where the shop is notified of every change of an order. The shop can also read
    the outcome feed."""

    url: values.EndpointUrl | None = Field(
        None, examples=["https://shop.example/payments/outcomes"]
    )
    """Address to which notifications are posted. It must be https in live. The shop must answer
    with a 2xx status within ten seconds. Otherwise a notification is sent again, for three days.

    While no notification is accepted, Tallyhook tries one each minute. After the first success it
    sends all that wait."""

    secret: SecretStr | None = Field(None, examples=["<shop secret>"])
    """Secret that signs notifications (Standard Webhooks): whsec_ and at least 24 bytes in base64.
    The shop verifies notifications with the same secret."""

    secret_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-notifications"])
    """File that contains the secret, instead of SECRET."""


class ReportsSettings(Section):
    """Reports: accounts, exchange rates, and destinations of the reports in TALLYHOOK_SCHEDULE."""

    accounts: Path | None = Field(None, examples=["/etc/tallyhook/accounts.toml"])
    """TOML file of the account names for every journal, as for `tallyhook report journal
    --accounts`."""

    currency: values.Currency | None = Field(None, examples=["EUR"])
    """Your own currency, in which reports show totals. If it is not set, reports have no such
    totals."""

    rates: Path | None = Field(None, examples=["/srv/rates/eurofxref-hist.csv"])
    """File of exchange rates to your own currency. Its lines are date,currency,rate, where the rate
    is the price of one unit in your currency. The European Central Bank's eurofxref-hist.csv also
    works.

    A day without a rate has the latest rate of the seven days before. A currency without any rate
    has the rate at which statements settled it."""

    folder: Path | None = Field(None, examples=["/srv/reports"])
    """Existing folder for report files. A file appears only when it is complete, and replaces a
    file of the same name."""

    mail_server: values.MailServerPlace | None = Field(None, examples=["smtp.example:587"])
    """Mail server: its host and optionally its port, by default 587. Port 465 is encrypted from the
    start. On other ports the server must offer STARTTLS, unless it is on this machine. Reports of
    more than 20 MiB together are not mailed."""

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
    """Alarms: destinations of messages. Each gets one message when an alarm begins, and one when it
    ends."""

    url: values.EndpointUrl | None = Field(None, examples=["https://pager.example/tallyhook"])
    """Address to which alarms are posted. It must be https in live. A message is posted again, with
    pauses of up to an hour, until the answer within ten seconds is a 2xx status. Work notices
    (`work.waits`) are posted here too, for operators who chose this on the page My notices."""

    secret: SecretStr | None = Field(None, examples=["<alarms secret>"])
    """Secret that signs posted alarms, in the form of TALLYHOOK_SHOP__SECRET."""

    secret_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-alarms"])
    """File that contains the secret, instead of SECRET."""

    mail_to: values.MailAddresses = Field((), examples=["oncall@shop.example"])
    """Recipients of alarms by mail: 1 to 20 addresses, separated by commas. Mails use
    TALLYHOOK_REPORTS__MAIL_SERVER and TALLYHOOK_REPORTS__MAIL_FROM."""


class EvidenceSettings(Section):
    """Evidence: all stored evidence is sealed in a log, whose checkpoints are signed."""

    key_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-evidence"])
    """File of the ed25519 signing key (PEM). The first start creates it, readable only by its
    owner. By default, it is beside the SQLite database (tallyhook.evidence.key), and with
    PostgreSQL in var/tallyhook.evidence.key.

    On PostgreSQL, all receivers and workers of one database need a copy of the same key; another
    key is refused. Keep a copy away from the database, because `tallyhook backup` does not contain
    it."""

    publish: bool = False
    """Publication of the receiver's public keys, its newest checkpoint, the newest checkpoint that
    witnesses cosigned, and proofs that the log only grew: true or false. All of this is then public
    under /.well-known/tallyhook/, without a token.

    Anybody can keep a checkpoint, and later check that the log still agrees with it: `tallyhook
    evidence verify --checkpoint` and `tallyhook log verify --against`. A checkpoint contains no
    order, amount or person, but reveals how many entries the log has."""

    witnesses: values.WitnessList = Field(
        (),
        examples=["<witness key> https://witness.example/w1,<other key> https://other.example"],
    )
    """Witnesses that cosign checkpoints (C2SP tlog-witness): at most 16, separated by commas. Each
    is a verifier key (NAME+ID+KEY), a space and an address. The address must be https, unless the
    witness runs on this machine. Give each witness's operator the "log" and "note" from `tallyhook
    log key`.

    A witness refuses a checkpoint that does not continue the previous one. So anybody who trusts
    the witnesses can check that the log was never rewritten: `tallyhook evidence verify --witness
    KEY`."""

    witness_quorum: int = Field(default=0, ge=0, le=values.MAX_WITNESSES, examples=[2])
    """Number of witnesses that must cosign a checkpoint. Default 0: more than half of them."""

    witness_every_s: int = Field(default=600, ge=60, le=86_400, examples=[600])
    """Seconds between two requests to the witnesses. Default: 600."""

    witness_alarm_s: int = Field(default=7200, ge=300, le=30 * 86_400, examples=[7200])
    """Seconds without enough cosignatures before an alarm. Default: 7,200. It must be at least
    twice TALLYHOOK_EVIDENCE__WITNESS_EVERY_S."""


class PhonesSettings(Section):
    """Customers' phone numbers"""

    key_file: Path | None = Field(None, examples=["/run/secrets/tallyhook-phones"])
    """File of the key for digests of customers' phone numbers, mail addresses and names. Orders are
    found by these digests, and the database alone does not reveal the data. The first start creates
    the file, readable only by its owner. By default, it is beside the SQLite database
    (tallyhook.phone.key), and with PostgreSQL in var/tallyhook.phone.key.

    All receivers of one PostgreSQL database need the same file. Back it up, but not beside the
    database. If it is lost, `tallyhook reindex` creates the digests again."""

    shown_per_hour: int = _number(20, 1, 10_000)
    """Maximum number of phone numbers that one operator may see in an hour without a proposal. The
    body of a delivery and a full evidence bundle count as one number each."""


class RehearsalSettings(Section):
    """Rehearsal: what `tallyhook rehearse` plays before going live."""

    numbers: values.NamedSecrets = Field(
        {}, examples=['{"success": "<number>", "decline": "<other number>"}']
    )
    """Test phone numbers of your provider by scenario, as a JSON object. Only the named scenarios
    are played. By default, the sandbox uses the sixteen numbers of the simulated provider. A live
    environment has no default, and its rehearsal is refused without numbers."""

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
    use it if TALLYHOOK_CONSOLE__PUBLIC_URL is empty."""

    mappings: Path | None = None
    """Folder of mapping files (*.toml), which describe the columns of a file. Import forms offer
    each by its name. If it is not set, they accept only files with the usual column names."""


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
    """Claim of the ID token with a person's name. The audit trail keeps the name permanently."""

    role_claim: values.MerchantWords = "groups"
    """Claim that decides the role at each sign-in: a name, or a path such as realm_access.roles."""

    roles: values.RolesByValue = Field(
        {}, examples=['{"tallyhook-admins": "admin", "books": "finance"}']
    )
    """Role for each value of the role claim, as a JSON object. If a person has several of these
    values, the first in this order decides. A person without any of them cannot sign in."""

    domains: values.Domains = ()
    """Domains of verified mail addresses that may sign in, separated by commas. If it is empty,
    everyone whom the provider lets in may sign in."""

    acr: values.Words = ()
    """Authentication classes (acr), separated by commas. The token must state one of them. If it is
    empty, every class is accepted."""

    amr: values.Words = ()
    """Authentication methods (amr), such as mfa, separated by commas. The token must state one of
    them. If it is empty, every method is accepted."""

    local_accounts: values.OnOff = "on"
    """Sign-in by password: on or off. If it is off and the provider fails,
    the owner of the machine creates a sign-in link with `tallyhook operators let-in`."""


class Settings(BaseModel):
    """All settings after validation. `load_settings` builds them; a test passes them by keyword.

    Numbers ending in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    environment: Annotated[Literal["sandbox", "live"], values.Lowered] | None = Field(
        None, examples=["sandbox"]
    )
    """Environment: sandbox or live. It is required to serve. An instance and its database cannot
    change to the other environment."""

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
    """Time zone of the merchant, such as Africa/Nairobi or UTC. It applies to days and months in
    reports, closing and pages, and to local times in imported files whose mapping names no zone. If
    it is empty, days and months are in UTC, and such local times are refused.

    Stored data and the API are always in UTC. A change applies from the first open month, which
    begins where the last closed month ended. Closed months do not change."""

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
    0700000001 then finds +254700000001. Searches also try the calling codes of the sources'
    profiles. If this setting is empty, they try only these.

    The code also applies to order books whose mapping names no code. A reason that contains a phone
    number with this code is refused."""

    require_order_record: values.Switch = "auto"
    """Requirement of a price from the shop: on, off or auto. If on, an order is fulfillable only at
    a price that the shop stated, by PUT /api/v1/orders or by opening a checkout session. auto is on
    in live and off in the sandbox.

    The first start with it on stores the time, and a start with it off deletes this time. The
    setting applies to orders whose first evidence came after the stored time. If the shop has
    stated no price for an order to which the setting does not apply, the price in the provider's
    event counts. Anybody who can pay at the provider can then choose the price."""

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
    """Existing folder from which files are imported automatically. Create folders in it, named
    after your sources, and also books and bank. A file in such a folder is imported when it is
    complete and every row is clear, and then moved to the folder done beside it. Any other file
    stays, and the pages Now and Imports say what to do with it. If this setting is empty, nothing
    is imported automatically."""

    erasure_journal: Path | None = None
    """File of the erasure journal: the ids of erased rows, about 40 bytes each. With the journal, a
    restore of an older backup does not bring erased data back. The first start creates it, with its
    key beside it (suffix .key). By default, it is beside the SQLite database (tallyhook.erasures).

    No backup contains it. Copy both files to a safe place, and copy the journal after each erasure.
    If the journal is lost, erasing and restoring need a person's confirmation. On PostgreSQL there
    is no default, and nobody can be erased until a file is set, such as
    /var/lib/tallyhook/erasures. Put it on the machine that erases, on a disk that no restore of the
    database overwrites."""

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
    """Seconds from the start of a payment attempt to its end, if the provider states no expiry.

    30 minutes are usual for hosted payment pages."""

    grace_s: int = _number(300, 0, 7 * 86_400)
    """Seconds added to the payment window, because the final event takes time to arrive."""

    late_after_s: int = _number(300, 1, 7 * 86_400)
    """Seconds that an event may take to arrive. A slower event is marked as late."""

    future_tolerance_s: int = _number(300, 0, 86_400)
    """Seconds by which an event may be dated after its arrival. An event dated later than that is
    marked as dated in the future.

    Two accurate clocks differ by much less."""

    fulfillment_window_s: int = _number(86_400, 0, 365 * 86_400)
    """Seconds that an order may be fulfillable without being fulfilled. Then a finding reports it.
    Write 0 if the shop does not report when it ships."""

    refund_window_s: int = _number(864_000, 3600, 365 * 86_400)
    """Seconds that a refund may be under way. Then a finding reports that it is overdue at the
    provider.

    Card networks take at most ten days."""

    max_body_bytes: int = _number(MIB, KIB, 16 * MIB)
    """Maximum bytes of the body of a webhook. A larger body is refused.

    Payment events are a few KiB."""

    max_header_bytes: int = _number(16 * KIB, KIB, 64 * KIB)
    """Maximum bytes of the headers of a request, names and values together."""

    max_bodies_bytes: int = _number(16 * MIB, KIB, 16 * KIB * MIB)
    """Maximum bytes of all long bodies that are arriving or waiting to be stored. The first 64 KiB
    of each body do not count. Beyond this limit, senders get 503.

    Events are short, so only a flood reaches this limit."""

    max_connections: int = _number(2048, 1, 65_536)
    """Maximum number of open connections. Beyond this limit, a new connection gets 503 and is
    closed.

    A connection needs about 10 KiB and a file descriptor."""

    max_connections_per_address: int = _number(256, 1, 65_536)
    """Maximum number of open connections from one address, except from proxies in
    TALLYHOOK_FORWARDED_ALLOW_IPS. It must not exceed TALLYHOOK_MAX_CONNECTIONS.

    The limit prevents one sender from taking all connections. A provider has a few dozen."""

    receive_deadline_s: int = _number(10, 1, 300)
    """Seconds in which a whole request must arrive. They count from its first byte; for the first
    request of a connection, from the opening of the connection. A slower connection is closed.

    A provider needs much less than one second."""

    send_deadline_s: int = _number(10, 1, 300)
    """Seconds in which a client must read the next 16 KiB of an answer, or the rest of it. A slower
    connection is closed."""

    idle_deadline_s: int = _number(75, 1, 3600)
    """Seconds that a connection may be idle between two requests.

    Choose more than the idle time of a load balancer in front, and more than the time for which
    providers keep connections for reuse."""

    forwarded_allow_ips: values.Networks = ()
    """Addresses or networks of the proxies in front, separated by commas. Only their
    X-Forwarded-For is believed. By default, nobody's is. "*" is refused, because every sender could
    then choose its address."""

    public_url: values.PublicUrl = ""
    """Address of this service as providers know it, scheme and host, such as
    https://hooks.shop.example. It is needed if a provider signs the address to which it sends
    (Square, Twilio), because the service cannot see this address behind a proxy."""

    inbox_queue: int = _number(4096, 1, 65_536)
    """Maximum number of deliveries that wait to be committed. Beyond this limit, senders get 503
    and try again.

    The limit keeps the service's memory bounded."""

    inbox_batch: int = _number(512, 1, 4096)
    """Maximum number of deliveries in one transaction. It must not exceed TALLYHOOK_INBOX_QUEUE.

    The deliveries of a transaction share one fsync, and none waits long for it."""

    inbox_max_bytes: int = _number(4 * KIB * MIB, MIB, MIB * MIB)
    """Maximum bytes of accepted deliveries that are not read yet. Beyond this limit, senders get
    503 and try again."""

    inbox_alarm_s: int = _number(10, 1, 86_400)
    """Seconds that an accepted delivery may wait to be read before an alarm. It must not exceed
    TALLYHOOK_INBOX_RED_S."""

    inbox_red_s: int = _number(60, 1, 86_400)
    """Seconds that an accepted delivery may wait to be read before /readyz reports that the service
    is not ready. The delivery is kept, and read later."""

    unallocated_alarm_s: int = _number(86_400, 1, 365 * 86_400)
    """Seconds that a payment without an order may wait for a person to assign or dismiss it before
    an alarm."""

    accept_provider_discounts: int = _number(0, 0, 100)
    """Largest accepted discount that you give at the provider, such as a coupon of Stripe, in
    percent of an order's price. An accepted discount lowers what is due. With 0, an order with such
    a discount is not paid."""

    rejections_max_count: int = _number(10_000, 0, 1_000_000)
    """Maximum number of rejected deliveries that are kept, so that they can be judged again. Newer
    ones replace older ones.

    The limit prevents a flood from filling the disk."""

    rejections_max_bytes: int = _number(64 * MIB, 0, 16 * KIB * MIB)
    """Maximum bytes of all kept rejected deliveries."""

    rejected_body_bytes: int = _number(64 * KIB, 0, 16 * MIB)
    """Maximum bytes of a rejected body that are kept. It must not exceed
    TALLYHOOK_REJECTIONS_MAX_BYTES.

    A truncated body cannot be judged again."""

    rejections_per_minute: int = _number(3000, 1, 1_000_000)
    """Maximum number of rejected deliveries that are kept and logged in a minute, from all senders
    together. Further ones are only answered and counted.

    A wrong secret is noticed long before this limit. In a flood, storing more rejections has no
    use."""

    rejections_per_minute_per_address: int = _number(600, 1, 1_000_000)
    """Maximum number of rejected deliveries from one address in a minute. Further ones get 429 and
    are only counted. A delivery that verifies is always accepted."""

    unsigned_per_minute: int = _number(1200, 1, 1_000_000)
    """Maximum number of requests in a minute, from all senders together, to sources whose provider
    signs nothing (mac = "none"). Further ones get 429 and are counted. Each session and payment
    that your shop has named by PUT /api/v1/orders has a separate limit of ten a minute.

    Anybody can send such a request. Each is stored, and the provider is asked about it. If you can,
    let only the provider's addresses through."""

    unsigned_per_minute_per_address: int = _number(600, 1, 1_000_000)
    """Maximum number of requests in a minute from one address to sources whose provider signs
    nothing. Further ones get 429 and are counted.

    Choose less than TALLYHOOK_UNSIGNED_PER_MINUTE, so that one stranger leaves room for the
    provider."""

    disk_low_water_mb: int = _number(64, 0, MIB)
    """MiB that must stay free on the disk of the SQLite database. With less, senders get 503 with
    Retry-After and nothing is written. Everything can still be read. Deliveries are accepted again
    when there is room. With 0, none are refused for this reason.

    SQLite needs this room to copy its write-ahead log into the database file."""

    standbys: int = _number(0, 0, 100)
    """Number of synchronous PostgreSQL standbys that must be connected. An alarm begins if there
    are fewer, because acknowledged deliveries are then on fewer machines. With 0, there is no such
    alarm."""

    retention_days: int = _number(0, 0, 3650)
    """Days from the last evidence of a settled order until the bodies and headers of its deliveries
    are deleted. Deliveries that mention no order or payment are counted from their arrival.
    Ledgers, digests, dates, amounts and references are kept. With 0, everything is kept. Otherwise
    it must be at least the number of days for which the sources' providers may send again.

    Deleted bodies cannot be shown to a bank or a court. Your law decides how long you may keep
    them."""

    retention_phones_days: int = _number(0, 0, 3650)
    """Days until digests of phone numbers, mail addresses, names, cards and further ids are
    deleted, counted like TALLYHOOK_RETENTION_DAYS. With 0, that setting applies.

    A settled order without these digests can still be found by everything else."""

    retention_rejections_days: int = _number(0, 0, 3650)
    """Days from the arrival of a rejected delivery until it is deleted. With 0,
    TALLYHOOK_RETENTION_DAYS applies.

    Allow time to correct a wrong secret and to judge the deliveries again: a month is enough.
    Anybody may have sent them, with any content."""

    retention_book_phones_days: int = _number(0, 0, 3650)
    """Days from the import until phone numbers of an order book are deleted. With 0,
    TALLYHOOK_RETENTION_DAYS applies.

    These numbers only help to find an order, and the merchant has them elsewhere."""

    retention_minimum_days: int = _number(0, 0, 3650)
    """Minimum number of days for which bodies of a settled order are kept, even if its customer
    asks for erasure. With 0, they are erased as soon as nothing is open.

    Your law decides what you must be able to show."""

    retention_accounts_days: int = _number(0, 0, 7305)
    """Days for which accounting records are kept, from the last evidence of an order or the booking
    of a bank's line. 0 keeps nothing longer. Live requires a value.

    Your tax law decides: 8 to 10 years in Germany, 5 to 7 in Kenya."""

    retention_disputes_days: int = _number(0, 0, 3650)
    """Days from the last capture for which evidence for a dispute is kept. 0 keeps nothing longer.
    Live requires a value.

    Card networks usually allow 120 days, some 540."""

    retention_unallocated_days: int = _number(0, 0, 3650)
    """Days from the arrival of a payment without an order for which its payer is kept, unless the
    payment is assigned or dismissed earlier. 0 keeps nothing longer. Live requires a value."""

    backups_kept_days: int = _number(0, 0, 3650)
    """Days after which you delete a backup. The report of an erasure names each backup that still
    contains the data, with the day on which you delete it. 0 means unknown.

    An erasure does not change backups."""

    closing_margin_days: int = _number(10, 1, 60)
    """Days after the end of a month before the month can be closed.

    Until then, webhooks may still be sent again (usually for three days), refunds may be under way,
    and the last statement may be missing. What arrives after closing is reported as an adjustment
    in the next month."""

    longpoll_max_s: int = _number(60, 1, 600)
    """Maximum number of seconds that a reader of the outcome feed may wait for news.

    Choose less than the idle time of proxies in front."""

    page_max: int = _number(1000, 1, 10_000)
    """Maximum number of rows on one page of a listing."""

    worker_batch: int = _number(500, 1, 10_000)
    """Maximum number of due orders folded at once."""

    log_format: Annotated[Literal["json", "console", "auto"], values.Lowered] = "auto"
    """Format of log lines on standard error. json: one object on each line. console: text for
    people. auto: console on a terminal, otherwise json."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], values.Lowered] = "info"
    """Lowest level that is logged: debug, info, warning or error. debug is refused in live."""

    log_lines_per_minute: int = _number(12_000, 100, 10_000_000)
    """Maximum number of log lines in a minute. Further lines are left out and counted in one line.
    Errors are always logged.

    12,000 lines are about 4 MB, and enough for 200 deliveries a second."""

    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _profile_files: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each setting that a live environment would refuse. The sentence
        names the setting's environment variable."""
        return self._warnings

    @property
    def profile_files(self) -> Mapping[str, str]:
        """Return the texts of the merchant's own profiles by path, each read once."""
        return self._profile_files

    def _beside_database(self, ending: str) -> Path | None:
        database = sqlite_file(self.database_url)
        return None if database is None else database.with_name(f"{database.stem}.{ending}")

    @property
    def phone_key_path(self) -> Path:
        """Return the path of the phone key: the setting, else beside the database file, else in
        `var`."""
        path = self.phones.key_file or self._beside_database("phone.key")
        return path or Path("var/tallyhook.phone.key")

    @property
    def evidence_key_path(self) -> Path:
        """Return the path of the evidence key: the setting, else beside the database file, else in
        `var`."""
        path = self.evidence.key_file or self._beside_database("evidence.key")
        return path or Path("var/tallyhook.evidence.key")

    @property
    def erasure_journal_path(self) -> Path | None:
        """Return the path of the erasure journal: the setting, else beside the database file, else
        None."""
        return self.erasure_journal or self._beside_database("erasures")

    def for_copy(self, database_url: str) -> Settings:
        """Return the settings for a copy of the database, with the original's keys and journal."""
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
        """Return whether digests of phone numbers are deleted after some time."""
        return bool(self.retention_phones_days or self.retention_days)

    @property
    def requires_order_record(self) -> bool:
        """Return whether an order needs a price stated by the shop. By default, it does if the
        environment is live."""
        chosen = self.require_order_record
        return self.environment == "live" if chosen == "auto" else chosen == "on"

    def policy(self, *, required_since: Instant | None = None) -> Policy:
        """Build the policy for folding.

        required_since  instant since which the shop must state each order's price, from
                        `order_facts`
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
"""Settings sections by name, except the sections of single sources."""
