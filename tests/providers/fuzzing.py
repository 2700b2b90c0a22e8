"""Fuzzing of every shipped profile with randomly mutated requests, from one seed.

It begins with the known answers and the documented payloads of each profile, so that mutations
reach every step after the first. A request is written into the error that it causes.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, get_args

from app.core.reading import Reading, Unreadable
from app.providers.check_signatures import read_line
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming, Reason, Refusal
from app.providers.source import ProviderReply, Source
from app.receiving.framing import Received
from app.receiving.verify import (
    RefusedDelivery,
    kept_head,
    read_delivery,
    readable_url,
    refusal_of,
)
from reconcile.instants import EARLIEST, SECOND, Instant
from tests.providers.test_payloads import ARRIVAL, LINES, sent
from tests.providers.test_profile_vectors import ANSWER, VECTORS

REASONS = get_args(Reason)
DIGEST = hashlib.sha256(b"").hexdigest()

TOKENS = [
    b"", b" ", b"\t", b"\r\n", b"\x00", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xe2\x80\xa8",
    b",", b",,", b";", b"=", b"==", b".", b":", b"|", b"&", b"%", b"%00", b"%zz", b"+", b"?", b"#",
    b"/", b"'", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\u00", b"{", b"}", b"[", b"]", b"{}", b"[]",
    b"null", b"true", b"NaN", b"-Infinity", b"-0", b"1e999", b"1E-400", b"0x10", b"9" * 20,
    b"9" * 400, b"1.5", b"-1", b"1_000", b'"', b'""', b'{"a":1,"a":2}', b"[" * 3_000,
    b'{"a":' * 3_000, b"v1,", b"v1=", b"v1a,", b"v0=", b"t=", b"t=1,v1=", b"sha256=", b"Bearer ",
    b"Basic ", b"Basic Og==", b"whsec_", b"AAAA", b"AA==", b"A" * 43 + b"=", b"0" * 64, b"f" * 128,
    b"zz", b"application/json", b"multipart/form-data; boundary=", b"a=b&a=c", b"a[b]=c", b"<a>",
    b"</a>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"<?xml version='1.0'?>", b"eyJhbGciOiJub25lIn0.e30.",
    b'sig1=("@method");created=1', b"sig1=:AA==:", b"sha-256=:AA==:", b"https://[", b"https://a:b",
    b"2026-02-30T00:00:00Z", b"2026-11-20T10:00:00+99:99", b"0000-00-00", b"\xef\xbb\xbf",
]  # fmt: skip
NUMBER = re.compile(rb"[0-9]{3,}")


class Asked(NamedTuple):
    """One request, and when it arrived."""

    request: Incoming
    now: Instant


@dataclass(frozen=True)
class Target:
    """One profile: its sources, each with genuine requests for it."""

    name: str
    genuine: list[tuple[Any, Asked]]
    covers_body: bool

    def bodies(self) -> set[bytes]:
        """Return the bodies for which a genuine signature exists."""
        return {asked.request.body for _, asked in self.genuine}


def targets() -> list[Target]:
    return [_target(name) for name in shipped_profiles()]


def _target(name: str) -> Target:
    profile = load_profile(name)
    genuine: list[tuple[Any, Asked]] = []
    for vector in VECTORS[name]:
        if vector["valid"]:
            stated = {key: value for key, value in vector.items() if key not in ANSWER}
            line = read_line(json.dumps(stated).encode(), profile=name, now=ARRIVAL)
            secrets: Any = dict(line.named) or line.secrets or ()
            source = Source(name=name, profile=profile, secrets=secrets, strict=False)
            genuine.append((source, Asked(line.request, line.now)))
    for example in LINES.get(name, []):
        if "body" in example:
            source = genuine[0][0]
            made = sent(source, example)
            headers = [(k.lower().encode(), v.encode("latin-1")) for k, v in made.headers]
            method = example.get("method", "POST")
            request = Incoming(headers, made.body, method, made.url)
            genuine.append((source, Asked(request, ARRIVAL)))
    rule = profile.signature
    covers = re.search(r"\{body(\}|\|sha)", rule.signed or "")
    return Target(name, genuine, covers_body=covers is not None)


# --- mutations ------------------------------------------------------------------------------------


def worse(rng: Random, data: bytes) -> bytes:
    """Mutate some bytes once."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((0, 1, 1, 2, 8, 200)))
    piece = data[start:end]
    match rng.randrange(9):
        case 0 if data:
            place = rng.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:start] + piece * rng.choice((2, 2, 3, 40)) + data[end:]
        case 3:
            return data[:start] + rng.randbytes(rng.randrange(1, 9)) + data[end:]
        case 4:
            return data[:start] + piece.swapcase() + data[end:]
        case 5:
            return data[:start]
        case 6 if found := list(NUMBER.finditer(data)):
            chosen = rng.choice(found)
            return data[: chosen.start()] + _number(rng, chosen[0]) + data[chosen.end() :]
        case 7:
            return rng.choice(TOKENS)
        case _:
            return data[:start] + rng.choice(TOKENS) + data[end:]


