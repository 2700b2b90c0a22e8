"""Parse whom an erasure or copy is about, and build the person's pseudonym."""

from typing import Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import EMAIL_KIND, masked_name, masked_phone
from app.orders.sought import understood
from app.providers import identifiers

BARE_DIGITS: Final = 11
"""Minimum digits of a phone number without a plus sign."""

PSEUDONYM_CHARS: Final = 16
"""Number of hex digits of a pseudonym."""


def person_of(
    context: AppContext, *, phone: str | None = None, email: str | None = None
) -> str | None:
    """Return a person's identifier, or None without number and address.

    Raise UsageError for an invalid number or address.
    """
    if email is not None:
        if (address := identifiers.email(email)) is None:
            raise UsageError("--email must be one complete email address, such as ann@example.com")
        return address
    if phone is None:
        return None
    phones = understood(phone, countries=context.countries).phones
    whole = phone.strip().startswith(("+", "0")) or len(phone.strip()) >= BARE_DIGITS
    if len(phones) != 1 or not whole:
        raise UsageError(
            "--phone must be one complete number with its country code, such as +254 700 000 001"
        )
    return phones[0]


def typed_as(text: str) -> dict[str, str]:
    """Return typed text as an `email` or `phone` argument."""
    return {"email" if "@" in text else "phone": text}


def masked(identifier: str) -> str:
    """Return a person's description without address or number."""
    if identifier.isdecimal():
        return masked_phone(identifier)
    return f"the email address {masked_name(identifier.removeprefix(EMAIL_KIND))}"


def pseudonym(context: AppContext, identifier: str) -> str:
    """Return a person's keyed digest. Raise UsageError without a key."""
    if context.phone_key is None:
        raise UsageError(
            "there is no key for phone numbers yet: start `tallyhook serve`, which creates the "
            "key, or give an order instead of a number or address"
        )
    return context.phone_key.digest(f"pseudonym:{identifier}").hex()[-PSEUDONYM_CHARS:]


def is_of(context: AppContext, identifier: str, known: str) -> bool:
    """Return whether a pseudonym belongs to this person."""
    return pseudonym(context, identifier) == known
