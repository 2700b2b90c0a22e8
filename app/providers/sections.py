"""Profiles: descriptions of providers' webhooks, read from TOML files as frozen data.

Each section is a class, and each key an attribute annotated with its allowed values. README.md
explains every key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from app.providers import amounts, dates, encodings, kit, rules, template
from app.providers.rules import Free, integer, listed, one_of
from reconcile.ledger.events import ClaimKind

Locations = Annotated[tuple[str, ...], rules.locations]
"""Locations of a field, such as `json:PATH` or `header:NAME`. The first location that is present
counts."""

FreeKeys = tuple[tuple[str, Any], ...]

Claims = Annotated[tuple[tuple[str, ClaimKind], ...], Free(rules.claims)]
"""Pairs of a provider's word and the claim that the word stands for, in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRule:
    """Section [setup]: facts for connecting the provider; empty where undocumented.

    where  the provider's page on which the address is registered
    secret  what the source's secret is, and where the provider shows it
    events  exact names of the events to subscribe to
    fields  field in which the shop must send the order's reference
    traps  known mistakes, one sentence each
    silence  likely reason if no events arrive
    credentials  name and meaning of each credential for asking the provider
    """

    where: Annotated[str | None, rules.note] = None
    secret: Annotated[str | None, rules.note] = None
    events: Annotated[tuple[str, ...], listed(rules.event_name, rules.MOST_EVENTS)] = ()
    fields: Annotated[tuple[str, ...], listed(rules.note, rules.MOST_NOTES)] = ()
    traps: Annotated[tuple[str, ...], listed(rules.note, rules.MOST_NOTES)] = ()
    silence: Annotated[str | None, rules.note] = None
    credentials: Annotated[tuple[tuple[str, str], ...], Free(rules.credential_note)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsoRule:
    """Section [signature.also]: a second signature scheme. Its label and the prefixes of its
    secrets distinguish it from the first scheme."""

    mac: Annotated[str, rules.mac]
    label: Annotated[str, rules.words]
    secret_prefixes: Annotated[tuple[str, ...], listed(rules.words)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Section [signature]: the scheme, where and how the signature is written, what it covers.

    key  `merchant` or, if all merchants share the key, `provider`; None if nothing is signed
    """

    mac: Annotated[str, rules.mac]
    key: Annotated[str | None, one_of(("merchant", "provider"))] = None
    where: Annotated[str | None, rules.place] = None
    format: Annotated[str, one_of(encodings.FORMATS)] = "plain"
    encoding: Annotated[str, one_of(encodings.ENCODINGS)] = ""
    signed: Annotated[str | None, rules.compiled(template.compile_template)] = None
    label: Annotated[str | None, rules.words] = None
    prefix: Annotated[str | None, rules.words] = None
    separator: Annotated[str | None, rules.words] = None
    per_item: Annotated[bool, rules.flag] = False
    also: AlsoRule | None
    options: Annotated[FreeKeys, Free(rules.options)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRule:
    """Section [account]: where an event names its account, if the key does not determine it.

    where  member of the event that names the provider's account or entity
    connected  whether events of the account that owns the key name no account
    undocumented  whether no such member is known, so that no event counts by itself
    """

    where: Locations = ()
    connected: Annotated[bool, rules.flag] = False
    undocumented: Annotated[bool, rules.flag] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """Section [secret]: how a secret is written in the configuration, and how long it must be.

    key_id  place in the request that names the used secret; None if any secret may match
    never_begins  prefixes of the provider's other credentials, which somebody could configure by
                  mistake
    """

    encoding: Annotated[str, one_of(encodings.SECRET_ENCODINGS)] = ""
    least_bytes: Annotated[int, integer(1, 64)] = 24
    key_id: Annotated[str | None, rules.place] = None
    never_begins: Annotated[tuple[str, ...], listed(rules.words)] = ()


_TOLERANCE_S = integer(1, 7 * 24 * 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRule:
    """Section [timestamp]: the signed time of a request, if any, with tolerances in seconds."""

    where: Annotated[str, rules.timestamp_place]
    unit: Annotated[str, one_of(dates.UNITS)] = "s"
    past_s: Annotated[int, _TOLERANCE_S] = 300
    future_s: Annotated[int, _TOLERANCE_S] = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRule:
    """Section [request]: the HTTP methods of deliveries, and the form of their body."""

    methods: Annotated[tuple[str, ...], listed(one_of(("POST", "PUT", "GET")))] = ("POST",)
    body: Annotated[str, one_of(("json", "form"))] = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRule:
    """Section [acknowledgement]: the answer after which the provider does not redeliver.

    status  HTTP status, 200 to 299
    redelivery_days  days after which the provider has certainly stopped redelivering
    body  constant text of media type `type`; None for our own JSON
    fields  members of a JSON object that is sent instead of `body`, each a location or a constant
    """

    status: Annotated[int, integer(200, 299)] = 200
    redelivery_days: Annotated[int, integer(1, 90)] = 30
    body: Annotated[str | None, rules.answer_text] = None
    type: Annotated[str, rules.media_type] = "application/json"
    fields: Annotated[FreeKeys, Free(rules.constants)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """Section [event]: the locations of an event's own fields.

    items  path of the events in the body, with `[*]` if there can be several
    zone  offset from UTC for dates that state none
    capture  id of the reported capture, if a payment can have several
    respond_by  deadline for the shop's answer to a dispute, written like `occurred_at`
    further_ids  ids that people find on a receipt, such as a charge's
    agreement  subscription or billing agreement that a payment renews
    suggested  order that the event only suggests, read if `order` is absent
    own_reference  kinds of events in which `order` is the merchant's reference of the refund or
                   payout; may end in `*`
    standalone  kinds of refunds and payouts that belong to no payment; may end in `*`
    """

    items: Annotated[str | None, rules.items_path] = None
    id: Locations = ()
    kind: Locations = ()
    occurred_at: Locations = ()
    dates: Annotated[str, one_of(dates.DATES)] = "rfc3339"
    zone: Annotated[str, rules.zone] = "+00:00"
    order: Locations = ()
    session: Locations = ()
    payment: Locations = ()
    movement: Locations = ()
    capture: Locations = ()
    reason: Locations = ()
    respond_by: Locations = ()
    further_ids: Locations = ()
    agreement: Locations = ()
    suggested: Locations = ()
    own_reference: Annotated[tuple[str, ...], listed(rules.kinds)] = ()
    standalone: Annotated[tuple[str, ...], listed(rules.kinds)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerRule:
    """Section [customer]: the locations of data that identify the customer.

    Only keyed digests of these data are stored.

    country  calling code of phone numbers that begin with a single zero
    card  a card's number or a part of it; the last four digits count
    """

    phone: Locations = ()
    email: Locations = ()
    name: Locations = ()
    card: Locations = ()
    country: Annotated[str | None, rules.calling_code] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRule:
    """Section [transaction]: the locations of facts that the shop needs to answer a dispute.

    The facts are read from the stored body when they are needed.

    network  card network that processed the payment
    reason_code  the network's code for the reason of a dispute
    arn  acquirer reference number
    network_id  the network's own id of the transaction
    credential  stand-in for the card's number, equal for all payments with the card
    descriptor  text on the customer's bank statement
    sold  what was sold
    billing  billing address: a text, or an object whose members form the address
    shipping  shipping address, in the same form
    ip, device  network address and device from which the customer bought
    account  the customer's account at the shop
    avs, cvv, three_ds  results of the checks of address, card code and cardholder
    """

    network: Locations = ()
    reason_code: Locations = ()
    arn: Locations = ()
    network_id: Locations = ()
    credential: Locations = ()
    descriptor: Locations = ()
    sold: Locations = ()
    billing: Locations = ()
    shipping: Locations = ()
    ip: Locations = ()
    device: Locations = ()
    account: Locations = ()
    avs: Locations = ()
    cvv: Locations = ()
    three_ds: Locations = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRule:
    """Section [environment]: the location of an event's environment, and the provider's words.

    either  word that marks an event as valid in both environments
    sandbox_keys  prefixes of the sandbox's secrets, for events that state no environment
    live_keys  prefixes of the live secrets, for the same events
    """

    where: Locations = ()
    sandbox: Annotated[str, rules.text] = "sandbox"
    live: Annotated[str, rules.text] = "live"
    either: Annotated[str | None, rules.text] = None
    sandbox_keys: Annotated[tuple[str, ...], listed(rules.words)] = ()
    live_keys: Annotated[tuple[str, ...], listed(rules.words)] = ()

    def of_keys(self, secrets: Iterable[str]) -> str | None:
        """Return the environment to which all these secrets belong. Return None if the secrets show
        no environment, or different environments."""
        found = {
            "sandbox"
            if secret.startswith(self.sandbox_keys)
            else "live"
            if secret.startswith(self.live_keys)
            else None
            for secret in secrets
        }
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountsRule:
    """Section [amounts]: the unit of amounts, and the locations of each amount and its currency.

    refunded_total  sum of all refunds of the payment up to the event
    won  part of `refund` that a won dispute returns to the shop
    base  part of `payment` that pays the price
    tip … shipping  parts of `payment` beyond the price
    discount  discount that the shop gave at the provider
    financed_discount  discount that the provider gave and pays to the shop
    presented  `payment` in the customer's currency, if that was another
    parts_currency  currency of `base` … `presented`, if it can differ from `payment_currency`
    decimals  currencies whose minor unit at the provider differs from ISO 4217, with their numbers
              of decimals
    """

    unit: Annotated[str, one_of(amounts.AMOUNT_UNITS)] = ""
    payment: Locations = ()
    payment_currency: Locations = ()
    refund: Locations = ()
    refund_currency: Locations = ()
    refunded_total: Locations = ()
    won: Locations = ()
    order: Locations = ()
    order_currency: Locations = ()
    base: Locations = ()
    tip: Locations = ()
    fee: Locations = ()
    surcharge: Locations = ()
    donation: Locations = ()
    tax: Locations = ()
    shipping: Locations = ()
    discount: Locations = ()
    financed_discount: Locations = ()
    presented: Locations = ()
    parts_currency: Locations = ()
    decimals: Annotated[tuple[tuple[str, int], ...], Free(rules.decimals)] = ()


_CALENDAR_DAYS = Free(rules.days_of(400))
_BUSINESS_DAYS = Free(rules.days_of(40))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRule:
    """Section [slow]: payment methods that take days, and when the provider should know the result.

    With `confirm`, the locations are in the provider's answer, because an unconfirmed event must
    not extend a deadline.

    claims  words of [claims] for a slow payment that has no result yet
    method  location of the provider's word for the method
    since  date at which the window begins, if not the event's own date
    expires  date until which a voucher can be paid; an event that states it is slow
    dates  format of `since` and `expires`
    windows  window of each method in business days; 0 if not slow; an unlisted method gets the
             longest
    vouchers  voucher methods with the business days to wait after the voucher's expiry
    revocable  methods with the calendar days in which the customer can revoke a captured payment
    """

    claims: Annotated[tuple[str, ...], listed(rules.words)] = ()
    method: Locations = ()
    since: Locations = ()
    expires: Locations = ()
    dates: Annotated[str, one_of(dates.DATES)] = "rfc3339"
    windows: Annotated[tuple[tuple[str, int], ...], _BUSINESS_DAYS] = ()
    vouchers: Annotated[tuple[tuple[str, int], ...], _BUSINESS_DAYS] = ()
    revocable: Annotated[tuple[tuple[str, int], ...], _CALENDAR_DAYS] = ()


_POST = "POST"
_CLIENT_CREDENTIALS = "grant_type=client_credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBackRule:
    """Section [fetch_back]: how the provider itself is asked about an event.

    url, sandbox_url  addresses with a fixed host; path and query can contain {id} {order} {session}
                      {payment} {capture} {movement}; the first address whose references are in the
                      event is used
    credential  name of the credential in the source's configuration; None without `auth`
    headers  further headers of every request; {credential:NAME} is replaced by a credential
    token_method, token_body  method and body of the request for the access token of `oauth`
    account  location of the answer's account; empty if the credentials determine it
    kind … currency  locations in the answer; `amount` may be absent if the question contains it
    occurred_at  date of an answer that is the event itself
    dated_as_event  whether the answer gets the date of the asked event
    environment  location of the environment; an answer of the other one is refused
    refund  amount of a refund or dispute, if it differs from `amount`
    claims  claims that the answer's words stand for; empty for the profile's [claims]
    again  kinds of final answers that can still change; the provider is asked once more
    states_captured, states_refunded, states_charged_back  locations of sums as of the answer's time
    zero_if_absent  sums of `refunded` and `charged_back` that are zero if the answer lacks them
    """

    method: Annotated[str, one_of(("GET", "POST"))] = "GET"
    url: Annotated[tuple[str, ...], listed(rules.text)]
    sandbox_url: Annotated[tuple[str, ...], listed(rules.text)] = ()
    auth: Annotated[str, rules.text] = "none"
    credential: Annotated[str | None, rules.words] = None
    token_url: Annotated[str | None, rules.text] = None
    sandbox_token_url: Annotated[str | None, rules.text] = None
    token_method: Annotated[str, one_of(("GET", "POST"))] = _POST
    token_body: Annotated[str, rules.text] = _CLIENT_CREDENTIALS
    headers: Annotated[FreeKeys, Free(rules.header)] = ()
    body: Annotated[str | None, rules.text] = None
    kind: Locations
    payment: Locations = ()
    session: Locations = ()
    order: Locations = ()
    environment: Locations = ()
    account: Locations = ()
    movement: Locations = ()
    capture: Locations = ()
    agreement: Locations = ()
    occurred_at: Locations = ()
    dated_as_event: Annotated[bool, rules.flag] = False
    amount: Locations = ()
    refund: Locations = ()
    refunded_total: Locations = ()
    currency: Locations = ()
    claims: Claims = ()
    again: Annotated[tuple[str, ...], listed(rules.text)] = ()
    states_captured: Locations = ()
    states_refunded: Locations = ()
    states_charged_back: Locations = ()
    zero_if_absent: Annotated[tuple[str, ...], listed(one_of(("refunded", "charged_back")))] = ()

    @property
    def states(self) -> bool:
        """Return whether the provider's answers state how much of the payment was captured,
        refunded or charged back."""
        return bool(self.states_captured or self.states_refunded or self.states_charged_back)


MARKS = ("official-sdk", "official-doc", "third-party", "general-knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOnRule:
    """Section [rests_on]: the sources of the facts in the profile.

    mark  kind of these sources
    source  the sources
    """

    mark: Annotated[str, one_of(MARKS)]
    source: Annotated[tuple[str, ...], listed(rules.text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Description of how one provider signs, names, dates and prices its events.

    code  name of the module in `named/` for what the file cannot express
    verifies_only  whether no event of the provider moves money
    confirm  `fetch_back` if an event counts only after the provider was asked
    """

    name: str
    code: Annotated[str | None, rules.code] = None
    verifies_only: Annotated[bool, rules.flag] = False
    confirm: Annotated[str | None, one_of(("fetch_back",))] = None
    setup: SetupRule
    signature: SignatureRule
    account: AccountRule
    secret: SecretRule
    timestamp: TimestampRule | None
    request: RequestRule
    acknowledgement: AcknowledgementRule
    event: EventRule
    customer: CustomerRule
    transaction: TransactionRule
    environment: EnvironmentRule
    amounts: AmountsRule
    slow: SlowRule
    fetch_back: FetchBackRule | None
    rests_on: RestsOnRule | None
    claims: Claims = ()

    @property
    def particulars(self) -> kit.Particulars:
        """The functions of the profile's module in `named/`."""
        found = kit.particulars(self.code)
        assert found is not None, "the rule of `code` found it"
        return found

    @property
    def shares_key(self) -> bool:
        """Return True if all merchants share the provider's key. Events of other accounts are then
        refused."""
        return (
            self.signature.key == "provider" and bool(self.account.where) and not self.unconfirmed
        )

    @property
    def unconfirmed(self) -> bool:
        """Return True if an event alone moves no money. Such an event counts only once it is
        confirmed, or never."""
        return self.confirm is not None or self.account.undocumented