def _number(rng: Random, text: bytes) -> bytes:
    """Write a number close to the old one, or the same number in another spelling."""
    value = int(text[:300])
    near = value + rng.choice((-301, -300, -299, -1, 1, 299, 300, 301, 10**6, -value))
    forms = (
        "{}",
        "+{}",
        "-{}",
        "0{}",
        " {}",
        "{} ",
        "{}.0",
        "{}.5",
        "{}000",
        "{:_}",
        "{:e}",
        "{:x}",
    )
    return rng.choice(forms).format(near).encode()


def mutated(rng: Random, target: Target) -> tuple[Any, Asked]:
    """Mutate a genuine request up to four times."""
    source, asked = rng.choice(target.genuine)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 4))):
        other = rng.choice(target.genuine)[1].request
        if rng.randrange(12):
            asked = asked._replace(request=_once(rng, asked.request, other))
        else:
            shift = rng.choice((-301, -300, 300, 301, 10**6, -(10**8)))
            asked = asked._replace(now=max(EARLIEST, asked.now + shift * SECOND))
    return source, asked


def _once(rng: Random, request: Incoming, other: Incoming) -> Incoming:
    headers = list(request.headers)
    place = rng.randrange(len(headers)) if headers else 0
    match rng.randrange(11):
        case 0 | 1 | 2 if headers:
            headers[place] = (headers[place][0], worse(rng, headers[place][1]))
        case 3 if headers:
            del headers[place]
        case 4 if headers:
            headers.insert(rng.randrange(len(headers) + 1), headers[place])
        case 5 if other.headers:
            headers.append(rng.choice(other.headers))
        case 6:
            headers.append((b"x-more", rng.choice(TOKENS)))
        case 7:
            url = worse(rng, request.url.encode("utf-8", "replace")).decode("latin-1")
            return request._replace(url=rng.choice((url, other.url, "", "/?" + url)))
        case 8:
            return request._replace(method=rng.choice(("POST", "GET", "PUT", "post", "")))
        case 9 if rng.random() < 0.1:
            return request._replace(body=other.body)
        case _:
            return request._replace(body=worse(rng, request.body))
    return request._replace(headers=headers)


# --- what must come of it -------------------------------------------------------------------------


def fuzz(target: Target, *, seed: int, runs: int) -> Counter[str]:
    """Fuzz a profile and count its answers.

    Raises AssertionError with a request that raised an error, or that was accepted with another
    body than was signed.
    """
    rng = Random(f"{seed} {target.name}")
    bodies, counts = target.bodies(), Counter[str]()
    for number in range(runs):
        source, asked = mutated(rng, target)
        try:
            for word in _answers(source, asked):
                counts[word] += 1
                if word == "accepted" and target.covers_body:
                    assert asked.request.body in bodies, "a changed body was accepted"
        except Exception as error:
            message = f"{target.name}, seed {seed}, run {number}: {error!r} of {asked!r}"
            raise AssertionError(message) from error
    counts["runs"] = runs
    return counts


def _answers(source: Any, asked: Asked) -> Iterator[str]:
    """Yield the answer of each step. A step runs even after the previous one refused."""
    incoming = asked.request._replace(source=source.name, address="192.0.2.1")
    refusal = source.verify(incoming, now=asked.now)
    assert refusal is None or isinstance(refusal, Refusal)
    assert refusal is None or refusal.reason in REASONS
    yield "accepted" if refusal is None else refusal.reason
    try:
        reading = source.read(incoming, digest=DIGEST)
        assert isinstance(reading, Reading)
        assert reading.events
        yield "read"
    except Unreadable:
        yield "unreadable"
    reply = source.acknowledge(incoming)
    assert reply is None or isinstance(reply, ProviderReply)
    greeting = source.greet(incoming)
    assert greeting is None or isinstance(greeting, ProviderReply)
    judged = refusal_of(source, incoming, now=asked.now, environment="sandbox")
    assert judged is None or isinstance(judged, RefusedDelivery | ProviderReply)
    assert (refusal is None) or isinstance(judged, RefusedDelivery)
    if judged is None:
        kept = Received(
            delivery_id="dlv_1",
            received_at=asked.now,
            source=source.name,
            headers=kept_head(incoming, source),
            body=incoming.body,
            url=readable_url(source, incoming.url),
        )
        assert read_delivery(source, kept, environment="sandbox")
