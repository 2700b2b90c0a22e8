"""The named verifiers, by the name that a profile uses. One line for each scheme.

Each is a function in the module of its name here, which is loaded when a source first needs it:
most sources need none, and all of them together take time at every start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from app.providers.named.contract import Factory

NAMED: Final = (
    "braintree",
    "covered_headers",
    "oppwa",
    "paypal",
    "plaid",
    "rfc9421",
    "twilio",
)

WRAPPED: Final = frozenset({"braintree", "oppwa"})
"""Those whose body is not the document itself: it is wrapped in it, or encrypted."""

SIGN_THE_ADDRESS: Final = frozenset({"twilio"})
"""Those whose signature always covers scheme and host, which we cannot see behind a proxy."""


def factory_of(name: str) -> Factory:
    """What compiles the scheme of one of the names."""
    module = import_module(f"app.providers.named.{name}")
    return cast(Factory, getattr(module, name))
