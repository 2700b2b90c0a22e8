"""Read the options and secrets that a verifier in `named/` needs.

All problems are collected. No sentence shows a secret.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from app.core.errors import ConfigurationError
from app.providers.keys import refuse_key_pair
from app.providers.kit import AgeLimit, Secrets
from reconcile.instants import SECOND

T = TypeVar("T")

MOST_SECONDS: Final = 31 * 24 * 3600
"""Largest tolerance in seconds for a request's age; Adyen repeats deliveries for 30 days."""


class Setup:
    """Options and secrets of one source, with their problems, which `conclude` raises."""

    def __init__(self, source: str, options: Mapping[str, object], secrets: Secrets) -> None:
        self._source = source
        self._secrets = secrets
        self._left = dict(options)
        self._problems: list[str] = []

    def problem(self, sentence: str) -> None:
        """Record a problem, which `conclude` reports."""
        self._problems.append(f"source {self._source}: {sentence}")

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return an option that is a list of texts."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if type(value) is list and all(type(each) is str and each for each in value):
            return tuple(value)
        self.problem(f"signature.options.{name} must be a list of texts")
        return default

    def text(self, name: str, default: str) -> str:
        """Return an option that is one text, and mark the option as known."""
        value = self._left.pop(name, default)
        if type(value) is str:
            return value
        self.problem(f"signature.options.{name} must be a text")
        return default

    def age(self, what: str, *, past_s: int = 300, future_s: int = 300) -> AgeLimit:
        """Return the allowed age of a signed time, from the options.

        what  name of the time in sentences
        past_s, future_s  defaults, in seconds
        """
        past, future = self._seconds("past_s", past_s), self._seconds("future_s", future_s)
        return AgeLimit(what=what, past=past * SECOND, future=future * SECOND)

    def _seconds(self, name: str, default: int) -> int:
        value = self._left.pop(name, default)
        if type(value) is int and 0 <= value <= MOST_SECONDS:
            return value
        self.problem(f"signature.options.{name} must be seconds from 0 to {MOST_SECONDS}")
        return default

    def listed(self, make: Callable[[str], T]) -> tuple[T, ...]:
        """Return the listed secrets, converted by a function. Failures are recorded."""
        secrets = self._secrets.listed
        made = [
            self._made(f"secret {number} of {len(secrets)}", secret, make)
            for number, secret in enumerate(secrets, 1)
        ]
        return tuple(each for each in made if each is not None)

    def named(self, make: Callable[[str], T], *parts: str) -> dict[str, T]:
        """Return the named secrets, converted by a function. Failures are recorded.

        The secrets in `parts` are left out.
        """
        made = {
            name: self._made(f"secret {name!r}", secret, make)
            for name, secret in self._secrets.named.items()
            if name not in parts
        }
        return {name: each for name, each in made.items() if each is not None}

    def part(self, name: str, make: Callable[[str], T]) -> T | None:
        """Return the converted secret with this name, if there is one.

        A failure is recorded as a problem.
        """
        secret = self._secrets.named.get(name)
        return None if secret is None else self._made(f"secret {name!r}", secret, make)

    def _made(self, name: str, secret: str, make: Callable[[str], T]) -> T | None:
        try:
            if type(secret) is not str:
                raise ValueError("is not a text")
            if not secret.strip():
                raise ValueError("is empty or blank")
            return make(secret)
        except ValueError as error:
            self.problem(f"{name} {error}")
            return None

    def conclude(self) -> None:
        """Raise one ConfigurationError that lists every problem, if any."""
        for name in self._left:
            self.problem(f"signature.options.{name} is not an option of this scheme")
        if self._problems:
            raise ConfigurationError(self._problems)


def text_secret(secret: str) -> bytes:
    """Return the bytes of a shared secret.

    Raise ValueError for a key, or for outer blanks.
    """
    refuse_key_pair(secret)
    if secret != secret.strip():
        raise ValueError("begins or ends with a blank; remove it")
    return secret.encode("utf-8")
