"""Reads the bodies in a bundle again, and checks the providers' public-key signatures over them.

Everything is taken from the bundle, and nothing in it is believed: profiles are compiled as any
other file is, within the same bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.errors import ConfigurationError
from app.evidence.verify import Bundle, Wrong
from app.orders.renormalize import read_bytes_again
from app.providers.profile import read_profile
from app.providers.sections import Profile
from app.providers.source import Source
from app.providers.unverified import ProfileReader
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.header_codec import read_headers
from reconcile.instants import parse_instant
from reconcile.transparency.evidence import event_of

Found = tuple[bool | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """One delivery whose bytes are in the bundle, and the history's word of it."""

    told: Mapping[str, Any]
    said: Mapping[str, Any]
    body: bytes
    whole: bytes | None
    headers: str


def bodies(bundle: Bundle) -> Found:
    """Whether the bodies say what the history says they do, as the profiles in here read them."""
    profiles, count, left = _profiles(bundle), 0, 0
    own = {s["source"] for s in bundle.document("sources.json") if s.get("orders") == "own"}
    for kept in _kept(bundle):
        source = kept.told["source"]
        profile = profiles.get(source)
        try:
            reader = (
                None
                if profile is None
                else ProfileReader(source, profile, own_orders=source in own)
            )
        except ConfigurationError:
            reader = None
        if reader is None:
            left += 1
            continue
        read = read_bytes_again(reader, _raw(kept))
        event, problem = read.event, read.problem
        if event != event_of(kept.said):
            why = f": {problem}" if problem else ""
            raise Wrong(f"the body of {kept.told['delivery']} says otherwise than the history{why}")
        count += 1
    if left and not count:
        return None, "No profile in here can read the bodies."
    return _counted(
        bundle, count, left, done="bodies were read again, and say what the history says"
    )


def provider_signatures(bundle: Bundle) -> Found:
    """Whether the payment services' own public keys made the signatures."""
    profiles, count, left = _profiles(bundle), 0, 0
    for kept in _kept(bundle):
        profile, key = profiles.get(kept.told["source"]), kept.told["signature"]["key"]
        pem = bundle.members.get(f"key-{key}.pem")
        source = None if profile is None or pem is None else _source(profile, pem)
        if source is None:
            left += 1
            continue
        refusal = source.verify(
            read_headers(kept.headers).headers,
            kept.body if kept.whole is None else kept.whole,
            now=parse_instant(kept.told["received_at"]),
            method=kept.told["method"],
            url=kept.told["address"],
        )
        if refusal is not None:
            raise Wrong(f"{kept.told['delivery']} was not signed with {key}: {refusal.sentence}")
        count += 1
    done = "signatures of payment services were checked with their public keys"
    return _counted(bundle, count, left, done=done)


def _counted(bundle: Bundle, count: int, left: int, *, done: str) -> Found:
    if bundle.manifest["redacted"]:
        return None, "A redacted bundle has no bodies."
    if not count and not left:
        return None, "No bodies are kept any more: they were let go before this was built."
    if not count:
        return None, "This takes what only the payment service has, its shared secret."
    rest = f"; {left} more take a secret that is not here" if left else ""
    return True, f"{count} {done}{rest}."


def _kept(bundle: Bundle) -> Iterator[_Kept]:
    """The deliveries whose body and headers are in the bundle."""
    for each in bundle.document("history.json")["deliveries"]:
        told = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = [told["body"], told["headers"], told["whole"]]
        body, headers, whole = (
            None if part is None else bundle.members.get(part["file"]) for part in parts
        )
        if body is not None and headers is not None:
            yield _Kept(
                told=told,
                said=each["event"],
                body=body,
                whole=whole,
                headers=headers.decode("utf-8"),
            )


def _raw(kept: _Kept) -> RawDelivery:
    return RawDelivery(
        delivery_id=kept.told["delivery"],
        received_at=parse_instant(kept.told["received_at"]),
        source=kept.told["source"],
        verdict=kept.told["verdict"],
        event_id=kept.said["event_id"],
        digest=kept.told["sha256"],
        headers=kept.headers,
        body=kept.body,
        whole=kept.whole,
        pruned_at=None,
        kept=None,
    )


def _profiles(bundle: Bundle) -> dict[str, Profile]:
    """By source. Raises Wrong for a text that is no profile."""
    found = {}
    for each in bundle.document("sources.json"):
        text = bundle.members[each["file"]].decode("utf-8")
        try:
            found[each["source"]] = read_profile(Path(f"{each['profile']}.toml"), text)
        except ConfigurationError as error:
            raise Wrong(f"{each['file']} is no profile: {error.problems[0]}") from None
    return found


def _source(profile: Profile, pem: bytes) -> Source | None:
    try:
        return Source(name="bundle", profile=profile, secrets=[pem.decode("ascii")], strict=False)
    except ConfigurationError:
        return None
