"""A software authenticator (W3C Web Authentication Level 3, section 6) with its browser."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

PRESENT, VERIFIED, WITH_KEY = 0x01, 0x04, 0x40
"""Flags of the authenticator's data (section 6.1)."""


def base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


@dataclass
class Authenticator:
    """One key, and what its answers say.

    origin    of the page, as the browser states it
    counts    whether it counts its signatures
    """

    origin: str
    domain: str = "localhost"
    identity: bytes = b"a credential's id"
    count: int = 0
    counts: bool = True
    flags: int = PRESENT | VERIFIED
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def make(self, options: str) -> str:
        """Return the answer to creation options, in JSON."""
        asked = json.loads(options)
        numbers = self.key.public_key().public_numbers()
        cose = cbor2.dumps(
            {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
        )
        length = len(self.identity).to_bytes(2, "big")
        data = self._data(WITH_KEY) + bytes(16) + length + self.identity + cose
        attested = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", asked["challenge"])
        return self._answer(clientDataJSON=client, attestationObject=attested)

    def sign(self, options: str, **changed: bytes) -> str:
        """Return the answer to request options, in JSON; changed: parts, after they were signed."""
        asked = json.loads(options)
        self.count += self.counts
        data, client = self._data(0), self._client("webauthn.get", asked["challenge"])
        signature = self.key.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        parts = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        return self._answer(**(parts | changed))

    def _data(self, also: int) -> bytes:
        flags = bytes([self.flags | also])
        return sha256(self.domain.encode()).digest() + flags + self.count.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str) -> bytes:
        said: dict[str, Any] = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps(said | {"crossOrigin": False}).encode()

    def _answer(self, **parts: bytes) -> str:
        response = {name: base64url(part) for name, part in parts.items()}
        identity = base64url(self.identity)
        return json.dumps(
            {"id": identity, "rawId": identity, "type": "public-key", "response": response}
        )


def with_challenge(options: str, challenge: str) -> str:
    """Return options with another challenge."""
    assert urlsafe_b64decode(challenge + "==")
    return json.dumps(json.loads(options) | {"challenge": challenge})
