"""The named verifiers, by the name that a profile uses. One line for each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.providers.named.braintree import braintree
from app.providers.named.contract import Factory
from app.providers.named.covered_headers import covered_headers
from app.providers.named.oppwa import oppwa
from app.providers.named.paypal import paypal
from app.providers.named.plaid import plaid
from app.providers.named.rfc9421 import rfc9421
from app.providers.named.twilio import twilio

NAMED: Final[Mapping[str, Factory]] = {
    "braintree": braintree,
    "covered_headers": covered_headers,
    "oppwa": oppwa,
    "paypal": paypal,
    "plaid": plaid,
    "rfc9421": rfc9421,
    "twilio": twilio,
}

WRAPPED: Final = frozenset({"braintree", "oppwa"})
"""Those whose body is not the document itself: it is wrapped in it, or encrypted."""

SIGN_THE_ADDRESS: Final = frozenset({"twilio"})
"""Those whose signature always covers scheme and host, which we cannot see behind a proxy."""
