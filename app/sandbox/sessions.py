"""Checkout sessions of the simulated provider."""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from http import HTTPStatus
from typing import Any, Final, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app.core.references import RULE, is_reference
from app.sandbox.scenarios import AMOUNTS, AmountRule, Scenario, ScenarioStep, scenario_for
from app.sandbox.settings import is_absolute_http
from reconcile.canonical import fingerprint
from reconcile.instants import MILLISECOND, SECOND, Duration, Instant
from reconcile.money import Money, MoneyError, from_major, is_currency

# --- refusals, and idempotency keys (400, 409 and 422 as in the IETF draft) -----------------------


FieldProblem = tuple[str, str]
"""Faulty field's path, and a sentence with a valid value."""


class RefusalError(Exception):
    """Error for a request that the simulated provider refuses. `status` and `code` are for
    programs."""

    def __init__(
        self,
        status: int,
        code: str,
        *,
        detail: str,
        headers: Mapping[str, str] | None = None,
        problems: Sequence[FieldProblem] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.problems = tuple(problems)


def answer_refusal(_: Request, refusal: Exception) -> Response:
    """Return the response to a RefusalError, as JSON."""
    assert isinstance(refusal, RefusalError)
    document: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
    }
    if refusal.problems:
        document["problems"] = [
            {"field": name, "sentence": sentence} for name, sentence in refusal.problems
        ]
    return Response(
        json.dumps(document),
        status_code=refusal.status,
        headers=refusal.headers,
        media_type="application/problem+json",
    )


def answer_http_error(request: Request, error: Exception) -> Response:
    """Return the response to an error that Starlette raises (404, 405, 413)."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_")
    detail = error.detail if error.detail != phrase else f"{phrase}."
    return answer_refusal(
        request, RefusalError(error.status_code, code, detail=detail, headers=error.headers)
    )


def answer_fault(request: Request, _: Exception) -> Response:
    """Return the response to an internal error. The server logs the error."""
    detail = "The sandbox had an internal error: see its log."
    return answer_refusal(request, RefusalError(500, "sandbox_failed", detail=detail))


_KEY = re.compile(r"[\x20-\x7e]{1,255}")

MISSING: Final = "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."
REUSED: Final = "This Idempotency-Key was used with another body; use a new key."
IN_USE: Final = "The first request with this Idempotency-Key is still running: repeat it soon."
FULL: Final = "This sandbox cannot keep more sessions: restart it."


@dataclass(slots=True)
class IdempotencyEntry:
    """State of an idempotency key."""

    digest: str
    running: bool = False
    refusals: int = 0
    answer: bytes | None = None
    """Body of the 201 answer. None until there is an answer."""


class IdempotencyKeys:
    """The idempotency keys that were used so far. `limit` is the maximum number of keys."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, IdempotencyEntry] = {}

    @contextmanager
    def admit(self, key: str, digest: str) -> Iterator[IdempotencyEntry]:
        """Reserve an idempotency key during its request, and yield the key's state.

        Raise RefusalError: 422 for another body, 409 for a key in use, 503 without room.
        """
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= self._limit:
                raise RefusalError(503, "sandbox_full", detail=FULL)
            entry = self._entries[key] = IdempotencyEntry(digest)
        if entry.digest != digest:
            raise RefusalError(422, "idempotency_key_reused", detail=REUSED)
        if entry.running:
            raise RefusalError(409, "idempotency_key_in_use", detail=IN_USE)
        entry.running = True
        try:
            yield entry
        finally:
            entry.running = False


def check_key(key: str | None) -> str:
    """Return the idempotency key if it is valid. Raise RefusalError with status 400 otherwise."""
    if key is None or _KEY.fullmatch(key) is None:
        raise RefusalError(400, "idempotency_key_missing", detail=MISSING)
    return key


# --- reading a session request --------------------------------------------------------------------


MAX_DEPTH: Final = 16
"""Maximum depth of nesting in a request's JSON. A real request has two levels."""

