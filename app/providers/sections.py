"""Profiles: descriptions of providers' webhooks, read from TOML files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from app.providers import amounts, dates, encodings, kit, rules, template
from app.providers.rules import Free, integer, listed, one_of
from reconcile.ledger.events import ClaimKind

Locations = Annotated[tuple[str, ...], rules.locations]
"""Locations of a field, of which the first present location counts."""

FreeKeys = tuple[tuple[str, Any], ...]

Claims = Annotated[tuple[tuple[str, ClaimKind], ...], Free(rules.claims)]
"""Pairs of a provider's word and its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRule:
    """Section [setup]: facts for connecting the provider; empty where undocumented."""

    where: Annotated[str | None, rules.note] = None
    """The provider's page on which the address is registered."""
    secret: Annotated[str | None, rules.note] = None
    """Description of the source's secret, and where the provider shows it."""
    events: Annotated[tuple[str, ...], listed(rules.event_name, rules.MOST_EVENTS)] = ()
    """Exact names of the events to subscribe to."""
    fields: Annotated[tuple[str, ...], listed(rules.note, rules.MOST_NOTES)] = ()
    """Field in which the shop must send the order's reference."""
    traps: Annotated[tuple[str, ...], listed(rules.note, rules.MOST_NOTES)] = ()
    """Known mistakes, one sentence each."""
    silence: Annotated[str | None, rules.note] = None
    """Likely reason if no events arrive."""
    credentials: Annotated[tuple[tuple[str, str], ...], Free(rules.credential_note)] = ()
    """Name and meaning of each credential for asking the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsoRule:
    """Section [signature.also]: a second signature scheme."""

    mac: Annotated[str, rules.mac]
    label: Annotated[str, rules.words]
    secret_prefixes: Annotated[tuple[str, ...], listed(rules.words)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Section [signature]: the scheme, the signature's place, and the signed content.

    The key is `merchant`, or `provider` if all merchants share the key.
    """

    mac: Annotated[str, rules.mac]
    key: Annotated[str | None, one_of(("merchant", "provider"))] = None
    """`merchant` or, if all merchants share the key, `provider`. None if nothing is signed."""
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
    """Section [account]: where an event names its account."""

    where: Locations = ()
    """Member of the event that names the provider's account or entity."""
    connected: Annotated[bool, rules.flag] = False
    """True if events of the account that owns the key name no account."""
    undocumented: Annotated[bool, rules.flag] = False
    """True if no such member is known, so that no event counts by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """Section [secret]: the form and length of a secret."""

    encoding: Annotated[str, one_of(encodings.SECRET_ENCODINGS)] = ""
    least_bytes: Annotated[int, integer(1, 64)] = 24
    key_id: Annotated[str | None, rules.place] = None
    """Place in the request that names the used secret. None if any secret may match."""
    never_begins: Annotated[tuple[str, ...], listed(rules.words)] = ()
    """Prefixes of the provider's other credentials, which somebody could configure by mistake."""


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
    """Section [acknowledgement]: the answer after which the provider does not redeliver."""

    status: Annotated[int, integer(200, 299)] = 200
    """HTTP status, 200 to 299."""
    redelivery_days: Annotated[int, integer(1, 90)] = 30
    """Days after which the provider has certainly stopped redelivering."""
    body: Annotated[str | None, rules.answer_text] = None
    """Constant text of media type `type`. None for our own JSON."""
    type: Annotated[str, rules.media_type] = "application/json"
    fields: Annotated[FreeKeys, Free(rules.constants)] = ()
    """Members of a JSON object that is sent instead of `body`, each a location or a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """Section [event]: the locations of an event's own fields."""

    items: Annotated[str | None, rules.items_path] = None
    """Path of the events in the body, with `[*]` if there can be several."""
    id: Locations = ()
    kind: Locations = ()
    occurred_at: Locations = ()
    dates: Annotated[str, one_of(dates.DATES)] = "rfc3339"
    zone: Annotated[str, rules.zone] = "+00:00"
    """Offset from UTC for dates that state none."""
    order: Locations = ()
    session: Locations = ()
    payment: Locations = ()
    movement: Locations = ()
    capture: Locations = ()
    """Id of the reported capture, if a payment can have several."""
    reason: Locations = ()
    respond_by: Locations = ()
    """Deadline for the shop's answer to a dispute, written like `occurred_at`."""
    further_ids: Locations = ()
    """Ids that people find on a receipt, such as a charge's."""
    agreement: Locations = ()
    """Subscription or billing agreement that a payment renews."""
    suggested: Locations = ()
    """Order that the event only suggests, read if `order` is absent."""
    own_reference: Annotated[tuple[str, ...], listed(rules.kinds)] = ()
    """Kinds of events in which `order` is the merchant's reference of the refund or payout. May end
    in `*`."""
    standalone: Annotated[tuple[str, ...], listed(rules.kinds)] = ()
    """Kinds of refunds and payouts that belong to no payment. May end in `*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerRule:
    """Section [customer]: the locations of data that identify the customer.

    Only keyed digests of these data are stored.
    """

    phone: Locations = ()
    email: Locations = ()
    name: Locations = ()
    card: Locations = ()
    """A card's number or a part of it. Only the last four digits are used."""
    country: Annotated[str | None, rules.calling_code] = None
    """Calling code of phone numbers that begin with a single zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRule:
    """Section [transaction]: the locations of facts that the shop needs to answer a dispute.

    The facts are read from the stored body when they are needed.

    ip, device  network address and device from which the customer bought
    avs, cvv, three_ds  results of the checks of address, card code and cardholder
    """

    network: Locations = ()
    """Card network that processed the payment."""
    reason_code: Locations = ()
    """The network's code for the reason of a dispute."""
    arn: Locations = ()
    """Acquirer reference number."""
    network_id: Locations = ()
    """The network's own id of the transaction."""
    credential: Locations = ()
    """Stand-in for the card's number, equal for all payments with the card."""
    descriptor: Locations = ()
    """Text on the customer's bank statement."""
    sold: Locations = ()
    """Description of the sold goods."""
    billing: Locations = ()
    """Billing address: a text, or an object whose members form the address."""
    shipping: Locations = ()
    """Shipping address, in the same form."""
    ip: Locations = ()
    device: Locations = ()
    account: Locations = ()
    """The customer's account at the shop."""
    avs: Locations = ()
    cvv: Locations = ()
    three_ds: Locations = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRule:
    """Section [environment]: the location and words of an event's environment."""

    where: Locations = ()
    sandbox: Annotated[str, rules.text] = "sandbox"
    live: Annotated[str, rules.text] = "live"
    either: Annotated[str | None, rules.text] = None
    """Word that marks an event as valid in both environments."""
    sandbox_keys: Annotated[tuple[str, ...], listed(rules.words)] = ()
    """Prefixes of the sandbox's secrets, for events that state no environment."""
    live_keys: Annotated[tuple[str, ...], listed(rules.words)] = ()
    """Prefixes of the live secrets, for the same events."""

    def of_keys(self, secrets: Iterable[str]) -> str | None:
        """Return the environment of these secrets, if clear."""
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
    """Section [amounts]: the unit of amounts, and the locations of each amount and its currency."""

    unit: Annotated[str, one_of(amounts.AMOUNT_UNITS)] = ""
    payment: Locations = ()
    payment_currency: Locations = ()
    refund: Locations = ()
    refund_currency: Locations = ()
    refunded_total: Locations = ()
    """Sum of all refunds of the payment up to the event."""
    won: Locations = ()
    """Part of `refund` that a won dispute returns to the shop."""
    order: Locations = ()
    order_currency: Locations = ()
    base: Locations = ()
    """Part of `payment` that pays the price."""
    tip: Locations = ()
    fee: Locations = ()
    surcharge: Locations = ()
    donation: Locations = ()
    tax: Locations = ()
    shipping: Locations = ()
    discount: Locations = ()
    """Discount that the shop gave at the provider."""
    financed_discount: Locations = ()
    """Discount that the provider gave and pays to the shop."""
    presented: Locations = ()
    """`payment` in the customer's currency, if that was another."""
    parts_currency: Locations = ()
    """Currency of `base` … `presented`, if it can differ from `payment_currency`."""
    decimals: Annotated[tuple[tuple[str, int], ...], Free(rules.decimals)] = ()
    """Currencies whose minor unit at the provider differs from ISO 4217, with their numbers of
    decimals."""


