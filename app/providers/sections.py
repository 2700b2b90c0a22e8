"""Profiles: what one provider's webhooks look like, as frozen data read from a TOML file.

Each section of the file is one class here, each key one attribute, so that the file is the
documentation of the class and the other way round. README.md explains every key, `rules.py` says
what it may hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconcile.ledger.events import ClaimKind

Locations = tuple[str, ...]
"""`json:PATH`, `header:NAME`, … of which the first present counts; empty: there is none."""

Pairs = tuple[tuple[str, Any], ...]
"""A section of free keys, in the order of the file."""

Claims = tuple[tuple[str, ClaimKind], ...]
"""(the provider's word, what it means), in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRule:
    """Section [setup]: what a person has to know to connect the provider; None, empty: the file
    does not say.

    where        where the address is registered with the provider
    secret       what the source's secret is, and where the provider shows it
    events       exact names of the events to subscribe to
    fields       what must carry the order's reference when the shop starts a payment
    traps        what goes wrong, a sentence each
    silence      what it means when nothing arrives
    credentials  (name, what it is) of what the provider is asked back with
    """

    where: str | None
    secret: str | None
    events: tuple[str, ...]
    fields: tuple[str, ...]
    traps: tuple[str, ...]
    silence: str | None
    credentials: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsoRule:
    """Section [signature.also]: a second scheme, distinguished by label and by its secrets."""

    mac: str
    label: str
    secret_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Section [signature]: which scheme, where it stands, how it is written, what it covers.

    key          `merchant`: the key is this account's own; `provider`: all its merchants share it;
                 None: nothing is signed
    signed_also  another form of the signed content, which the provider uses at times
    """

    mac: str
    key: str | None
    where: str | None
    format: str
    encoding: str
    signed: str | None
    signed_also: str | None
    label: str | None
    prefix: str | None
    separator: str | None
    per_item: bool
    also: AlsoRule | None
    options: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRule:
    """Section [account]: whose event it is, where the key alone does not say.

    where         the member that names the provider's account; empty: none does
    undocumented  whether no member is known that does, so that no event counts by itself
    """

    where: Locations
    undocumented: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """Section [secret]: how a secret is written where it is configured, and how long it must be.

    key_id        a place: which of the source's named secrets a request means; None: any may match
    never_begins  how no secret of the provider begins, and another credential of it does
    """

    encoding: str
    least_bytes: int
    key_id: str | None
    never_begins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRule:
    """Section [timestamp], absent where the provider signs no time. Tolerances in seconds."""

    where: str
    unit: str
    past_s: int
    future_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRule:
    """Section [request]: methods, and what the body is.

    field  of `form_json`, the form field that holds the JSON
    """

    methods: tuple[str, ...]
    body: str
    field: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRule:
    """Section [acknowledgement]: the answer that ends the provider's retries.

    status           200 to 299
    redelivery_days  after how many days at the latest they end by themselves
    body             a constant text of media type `type`; None: our own JSON
    fields           (name, location or constant) of a JSON object instead
    """

    status: int
    redelivery_days: int
    body: str | None
    type: str
    fields: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeRule:
    """Section [handshake]: what a provider asks before it sends, and what we echo."""

    method: str
    when: Locations
    equals: str | None
    equals_secret: bool
    echo: Locations
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """Section [event]: where an event's own fields stand.

    items    path of the events in the body, with `[*]`, or of the one object that is the event
    zone     offset from UTC of dates that state none
    capture  of a success, which capture of its payment it is
    respond_by  of a dispute, until when the shop may answer it; a date as `occurred_at` is
    """

    items: str | None
    id: Locations
    kind: Locations
    occurred_at: Locations
    dates: str
    zone: str
    order: Locations
    session: Locations
    payment: Locations
    movement: Locations
    capture: Locations
    reason: Locations
    respond_by: Locations


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerRule:
    """Section [customer]: where the customer's phone number stands. It is shown masked, on demand.

    country  the calling code of numbers that begin with a single zero
    """

    phone: Locations
    country: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRule:
    """Section [environment]: where the environment stands and the provider's words for the two.

    either  the word of events that never say it: they count in both
    """

    where: Locations
    sandbox: str
    live: str
    either: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountsRule:
    """Section [amounts]: the unit, and where each amount and its currency stand.

    refunded_total  a sum: what has been refunded of the payment so far
    won             of a dispute that was won: how much of `refund`; the rest was lost
    decimals        (currency, decimals of the provider's minor unit) where ISO 4217 says otherwise
    """

    unit: str
    payment: Locations
    payment_currency: Locations
    refund: Locations
    refund_currency: Locations
    refunded_total: Locations
    won: Locations
    order: Locations
    order_currency: Locations
    decimals: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBackRule:
    """Section [fetch_back]: how the provider itself is asked what it said.

    url, sandbox_url  a fixed host; the path and query may hold {id} {order} {session} {payment}
                      {capture} {movement}; of several the first that the event can fill
    credential        the name under which the source configures it; None without `auth`
    headers           further headers of every request, with {credential:NAME} where one is meant
    token_method, token_body
                      how the access token of `oauth` is asked for
    kind … currency   locations in the answer; no `amount`: the request fixed it, nobody else could
    occurred_at       where the answer is the event itself; written as the event's own date
    dated_as_event    the answer is dated as the event that was asked about
    environment       in the words of section [environment]: an answer of the other one is none
    refund            the amount of a refund or dispute, where it is not `amount`
    claims            the answer's words; empty: the profile's own
    """

    method: str
    url: tuple[str, ...]
    sandbox_url: tuple[str, ...]
    auth: str
    credential: str | None
    token_url: str | None
    sandbox_token_url: str | None
    token_method: str
    token_body: str
    headers: Pairs
    body: str | None
    kind: Locations
    payment: Locations
    session: Locations
    order: Locations
    environment: Locations
    movement: Locations
    capture: Locations
    occurred_at: Locations
    dated_as_event: bool
    amount: Locations
    refund: Locations
    refunded_total: Locations
    currency: Locations
    claims: Claims


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRule:
    """Section [checkout]: how sessions are opened, and how the service answers.

    path            where sessions are opened, after the base URL
    amount          how a request writes money: 1500.00, "1500.00" or 150000
    requires        of `phone`, `success_url` and `cancel_url` those that a request must have
    accepted        HTTP statuses that say the session is open
    reference … order
                    paths in the answer; `order`, where it is repeated, must then be ours
    dates           how `expires_at` is written
    key_lifetime_s  seconds that the service remembers an idempotency key
    live_tokens, sandbox_tokens
                    patterns of the tokens of the two environments
    """

    path: str
    amount: str
    requires: tuple[str, ...]
    accepted: tuple[int, ...]
    reference: str
    checkout_url: str
    expires_at: str
    dates: str
    order: str
    key_lifetime_s: int
    live_tokens: tuple[str, ...]
    sandbox_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOnRule:
    """Section [rests_on]: where the facts of the file come from, and of what kind that is."""

    mark: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one provider signs, names, dates and prices its events.

    verifies_only  no event of it moves money
    confirm        `fetch_back`: an event counts only after the provider was asked
    """

    name: str
    verifies_only: bool
    confirm: str | None
    setup: SetupRule
    signature: SignatureRule
    account: AccountRule
    secret: SecretRule
    timestamp: TimestampRule | None
    request: RequestRule
    acknowledgement: AcknowledgementRule
    handshake: HandshakeRule | None
    event: EventRule
    customer: CustomerRule
    environment: EnvironmentRule
    amounts: AmountsRule
    fetch_back: FetchBackRule | None
    checkout: CheckoutRule
    rests_on: RestsOnRule | None
    claims: Claims

    @property
    def unconfirmed(self) -> bool:
        """Whether its events claim nothing by themselves: they are fetched back, or never count."""
        return self.confirm is not None or self.account.undocumented