_AMOUNT = re.compile(r"\d{1,19}(\.\d{1,4})?", re.ASCII)
_PHONE = re.compile(r"\+?\d{8,15}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """Merchant's request for a payment session."""

    order: str
    money: Money
    phone: str | None
    success_url: str | None
    cancel_url: str | None


def read_json(body: bytes) -> Any:
    """Return JSON content with Decimal numbers. Raise ValueError for invalid JSON."""
    try:
        document = json.loads(
            body.decode("utf-8"),
            parse_float=Decimal,
            parse_int=Decimal,
            parse_constant=_no_constant,
            object_pairs_hook=_no_repeats,
        )
        request_digest(document)
    except (ValueError, InvalidOperation, RecursionError):
        raise ValueError(
            "The body must be one JSON document in UTF-8, and must not repeat a name."
        ) from None
    return document


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def request_digest(document: Any) -> str:
    """Return a digest that ignores the JSON's notation and order."""
    return fingerprint(_without_numbers(document, 0))


def _without_numbers(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        return {name: _without_numbers(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_numbers(item, depth + 1) for item in value]
    return {"\x00number": _number_text(value)} if isinstance(value, Decimal) else value


def _number_text(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).lstrip("0")
    kept = written.rstrip("0")
    if not kept:
        return "0"
    return f"{'-' if sign else ''}{kept}e{exponent + len(written) - len(kept)}"


def check_request(document: Any) -> SessionRequest | list[FieldProblem]:
    """Return a JSON document's session request, or all problems."""
    problems = [
        (path, sentence) for path, right, sentence in _FIELDS if not right(_at(document, path))
    ]
    amount, currency = _at(document, "order.amount"), _at(document, "order.currency")
    if not any(path in ("order.amount", "order.currency") for path, _ in problems):
        try:
            money = from_major(amount, currency)
        except MoneyError as error:
            text = str(error)
            return [*problems, ("order.amount", f"{text[0].upper()}{text[1:]}.")]
        if not problems:
            return SessionRequest(
                order=_at(document, "order.reference"),
                money=money,
                phone=_at(document, "customer.phone"),
                success_url=_at(document, "return_urls.success"),
                cancel_url=_at(document, "return_urls.cancel"),
            )
    return problems


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _is_positive(value: Any) -> bool:
    if isinstance(value, str):
        return _AMOUNT.fullmatch(value) is not None and Decimal(value) > 0
    return isinstance(value, Decimal) and value > 0


def _is_phone(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _PHONE.fullmatch(value) is not None)


def _is_url(value: Any) -> bool:
    return value is None or (isinstance(value, str) and is_absolute_http(value))


_FIELDS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("order.reference", is_reference, f"Give the order's own reference: {RULE}."),
    ("order.amount", _is_positive, 'Give a positive amount in major units, such as "1500.00".'),
    ("order.currency", is_currency, "Give a currency code of ISO 4217, such as KES."),
    ("customer.phone", _is_phone, "Give the customer's phone number as 8 to 15 digits in text."),
    ("return_urls.success", _is_url, "Give an absolute http or https URL."),
    ("return_urls.cancel", _is_url, "Give an absolute http or https URL."),
)


# --- one checkout session -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutSession:
    """Open payment session at the simulated provider."""

    reference: str
    asked: SessionRequest
    scenario: Scenario
    opened_at: Instant
    expires_at: Instant
    unit: Duration
    """Length of a scenario unit, in microseconds."""
    payments: dict[int, str]
    """Payment references, by number of the attempt."""
    movements: dict[str, str]
    """References of refunds and disputes, by name in the scenario."""
    events: tuple[str, ...]

    def happens_at(self, step: ScenarioStep) -> Instant:
        """Return the instant of a step, in whole milliseconds."""
        return self.opened_at + _milliseconds(step.at * self.unit)

    def sent_at(self, step: ScenarioStep) -> Instant:
        """Return the instant at which a step's first delivery is sent."""
        if step.sent is None:
            return self.happens_at(step)
        start = self.expires_at if step.sent_after == "expiry" else self.opened_at
        return start + _milliseconds(step.sent * self.unit)

    def paid_by(self, step: ScenarioStep) -> Money:
        """Return the amount of the payment that a step concerns."""
        if step.movement is None:
            return self.amount(step.amount)
        captures = (
            other.amount
            for other in self.scenario.steps
            if other.kind == "payment.succeeded" and other.attempt == step.attempt
        )
        return self.amount(next(captures, "order"))

    def amount(self, rule: AmountRule) -> Money:
        """Return the amount that a rule derives from the order's money."""
        return AMOUNTS[rule](self.asked.money)


def open_session(
    asked: SessionRequest,
    *,
    key: str,
    seed: int,
    now: Instant,
    unit_s: float,
    lifetime_units: float,
) -> CheckoutSession:
    """Return a new session that opens at `now`. The phone number decides its scenario."""
    chance = random.Random(f"{seed}:{key}")  # noqa: S311  # a simulation that must repeat itself
    scenario = scenario_for(asked.phone)
    unit = Duration(round(unit_s * SECOND))
    opened_at = now - now % MILLISECOND

    def drawn(prefix: str) -> str:
        return f"{prefix}{chance.getrandbits(80):020x}"

    reference = drawn("cs_")
    attempts = dict.fromkeys(step.attempt for step in scenario.steps)
    names = dict.fromkeys(step.movement for step in scenario.steps if step.movement is not None)
    return CheckoutSession(
        reference=reference,
        asked=asked,
        scenario=scenario,
        opened_at=opened_at,
        expires_at=opened_at + _milliseconds(lifetime_units * unit),
        unit=unit,
        payments={number: drawn("pay_") for number in attempts},
        movements={name: drawn(name.split("_")[0] + "_") for name in names},
        events=tuple(drawn("evt_") for _ in scenario.steps),
    )


def _milliseconds(microseconds: float) -> Duration:
    return round(microseconds / MILLISECOND) * MILLISECOND
