"""Requests, bodies and profile files for the tests of this folder."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.sections import Profile
from app.providers.source import Refusal, Source
from reconcile.instants import EARLIEST, SECOND, Instant
from reconcile.ledger.events import Event

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
NOW = EARLIEST + 1_614_265_330 * SECOND
CHECKOUT = load_profile("checkout")

EVENT: dict[str, Any] = {
    "id": "evt_01",
    "type": "payment.succeeded",
    "occurred_at": "2026-11-20T10:00:00.123Z",
    "environment": "sandbox",
    "data": {
        "order": {"reference": "ORD-1042", "amount": 1500.5, "currency": "KES"},
        "session": {"reference": "cs_01"},
        "payment": {"reference": "pay_01", "amount": 1500.5, "currency": "KES"},
        "customer": {"phone": "254700000001"},
    },
}

MINIMAL: dict[str, Any] = {
    "signature": {
        "mac": "hmac-sha256",
        "where": "header:x-signature",
        "format": "plain",
        "encoding": "hex",
        "signed": "{body}",
    },
    "secret": {"encoding": "text"},
    "event": {"id": "json:id", "kind": "json:type", "order": "json:order"},
    "amounts": {"unit": "major"},
    "claims": {"paid": "succeeded"},
}


def source(*secrets: str) -> Source:
    """Return a source of the default profile."""
    return Source(name="acme", profile=CHECKOUT, secrets=secrets or (SECRET,))


def changed(**values: Any) -> dict[str, Any]:
    """Return the example event with members replaced.

    A keyword is a dotted path with `__` for each dot. The value ... removes the member.
    """
    event = copy.deepcopy(EVENT)
    for path, value in values.items():
        *parents, last = path.split("__")
        place = event
        for name in parents:
            place = place.setdefault(name, {})
        if value is ...:
            place.pop(last, None)
        else:
            place[last] = value
    return event


def body_of(**values: Any) -> bytes:
    """Return the changed example event as JSON bytes."""
    return json.dumps(changed(**values)).encode()


@dataclass(frozen=True)
class Request:
    """A signed request that can be changed after it was signed."""

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    now: Instant = NOW
    source: Source = field(default_factory=source)

    @classmethod
    def signed(
        cls,
        body: bytes = b"{}",
        *,
        at: Instant = NOW,
        event_id: str = "evt_01",
        by: Source | None = None,
    ) -> Request:
        """Sign a genuine request at `at`."""
        made = (by or source()).sign(body, event_id=event_id, now=at)
        headers = tuple((name.encode(), value.encode()) for name, value in made)
        return cls(headers=headers, body=body, source=by or source())

    @classmethod
    def stamped(cls, timestamp: bytes, *, body: bytes = b"{}") -> Request:
        """Sign a request over any timestamp text."""
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        mac = hmac.new(key, b"evt_01." + timestamp + b"." + body, hashlib.sha256).digest()
        return cls.signed(body).having(
            webhook_timestamp=timestamp, webhook_signature=b"v1," + base64.b64encode(mac)
        )

    def header(self, name: str) -> bytes:
        return dict(self.headers)[name.encode()]

    def having(self, **values: bytes | list[bytes] | None) -> Request:
        """Replace headers by one value or several, or remove them (None)."""
        headers = dict.fromkeys(name for name, _ in self.headers)
        found: list[tuple[bytes, bytes]] = []
        for name in headers:
            value = values.get(name.decode().replace("-", "_"), ...)
            if value is ...:
                found.append((name, dict(self.headers)[name]))
            elif value is not None:
                found.extend(
                    (name, each) for each in ([value] if isinstance(value, bytes) else value)
                )
        return replace(self, headers=tuple(found))

    def refusal(self) -> Refusal | None:
        return self.source.verify(Incoming(self.headers, self.body), now=self.now)

    def reason(self) -> str | None:
        refusal = self.refusal()
        return None if refusal is None else refusal.reason


def toml(document: dict[str, Any]) -> str:
    """Write the part of TOML that these tests need: sections of texts, numbers and lists."""
    lines = []
    for section, keys in document.items():
        lines.append(f"[{section}]")
        lines.extend(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def profile_file(folder: Path, *, base: dict[str, Any] | None = None, **sections: Any) -> str:
    """Write a profile file with keys replaced, and return its path. ... removes a section or a
    key."""
    document = copy.deepcopy(MINIMAL if base is None else base)
    for section, keys in sections.items():
        if keys is ...:
            document.pop(section, None)
            continue
        merged = {**document.get(section, {}), **keys}
        document[section] = {key: value for key, value in merged.items() if value is not ...}
    path = folder / "mine.toml"
    path.write_text(toml(document), encoding="utf-8")
    return str(path)


def raw(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as a server receives them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


def made(
    folder: Path, *, top: str = "", more: str = "", key: str = "k" * 24, **sections: Any
) -> Source:
    """Compile a source from `profile_file`, with `top` put before the file's text and `more` after
    it."""
    path = Path(profile_file(folder, **sections))
    path.write_text(top + path.read_text() + more)
    return Source(name="acme", profile=load_profile(str(path)), secrets=[key])


def only(source: Source, body: bytes | dict[str, Any]) -> Event:
    """Read the only event of a body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    (event,) = source.read(Incoming([], content), digest="d" * 64).events
    return event


def load(folder: Path, top: str = "", **sections: Any) -> Profile:
    """Load the smallest profile, with whole sections replaced and text put before it."""
    path = folder / "mine.toml"
    path.write_text(top + toml({**MINIMAL, **sections}))
    return load_profile(str(path))


def problem_of(folder: Path, top: str = "", **sections: Any) -> str:
    """Return the problems with which `load` fails."""
    with pytest.raises(ConfigurationError) as caught:
        load(folder, top, **sections)
    return "\n".join(caught.value.problems)


def refused(refusal: Refusal | None) -> Refusal:
    """Return the refusal, after checking that the request was refused."""
    assert refusal is not None
    return refusal
