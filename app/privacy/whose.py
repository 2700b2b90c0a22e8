"""Parsing of the phone number, email address or order that an erasure or copy is about.

It also builds the pseudonym that the trail and proposals may keep for ever.
"""

from typing import Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import EMAIL_KIND, masked_name, masked_phone
from app.orders.sought import understood
from app.providers import identifiers

BARE_DIGITS: Final = 11
"""Digits of a number without its plus: fewer are more likely a part of one."""

PSEUDONYM_CHARS: Final = 16
"""Hex digits of a pseudonym: two people never share one by chance."""


def person_of(
    context: AppContext, *, phone: str | None = None, email: str | None = None
) -> str | None:
    """Return a person as `providers.identifiers` writes them; None where neither is given. Raise
    UsageError for a number or address that is not whole."""
    if email is not None:
        if (address := identifiers.email(email)) is None:
            raise UsageError("--email is one whole email address, such as ann@example.com")
        return address
    if phone is None:
        return None
    phones = understood(phone, countries=context.countries).phones
    whole = phone.strip().startswith(("+", "0")) or len(phone.strip()) >= BARE_DIGITS
    if len(phones) != 1 or not whole:
        raise UsageError("--phone is one whole number with its country, such as +254 700 000 001")
    return phones[0]


def typed_as(text: str) -> dict[str, str]:
    """Return typed text, a number or an address, as an argument of `person_of`."""
    return {"email" if "@" in text else "phone": text}


def masked(identifier: str) -> str:
    """Return a person as the trail names them, without any address or number."""
    if identifier.isdecimal():
        return masked_phone(identifier)
    return f"the email address {masked_name(identifier.removeprefix(EMAIL_KIND))}"


def pseudonym(context: AppContext, identifier: str) -> str:
    """Return a keyed digest that tells this person from others in the trail and in proposals.

    It is no digest of the table `phones`: with the database alone nobody finds the person's orders
    by it. Raise UsageError without the key.
    """
    if context.phone_key is None:
        raise UsageError(
            "there is no key of phone numbers yet: `tallyhook serve` makes it; or name the order"
        )
    return context.phone_key.digest(f"pseudonym:{identifier}").hex()[-PSEUDONYM_CHARS:]


def is_of(context: AppContext, identifier: str, known: str) -> bool:
    """Check whether a pseudonym is this person's."""
    return pseudonym(context, identifier) == known
