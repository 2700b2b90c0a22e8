"""What a named verifier is made of: a profile's options and a source's secrets, read and checked.

Every problem is gathered, so that one start-up reports all of them. Sentences show no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from app.core.errors import ConfigurationError
from app.providers.keys import refuse_key_pair
from app.providers.named.contract import Age, Secrets
from reconcile.instants import SECOND

Made = TypeVar("Made")

MOST_SECONDS: Final = 31 * 24 * 3600
"""The widest tolerance: no provider repeats a delivery for longer than 30 days (Adyen)."""


class Setup:
    """Reads what a factory needs; `conclude` raises if anything was wrong or left over."""

    def __init__(self, source: str, options: Mapping[str, object], secrets: Secrets) -> None:
        self._source = source
        self._secrets = secrets
        self._left = dict(options)
        self._problems: list[str] = []

    def problem(self, sentence: str) -> None:
        """Note one more thing that is wrong."""
        self._problems.append(f"source {self._source}: {sentence}")

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """An option that is a list of texts."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if type(value) is list and all(type(each) is str and each for each in value):
            return tuple(value)
        self.problem(f"signature.options.{name} must be a list of texts")
        return default

    def text(self, name: str, default: str) -> str:
        """An option that is one text."""
        value = self._left.pop(name, default)
        if type(value) is str:
            return value
        self.problem(f"signature.options.{name} must be a text")
        return default

    def age(self, what: str, *, past_s: int = 300, future_s: int = 300) -> Age:
        """The options `past_s` and `future_s`, in seconds, of what sentences call `what`."""
        past, future = self._seconds("past_s", past_s), self._seconds("future_s", future_s)
        return Age(what=what, past=past * SECOND, future=future * SECOND)

    def _seconds(self, name: str, default: int) -> int:
        value = self._left.pop(name, default)
        if type(value) is int and 0 <= value <= MOST_SECONDS:
            return value
        self.problem(f"signature.options.{name} must be seconds from 0 to {MOST_SECONDS}")
        return default

    def listed(self, make: Callable[[str], Made]) -> tuple[Made, ...]:
        """What `make` gives for each secret of the list; it raises ValueError with words."""
        secrets = self._secrets.listed
        made: list[Made] = []
        for number, secret in enumerate(secrets, 1):
            made.extend(self._made(f"secret {number} of {len(secrets)}", secret, make))
        return tuple(made)

    def named(self, make: Callable[[str], Made], *parts: str) -> dict[str, Made]:
        """The same for each named secret, except those called one of `parts`."""
        made: dict[str, Made] = {}
        for name, secret in self._secrets.named.items():
            if name not in parts:
                made.update((name, one) for one in self._made(f"secret {name!r}", secret, make))
        return made

    def part(self, name: str, make: Callable[[str], Made]) -> Made | None:
        """The same for the one secret called `name`; None where there is none."""
        secret = self._secrets.named.get(name)
        return None if secret is None else next(self._made(f"secret {name!r}", secret, make), None)

    def _made(self, name: str, secret: str, make: Callable[[str], Made]) -> Iterator[Made]:
        try:
            yield make(_plain(secret))
        except ValueError as error:
            self.problem(f"{name} {error}")

    def conclude(self) -> None:
        """Raise ConfigurationError with every problem, options that nobody asked for included."""
        for name in self._left:
            self.problem(f"signature.options.{name} is not an option of this scheme")
        if self._problems:
            raise ConfigurationError(self._problems)


def text_secret(secret: str) -> bytes:
    """A shared secret that is used as the text it is. Raises ValueError."""
    refuse_key_pair(secret)
    if secret != secret.strip():
        raise ValueError("begins or ends with a blank; remove it")
    return secret.encode("utf-8")


def _plain(secret: str) -> str:
    if type(secret) is not str:
        raise ValueError("is not a text")
    if not secret.strip():
        raise ValueError("is empty or blank")
    return secret
