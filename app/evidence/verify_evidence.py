"""Verifies an evidence bundle. Needs no database and no configuration: the file is all there is.

The steps that any Python can do are those of `app.evidence.verify`, which every bundle holds; here
are those that take more: ed25519, `reconcile`, and the providers' own schemes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.text import LEAF, counted
from app.evidence import keys
from app.evidence.bundle import ABOUT, KEY, KEY_PEM
from app.evidence.keys import PublicKey
from app.evidence.seal import NotACheckpoint, note_holds, read_checkpoint
from app.evidence.verify import (
    MANIFEST,
    MAX_BYTES,
    SIGNATURE,
    UNSEALED,
    Bundle,
    VerifyStep,
    Wrong,
    deliveries,
    digests,
    inclusion,
    ledger,
    steps_of,
)
from app.orders.reindex import read_bytes_again
from app.providers.profile import read_profile
from app.providers.sections import Profile
from app.providers.source import ProfileReader, Source
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.header_codec import read_headers
from reconcile.instants import parse_instant
from reconcile.transparency.evidence import event_of


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
        return None, "No bodies are kept any more: they were deleted before this was built."
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


Found = tuple[bool | None, str]

MAX_KEY_FILE: Final = 4096
"""Characters of a public key's file, of which ours have some 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBundle:
    """What became of each step. `order` and `as_of` are the bundle's word; None without one."""

    order: str | None
    as_of: str | None
    steps: tuple[VerifyStep, ...]

    @property
    def valid(self) -> bool:
        """Whether no step failed."""
        return all(each.passed is not False for each in self.steps)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        steps = [
            {"step": each.name, "passed": each.passed, "sentence": each.sentence}
            for each in self.steps
        ]
        return {"valid": self.valid, "order": self.order, "as_of": self.as_of, "steps": steps}


def read_bundle(path: Path) -> bytes:
    """The bytes of a bundle's file, up to a bound. Raises NotFoundError and UsageError."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def trusted_key(given: str) -> PublicKey:
    """The key in a line of minisign's form, or in a file. Raises UsageError."""
    path = Path(given)
    try:
        text = path.read_text("utf-8")[:MAX_KEY_FILE] if path.is_file() else given
        return keys.read_public_key(text)
    except (OSError, ValueError, keys.NotSigned) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"--key: {said}; give the line of minisign's public key, or a file with it"
        ) from None


def verify_evidence(archive: bytes, *, trusted: PublicKey | None = None) -> VerifiedBundle:
    """Every step of a bundle. `trusted`: the key that it must be signed with, known otherwise."""
    checks: list[tuple[str, Callable[[Bundle], Any]]] = [
        ("digests", digests),
        ("signature", lambda bundle: _signature(bundle, trusted)),
        ("deliveries", deliveries),
        ("inclusion", inclusion),
        ("checkpoint", _checkpoint),
        ("ledger", ledger),
        ("bodies", bodies),
        ("provider_signatures", provider_signatures),
    ]
    bundle, steps = steps_of(archive, checks)
    manifest = {} if bundle is None else bundle.manifest
    return VerifiedBundle(
        order=_text(manifest.get("order")), as_of=_text(manifest.get("as_of")), steps=tuple(steps)
    )


def _text(given: object) -> str | None:
    return given if isinstance(given, str) else None


_NOT_WHOSE: Final = (
    "That proves that nothing was changed since, not whose key it is: compare the key with one "
    "that you have from the shop by another way (--key)."
)


def _signature(bundle: Bundle, trusted: PublicKey | None) -> Found:
    public, text = _key(bundle), _decoded(bundle, SIGNATURE)
    if not text.startswith(f"untrusted comment: {ABOUT}\n"):
        raise Wrong("the signature's first line, which no signature covers, was changed")
    try:
        keys.trusted_comment(public, bundle.members[MANIFEST], text)
    except keys.NotSigned as error:
        raise Wrong(f"the manifest is not signed with the key in the bundle: {error}") from None
    name = keys.key_name(public)
    if trusted is None:
        return True, f"Signed with the key {name} that is in the bundle. {_NOT_WHOSE}"
    if trusted != public:
        other = keys.key_name(trusted)
        raise Wrong(f"it is signed with the key {name}, and not with {other}, the one to trust")
    return True, f"Signed with the key {name}, the one to trust."


def _key(bundle: Bundle) -> PublicKey:
    try:
        public = keys.read_public_key(_decoded(bundle, KEY))
    except keys.NotSigned as error:
        raise Wrong(f"{KEY}: {error}") from None
    if public.pem() != _decoded(bundle, KEY_PEM):
        raise Wrong(f"{KEY} and {KEY_PEM} are not the same key")
    return public


def _checkpoint(bundle: Bundle) -> Found:
    """By the key that signed the manifest, or one that signed for the log before it."""
    if "checkpoint.txt" not in bundle.members:
        return None, UNSEALED
    note, newest = _decoded(bundle, "checkpoint.txt"), _key(bundle)
    earlier = [PublicKey(bytes.fromhex(each)) for each in bundle.document("log.json")["keys"]]
    try:
        found = read_checkpoint(note)
    except NotACheckpoint as error:
        raise Wrong(str(error)) from None
    for public in (newest, *reversed(earlier)):
        if note_holds(note, name=found.origin, public=public):
            which = "the same key" if public == newest else "an earlier key of this log"
            size = counted(found.size, *LEAF)
            return True, f"Signed with {which}: the log {found.origin} at {size}."
    raise Wrong("the checkpoint is not signed with a key of this log")


def _decoded(bundle: Bundle, name: str) -> str:
    if name not in bundle.members:
        raise Wrong(f"{name} is missing")
    return bundle.members[name].decode("utf-8")