_CALENDAR_DAYS = Free(rules.days_of(400))
_BUSINESS_DAYS = Free(rules.days_of(40))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRule:
    """Section [slow]: payment methods that take days, and their deadlines."""

    claims: Annotated[tuple[str, ...], listed(rules.words)] = ()
    """Words of [claims] for a slow payment that has no result yet."""
    method: Locations = ()
    """Location of the provider's word for the method."""
    since: Locations = ()
    """Date at which the window begins, if not the event's own date."""
    expires: Locations = ()
    """Date until which a voucher can be paid. An event that states it is slow."""
    dates: Annotated[str, one_of(dates.DATES)] = "rfc3339"
    """Format of `since` and `expires`."""
    windows: Annotated[tuple[tuple[str, int], ...], _BUSINESS_DAYS] = ()
    """Window of each method in business days; 0 if not slow. An unlisted method gets the
    longest."""
    vouchers: Annotated[tuple[tuple[str, int], ...], _BUSINESS_DAYS] = ()
    """Voucher methods with the business days to wait after the voucher's expiry."""
    revocable: Annotated[tuple[tuple[str, int], ...], _CALENDAR_DAYS] = ()
    """Methods with the calendar days in which the customer can revoke a captured payment."""


_POST = "POST"
_CLIENT_CREDENTIALS = "grant_type=client_credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBackRule:
    """Section [fetch_back]: how the provider itself is asked about an event.

    url, sandbox_url  addresses with a fixed host; path and query can contain {id} {order} {session}
                      {payment} {capture} {movement}; the first address whose references are in the
                      event is used
    token_method, token_body  method and body of the request for the access token of `oauth`
    kind … currency  locations in the answer; `amount` may be absent if the question contains it
    states_captured, states_refunded, states_charged_back  locations of sums as of the answer's time
    """

    method: Annotated[str, one_of(("GET", "POST"))] = "GET"
    url: Annotated[tuple[str, ...], listed(rules.text)]
    sandbox_url: Annotated[tuple[str, ...], listed(rules.text)] = ()
    auth: Annotated[str, rules.text] = "none"
    credential: Annotated[str | None, rules.words] = None
    """Name of the credential in the source's configuration. None without `auth`."""
    token_url: Annotated[str | None, rules.text] = None
    sandbox_token_url: Annotated[str | None, rules.text] = None
    token_method: Annotated[str, one_of(("GET", "POST"))] = _POST
    token_body: Annotated[str, rules.text] = _CLIENT_CREDENTIALS
    headers: Annotated[FreeKeys, Free(rules.header)] = ()
    """Further headers of every request; {credential:NAME} is replaced by a credential."""
    body: Annotated[str | None, rules.text] = None
    kind: Locations
    payment: Locations = ()
    session: Locations = ()
    order: Locations = ()
    environment: Locations = ()
    """Location of the environment. An answer of the other one is refused."""
    account: Locations = ()
    """Location of the answer's account. Empty if the credentials determine it."""
    movement: Locations = ()
    capture: Locations = ()
    agreement: Locations = ()
    occurred_at: Locations = ()
    """Date of an answer that is the event itself."""
    dated_as_event: Annotated[bool, rules.flag] = False
    """True if the answer gets the date of the asked event."""
    amount: Locations = ()
    refund: Locations = ()
    """Amount of a refund or dispute, if it differs from `amount`."""
    refunded_total: Locations = ()
    currency: Locations = ()
    claims: Claims = ()
    """Claims that the answer's words stand for. Empty for the profile's [claims]."""
    again: Annotated[tuple[str, ...], listed(rules.text)] = ()
    """Kinds of final answers that can still change. The provider is asked once more."""
    states_captured: Locations = ()
    states_refunded: Locations = ()
    states_charged_back: Locations = ()
    zero_if_absent: Annotated[tuple[str, ...], listed(one_of(("refunded", "charged_back")))] = ()
    """Sums of `refunded` and `charged_back` that are zero if the answer lacks them."""

    @property
    def states(self) -> bool:
        """Check whether the provider's answers state sums of the payment."""
        return bool(self.states_captured or self.states_refunded or self.states_charged_back)


MARKS = ("official-sdk", "official-doc", "third-party", "general-knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOnRule:
    """Section [rests_on]: the sources of the facts in the profile."""

    mark: Annotated[str, one_of(MARKS)]
    """Kind of these sources."""
    source: Annotated[tuple[str, ...], listed(rules.text)]
    """The sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Description of one provider's webhooks."""

    name: str
    code: Annotated[str | None, rules.code] = None
    """Name of the module in `named/` for what the file cannot express."""
    verifies_only: Annotated[bool, rules.flag] = False
    """True if no event of the provider moves money."""
    confirm: Annotated[str | None, one_of(("fetch_back",))] = None
    """`fetch_back` if an event counts only after the provider was asked."""
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
        """Check whether all merchants share the provider's key."""
        return (
            self.signature.key == "provider" and bool(self.account.where) and not self.unconfirmed
        )

    @property
    def unconfirmed(self) -> bool:
        """Check whether an event alone moves no money."""
        return self.confirm is not None or self.account.undocumented
