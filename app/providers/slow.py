"""Decide which payments are slow, and until when."""

from typing import Any, Final, NamedTuple

from app.core.reading import Unreadable
from app.providers import dates, fields, sections
from reconcile.instants import Instant, add_business_days
from reconcile.ledger.events import UNKNOWN_METHOD, ClaimKind


class SlowPayment(NamedTuple):
    """Facts that an event states about a slow payment; None if not slow."""

    method: str | None = None
    expected_by: Instant | None = None
    """Time by which the provider should know the result."""
    revocable_days: int | None = None
    """Days in which the customer can revoke the captured payment."""


NOT_SLOW: Final = SlowPayment()


class SlowMethods:
    """The section [slow] of one profile, compiled once.

    zone  offset from UTC for dates that state none
    """

    def __init__(self, rule: sections.SlowRule, *, zone: str) -> None:
        self._none = not (rule.claims or rule.expires)
        self._exact = frozenset(rule.claims)
        self._prefixes = tuple(word[:-1] for word in rule.claims if word.endswith("*"))
        self._method = fields.compile_locations(rule.method)
        self._since = fields.compile_locations(rule.since)
        self._expires = fields.compile_locations(rule.expires)
        self._date, self._zone = dates.DATES[rule.dates], zone
        self._windows, self._vouchers = dict(rule.windows), dict(rule.vouchers)
        self._revocable = dict(rule.revocable)
        self._longest = max(self._windows.values(), default=0)
        self._after_expiry = max(self._vouchers.values(), default=0)

    def read(
        self, kind: str, claim: ClaimKind, data: fields.EventData, at: Instant | None
    ) -> SlowPayment:
        """Return what an event states about a slow payment.

        at  the event's own date
        """
        if self._none or claim not in ("pending", "succeeded"):
            return NOT_SLOW
        method = self._method_in(data)
        if claim == "succeeded":
            if method is None:
                return NOT_SLOW
            return SlowPayment(method=method, revocable_days=self._revocable.get(method))
        expiry = self._instant(self._expires, data)
        if expiry is None and kind not in self._exact and not kind.startswith(self._prefixes):
            return NOT_SLOW
        word = self._word(data)
        if word is not None and self._windows.get(word) == 0:
            return NOT_SLOW
        if expiry is not None:
            since: Instant | None = expiry
            days = self._vouchers.get(method or "", self._after_expiry)
        else:
            since = self._instant(self._since, data) or at
            days = self._windows.get(method or "", self._longest)
        revocable = max(self._revocable.values(), default=None) if method is None else None
        return SlowPayment(
            method=method or UNKNOWN_METHOD,
            expected_by=None if since is None else add_business_days(since, days),
            revocable_days=self._revocable.get(method or "", revocable),
        )

    def _method_in(self, data: fields.EventData) -> str | None:
        word = self._word(data)
        known = word in self._vouchers or (word is not None and self._windows.get(word, 0) > 0)
        return word if known else None

    def _word(self, data: fields.EventData) -> str | None:
        value: Any = _lenient(self._method, data)
        if type(value) is list and len(value) == 1:
            value = value[0]
        return value if type(value) is str else None

    def _instant(self, find: fields.Find, data: fields.EventData) -> Instant | None:
        value = _lenient(find, data)
        try:
            return None if value is None else self._date(value, "a date", self._zone)
        except Unreadable:
            return None


def _lenient(find: fields.Find, data: fields.EventData) -> Any:
    try:
        return find(data)
    except Unreadable:
        return None
