"""Passkeys as a second factor (Web Authentication Level 3)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from app.access.session_store import Passkey
from app.core.reading import Unreadable
from app.core.strict_json import parse
from reconcile.instants import Instant

MOST: Final = 10
"""Maximum number of passkeys that a person may have."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PasskeyAnswer:
    """A browser's answer to a passkey challenge, as JSON text."""

    origin: str
    """The console's address, as `passkey_origin` returns it."""
    challenge: str
    text: str = field(repr=False)


def passkey_origin(origin: str) -> str:
    """Return the console's address with a host name for passkeys."""
    return origin.replace("//127.0.0.1", "//localhost")


def request_options(origin: str, challenge: str) -> str:
    """Return the browser's JSON options to sign with a passkey."""
    import webauthn  # few requests need it

    return webauthn.options_to_json(
        webauthn.generate_authentication_options(rp_id=_domain(origin), challenge=_bytes(challenge))
    )


def creation_options(origin: str, challenge: str, *, name: str, known: Collection[Passkey]) -> str:
    """Return the browser's JSON options to create a passkey."""
    import webauthn
    from webauthn.helpers import structs

    return webauthn.options_to_json(
        webauthn.generate_registration_options(
            rp_id=_domain(origin),
            rp_name="Tallyhook",
            # This lets the authenticator tell accounts apart. It must not be a name (section
            # 14.6.1).
            user_id=sha256(name.encode()).digest(),
            user_name=name,
            challenge=_bytes(challenge),
            # The sign-in page does not know the name yet, so the authenticator must find the
            # passkey.
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.PREFERRED,
            ),
            exclude_credentials=[
                structs.PublicKeyCredentialDescriptor(id=_bytes(each.id)) for each in known
            ],
        )
    )


def made_passkey(answer: PasskeyAnswer, *, name: str, label: str, now: Instant) -> Passkey | None:
    """Return the browser's new passkey, if the answer is valid."""
    import webauthn

    made = _verified(
        lambda credential: webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=_bytes(answer.challenge),
            expected_rp_id=_domain(answer.origin),
            expected_origin=answer.origin,
        ),
        answer,
    )
    return (
        None
        if made is None
        else Passkey(
            id=webauthn.helpers.bytes_to_base64url(made.credential_id),
            name=name,
            label=label,
            public_key=made.credential_public_key,
            sign_count=made.sign_count,
            made_at=now,
        )
    )


def signed_count(answer: PasskeyAnswer, known: Collection[Passkey]) -> tuple[Passkey, int] | None:
    """Return the signing passkey and its new signature count.

    Return None for an invalid answer or a possible copy.
    """
    import webauthn

    def verified(credential: dict[str, Any]) -> tuple[Passkey, int] | None:
        found = next((each for each in known if each.id == credential.get("id")), None)
        if found is None:
            return None
        signed = webauthn.verify_authentication_response(
            credential=credential,
            expected_challenge=_bytes(answer.challenge),
            expected_rp_id=_domain(answer.origin),
            expected_origin=answer.origin,
            credential_public_key=found.public_key,
            credential_current_sign_count=found.sign_count,
        )
        return found, signed.new_sign_count

    return _verified(verified, answer)


def _verified(verify: Callable[[dict[str, Any]], T], answer: PasskeyAnswer) -> T | None:
    from webauthn.helpers.exceptions import WebAuthnException

    try:
        credential = parse(answer.text.encode())
        return verify(credential) if isinstance(credential, dict) else None
    # The library does not wrap some errors in a stranger's CBOR, base64 and keys.
    except (Unreadable, WebAuthnException, ArithmeticError, AttributeError, LookupError,
            RecursionError, TypeError, ValueError):  # fmt: skip
        return None


def _domain(origin: str) -> str:
    return urlsplit(origin).hostname or ""


def _bytes(text: str) -> bytes:
    from webauthn.helpers import base64url_to_bytes

    return base64url_to_bytes(text)
