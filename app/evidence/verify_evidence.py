"""Verify an evidence bundle from its file alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from app.core.clock import SystemClock
from app.core.document_of import document_of
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.text import LEAF, counted
from app.evidence import (
    bundle_letter,
    keys,
    letter_times,
    rendering,
    seal,
    verify,
    verify_entries,
)
from app.evidence.bundle import ABOUT, KEY, KEY_PEM
from app.evidence.keys import PublicKey
from app.evidence.witnesses import WrongCosignature, cosigned_at, trusted_witnesses
from app.orders.reindex import read_bytes_again
from app.providers.profile import profile_text, read_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.sections import Profile
from app.providers.source import ProfileReader, Source
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.header_codec import read_request
from reconcile.instants import Instant, format_instant, parse_instant
from reconcile.ledger.fold import fold
from reconcile.ledger.unheard import unheard_of_document
from reconcile.transparency.cosignatures import VerifierKey
from reconcile.transparency.evidence import event_of, history_of
from reconcile.transparency.merkle import consistency_holds


class _StoredBytes(NamedTuple):
    stated: Mapping[str, Any]
    event: Mapping[str, Any]
    body: bytes
    whole: bytes | None
    headers: str


def bodies(bundle: verify.Bundle) -> Found:
    """Check that the bodies give the events in the history."""
    profiles, count, left = _profiles(bundle), 0, 0
    if profiles is None:
        return None, _other_language(bundle)
    sources = bundle.document("sources.json")
    settings = {s["source"]: s for s in sources}
    for kept in _kept(bundle):
        source = kept.stated["source"]
        profile, reader, given = profiles.get(source), None, settings.get(source, {})
        if profile is not None:
            with suppress(ConfigurationError):
                reader = ProfileReader(
                    source,
                    profile,
                    own_orders=given.get("orders") == "own",
                    links=given.get("link_by") != "references",
                    captures=given.get("captures", ()),
                    vouchers=given.get("vouchers", ()),
                )
        if reader is None:
            left += 1
            continue
        raw = RawDelivery(
            delivery_id=kept.stated["delivery"],
            received_at=parse_instant(kept.stated["received_at"]),
            source=source,
            verdict=kept.stated["verdict"],
            event_id=kept.event["event_id"],
            digest=kept.stated["sha256"],
            headers=kept.headers,
            body=kept.body,
            whole=kept.whole,
            pruned_at=None,
            kept=None,
        )
        again = read_bytes_again(reader, raw)
        if event_of(kept.event) != again.event:
            why = f": {again.problem}" if again.problem else ""
            raise verify.Wrong(
                f"the body of {kept.stated['delivery']} differs from the history{why}"
            )
        count += 1
    if left and not count:
        return None, "No profile in the bundle can read the bodies."
    if left:
        return None, (
            f"{counted(count, 'body', 'bodies')} found to agree with history.json. No profile in "
            f"the bundle can read {left:,} more."
        )
    noun = ("body", "bodies")
    return _counted(bundle, count, noun=noun, done="found to agree with history.json")


def provider_signatures(bundle: verify.Bundle) -> Found:
    """Check the signatures of payment services that can be verified with a public key."""
    profiles, count, left = _profiles(bundle), 0, 0
    if profiles is None:
        return None, _other_language(bundle)
    for kept in _kept(bundle):
        key = kept.stated["signature"]["key"]
        profile, pem = profiles.get(kept.stated["source"]), bundle.members.get(f"key-{key}.pem")
        source = None
        if profile is not None and pem is not None:
            with suppress(ConfigurationError):
                secrets = [pem.decode("ascii")]
                source = Source(name="bundle", profile=profile, secrets=secrets, strict=False)
        if source is None:
            left += 1
            continue
        request = Incoming(
            read_request(kept.headers).headers,
            kept.body if kept.whole is None else kept.whole,
            kept.stated["method"],
            kept.stated["address"],
        )
        refusal = source.verify(request, now=parse_instant(kept.stated["received_at"]))
        if refusal is not None:
            raise verify.Wrong(
                f"{kept.stated['delivery']} was not signed with {key}: {refusal.sentence}"
            )
        count += 1
    if count and left:
        return None, (
            f"{counted(count, *SIGNATURES)} checked with the public keys in the bundle. "
            f"{counted(left, 'more signature needs', 'more signatures need')} a secret, which no "
            "bundle contains."
        )
    if left:
        return None, (
            "This check needs the secret that the payment service shares with the shop. Unsigned "
            "messages, and answers that the shop fetched itself, have no signature to check."
        )
    return _counted(
        bundle, count, noun=SIGNATURES, done=("checked with the public keys in the bundle")
    )


SIGNATURES: Final = ("signature of a payment service", "signatures of payment services")


def _counted(bundle: verify.Bundle, count: int, *, noun: tuple[str, str], done: str) -> Found:
    if bundle.manifest["redacted"]:
        return None, "A redacted bundle has no bodies."
    if not bundle.document("history.json")["deliveries"]:
        return None, "The bundle has no delivery, because the shop knew of none about this order."
    if not count:
        return None, "The bundle has no bodies, because they were deleted before it was built."
    return True, f"{counted(count, *noun)} {done}."


def _kept(bundle: verify.Bundle) -> Iterator[_StoredBytes]:
    for each in bundle.document("history.json")["deliveries"]:
        stated = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = [stated["body"], stated["headers"], stated["whole"]]
        body, headers, whole = (
            None if part is None else bundle.members.get(part["file"]) for part in parts
        )
        if body is not None and headers is not None:
            yield _StoredBytes(stated, each["event"], body, whole, headers.decode("utf-8"))


def _profiles(bundle: verify.Bundle) -> dict[str, Profile] | None:
    found = {}
    for each in bundle.document("sources.json"):
        text = bundle.members[each["file"]].decode("utf-8")
        try:
            found[each["source"]] = read_profile(Path(f"{each['profile']}.toml"), text)
        except ConfigurationError as error:
            if bundle.manifest.get("program") != rendering.program():
                return None
            raise verify.Wrong(f"{each['file']} is no profile: {error.problems[0]}") from None
    return found


def _other_language(bundle: verify.Bundle) -> str:
    return (
        f"Another version of Tallyhook ({verify.release(bundle)}) made the bundle, and this "
        f"version ({rendering.release()}) cannot read its profiles: verify the bundle with that "
        "version."
    )


Found = tuple[bool | None, str]

MAX_PROOF_BYTES: Final = 64 * 1024
"""Maximum size in bytes of a consistency proof."""

MAX_KEY_FILE: Final = 4096
"""Maximum number of characters in a public key's file."""


class BundleStepDocument(TypedDict):
    step: str
    passed: bool | None
    sentence: str


class VerifiedDocument(TypedDict):
    valid: bool
    verdict: str
    not_proven: list[str]
    order: str | None
    as_of: str | None
    steps: list[BundleStepDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBundle:
    """Result of verifying an evidence bundle."""

    order: str | None
    as_of: str | None
    steps: tuple[verify.VerifyStep, ...]
    not_proven: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Check whether no step of the verification failed."""
        return all(each.passed is not False for each in self.steps)

    def document(self) -> VerifiedDocument:
        steps = [document_of(BundleStepDocument, each, step=each.name) for each in self.steps]
        verdict = verify.verdict(self.steps)
        return document_of(VerifiedDocument, self, verdict=verdict, steps=steps)


def read_bundle(path: Path) -> bytes:
    """Read the file of a bundle.

    Raise NotFoundError without a file, and UsageError for an unreadable file.
    """
    try:
        with path.open("rb") as file:
            return file.read(verify.MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def trusted_key(given: str) -> PublicKey:
    """Return a public key from a minisign line or file. Raise UsageError for other text."""
    path = Path(given)
    try:
        text = path.read_text("utf-8")[:MAX_KEY_FILE] if path.is_file() else given
        return keys.read_public_key(text)
    except (OSError, ValueError, keys.NotSigned) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"--key: {problem}; give the line of minisign's public key, or a file with it"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """Published checkpoint that the verifier has kept."""

    note: str
    path: tuple[bytes, ...] | None = None


def read_kept(checkpoint: Path, consistency: Path | None) -> KeptCheckpoint:
    """Read a kept checkpoint and its proof. Raise UsageError if unusable."""
    try:
        note = checkpoint.read_text("utf-8")[: seal.MAX_NOTE_BYTES + 1]
        seal.read_checkpoint(note)
        if consistency is None:
            return KeptCheckpoint(note=note)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, seal.NotACheckpoint) as error:
        said = str(error).removeprefix("not a checkpoint: ")
        why = "" if isinstance(error, UnicodeDecodeError) else f" ({said})"
        raise UsageError(
            f"--checkpoint: {checkpoint} is not a checkpoint{why}: name a file with the "
            "output of `tallyhook log checkpoint`, or with the checkpoint that the shop publishes. "
            "Nothing was verified"
        ) from None
    try:
        path = json.loads(consistency.read_bytes()[:MAX_PROOF_BYTES])["path"]
        return KeptCheckpoint(note=note, path=tuple(bytes.fromhex(each) for each in path))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
    except verify.NOT_IN_FORM:
        raise UsageError(
            f"--consistency: {consistency} holds no proof of consistency: name a file with "
            "the output of `tallyhook log consistency`, or with the proof that the shop publishes"
        ) from None


KEPT_CHECKPOINT: Final = "kept_checkpoint"
WITNESSES: Final = "witnesses"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedWitnesses:
    """Witnesses that the person who verifies trusts, and the number of required cosignatures."""

    keys: Sequence[VerifierKey]
    quorum: int


def named_witnesses(given: Sequence[str], quorum: int | None) -> TrustedWitnesses | None:
    """Return the named witnesses. Raise UsageError for an invalid key or quorum."""
    found = trusted_witnesses(given)
    if quorum is not None and quorum > len(found):
        raise UsageError("--quorum may be at most the number of witnesses that --witness names")
    return TrustedWitnesses(keys=found, quorum=quorum or len(found)) if found else None


def verify_evidence(
    archive: bytes,
    *,
    trusted: PublicKey | None = None,
    kept: KeptCheckpoint | None = None,
    witnesses: TrustedWitnesses | None = None,
    now: Instant | None = None,
) -> VerifiedBundle:
    """Run every verification step on a bundle.

    trusted    key that must have signed the bundle
    witnesses  witnesses that must have cosigned the checkpoint
    now        None for this computer's clock
    """
    checks: list[tuple[str, Callable[[verify.Bundle], Any]]] = [
        ("digests", verify.digests),
        ("signature", lambda bundle: _signature(bundle, trusted)),
        ("deliveries", verify.deliveries),
        ("inclusion", verify_entries.inclusion),
        ("readings", verify_entries.readings),
        ("completeness", verify_entries.completeness),
        ("checkpoint", _checkpoint),
        ("ledger", verify.ledger),
        ("bodies", bodies),
        ("provider_signatures", provider_signatures),
        ("rendered", rendered),
    ]
    if kept is not None:
        checks.append((KEPT_CHECKPOINT, lambda bundle: _fits_kept(bundle, kept, trusted)))
    if witnesses is not None:
        checks.append((WITNESSES, lambda bundle: _witnessed(bundle, witnesses)))
    now = SystemClock().now() if now is None else now
    bundle, steps = verify.check_steps(archive, checks, now)
    if bundle is None:
        return VerifiedBundle(order=None, as_of=None, steps=tuple(steps))
    passed = {each.name for each in steps if each.passed}
    fits = kept is not None and KEPT_CHECKPOINT in passed
    not_proven = _not_proven(
        bundle,
        passed if trusted is not None else passed - {"signature"},
        left=seal.read_checkpoint(kept.note).size if kept is not None and fits else 0,
        witnesses=witnesses if WITNESSES in passed else None,
    )
    order, as_of = (bundle.manifest.get(name) for name in ("order", "as_of"))
    return VerifiedBundle(
        order=order if isinstance(order, str) else None,
        as_of=as_of if isinstance(as_of, str) else None,
        steps=tuple(steps),
        not_proven=tuple(not_proven),
    )


def _not_proven(
    bundle: verify.Bundle,
    passed: set[str],
    *,
    left: int,
    witnesses: TrustedWitnesses | None,
) -> Iterator[str]:
    shown = {
        verify.WHOSE: "signature" in passed,
        verify.LETTER: "rendered" in passed,
        verify.READ_AGAIN: "bodies" in passed,
        verify.COSIGNED: witnesses is not None,
    }
    for sentence in verify.unproven(bundle, left):
        if sentence == verify.PROFILES and _are_of_this_release(bundle):
            yield "which profile reads which source (sources.json)"
        elif sentence == verify.NOT_ANEW:
            yield from _not_anew(bundle, left=left, witnesses=witnesses)
        elif not any(done and sentence.startswith(begins) for begins, done in shown.items()):
            yield sentence


def _not_anew(
    bundle: verify.Bundle, *, left: int, witnesses: TrustedWitnesses | None
) -> Iterator[str]:
    numbers = [each["index"] for each in bundle.document("log.json")["leaves"]]
    later = sum(number >= left for number in numbers)
    if numbers and not later:
        return
    if witnesses is not None:
        moments = sorted(at for _, at in _cosigned(bundle, witnesses) if at is not None)
        origin = seal.read_checkpoint(_decoded(bundle, "checkpoint.txt")).origin
        yield (
            f"that the log {origin} was not rewritten before the witnesses cosigned it at "
            f"{format_instant(moments[witnesses.quorum - 1])}, and that the shop has no second "
            "log"
        )
    elif left:
        yield (
            f"that the log was not rewritten after the {counted(left, *LEAF)} of the checkpoint "
            f"that you kept: {later} of the {counted(len(numbers), *LEAF)} in the bundle came "
            "later"
        )
    else:
        yield verify.NOT_ANEW


def _are_of_this_release(bundle: verify.Bundle) -> bool:
    shipped = set(shipped_profiles())
    try:
        return all(
            each["profile"] in shipped
            and bundle.members[each["file"]] == profile_text(each["profile"]).encode()
            for each in bundle.document("sources.json")
        )
    except verify.NOT_IN_FORM:
        return False


def rendered(bundle: verify.Bundle) -> Found:
    """Check that the bundle's rendered files equal what this program renders."""
    if bundle.manifest.get("program") != rendering.program():
        return None, (
            f"Another version of Tallyhook ({verify.release(bundle)}) made report.html, "
            f"explanation.txt, README.txt and verify.py. This version ({rendering.release()}) "
            "cannot check whether they agree with the other files: verify the bundle with that "
            "version."
        )
    files = rendered_again(bundle)
    for name, data in files.items():
        if bundle.members.get(name) != data:
            raise verify.Wrong(f"{name} does not agree with the other files of the bundle")
    return True, f"{', '.join(sorted(files))} agree with the other files, byte for byte."


def rendered_again(bundle: verify.Bundle) -> dict[str, bytes]:
    """Render again the bundle's files that repeat other files.

    Raise Wrong or ValueError for a malformed bundle.
    """
    history, policy, as_of = history_of(bundle.document("history.json"))
    facts = bundle_letter.LetterFacts(
        history=history,
        revisions=tuple(
            bundle_letter.PublishedOutcome(
                at=parse_instant(each["at"]),
                outcome=each["outcome"],
                fulfillable=each["fulfillable"],
            )
            for each in bundle.document("revisions.json")
        ),
        arrivals=tuple(
            _arrival(bundle.document(f"delivery-{each['delivery_id']}.json"), bundle)
            for each in bundle.document("history.json")["deliveries"]
        ),
        checkpoint=bundle.members.get("checkpoint.txt", b"").decode("utf-8"),
        sealed=len(bundle.document("log.json")["leaves"]),
        unsealed=len(bundle.document("log.json")["unsealed"]),
        key=keys.key_name(_key(bundle)),
        zone=letter_times.zone_in(bundle.document(letter_times.TIMES))
        if letter_times.TIMES in bundle.members
        else None,
        unheard=unheard_of_document(bundle.document("heard.json")),
    )
    return rendering.rendered_files(fold(history, policy=policy, as_of=as_of), facts)


def _arrival(stated: Mapping[str, Any], bundle: verify.Bundle) -> bundle_letter.LetterArrival:
    signature = stated["signature"]
    signed_at = signature["signed_at"]
    return bundle_letter.LetterArrival(
        source=stated["source"],
        received_at=parse_instant(stated["received_at"]),
        key=signature["key"],
        scheme=signature["scheme"],
        public=f"key-{signature['key']}.pem" in bundle.members,
        signed_at=None if signed_at is None else parse_instant(signed_at),
    )


_NOT_WHOSE: Final = (
    "This proves that nothing was changed after signing, but not whose key it is: give --key "
    "with a key that you got from the shop through another channel."
)


def _signature(bundle: verify.Bundle, trusted: PublicKey | None) -> Found:
    public, text = _key(bundle), _decoded(bundle, verify.SIGNATURE)
    if not text.startswith(f"untrusted comment: {ABOUT}\n"):
        raise verify.Wrong(
            "the first line of the signature was changed; the signature does not cover this line"
        )
    try:
        keys.trusted_comment(public, bundle.members[verify.MANIFEST], text)
    except keys.NotSigned as error:
        raise verify.Wrong(
            f"the manifest is not signed with the key in the bundle: {error}"
        ) from None
    name = keys.key_name(public)
    if trusted is None:
        return True, f"Signed with the key {name} from the bundle. {_NOT_WHOSE}"
    other = keys.key_name(trusted)
    if trusted == public:
        return True, f"Signed with the key {name}, which is the trusted key."
    if trusted in _endorsed_keys(bundle, public):
        return True, (
            f"Signed with the key {name}. The trusted key {other} endorsed this key as its "
            "successor."
        )
    raise verify.Wrong(
        f"the manifest is signed with the key {name}, not with the trusted key {other}: ask the "
        "shop whether it has replaced its key"
    )


def _key(bundle: verify.Bundle) -> PublicKey:
    try:
        public = keys.read_public_key(_decoded(bundle, KEY))
    except keys.NotSigned as error:
        raise verify.Wrong(f"{KEY}: {error}") from None
    if public.pem() != _decoded(bundle, KEY_PEM):
        raise verify.Wrong(f"{KEY} and {KEY_PEM} contain different keys")
    return public


def _checkpoint(bundle: verify.Bundle) -> Found:
    if "checkpoint.txt" not in bundle.members:
        raise verify.Wrong("checkpoint.txt is missing: the log proves nothing in this bundle")
    note, newest = _decoded(bundle, "checkpoint.txt"), _key(bundle)
    try:
        found = seal.read_checkpoint(note)
    except seal.NotACheckpoint as error:
        raise verify.Wrong(str(error)) from None
    log = f"the log {found.origin} at {counted(found.size, *LEAF)}"
    endorsed = _endorsed_keys(bundle, newest)
    for public in (newest, *endorsed, *_log_keys(bundle)):
        if not seal.note_holds(note, name=found.origin, public=public):
            continue
        if public == newest:
            return True, f"Signed with the key of the manifest: {log}."
        name = keys.key_name(public)
        if public in endorsed:
            return True, (
                f"Signed with the earlier key {name}, which endorsed the key of the manifest: "
                f"{log}."
            )
        return None, (
            f"Signed with {name}: {log}. The bundle states that this is an earlier key of the "
            "shop, but does not prove it. Compare it with a key that you got from the shop."
        )
    raise verify.Wrong("the checkpoint is not signed with a key of this log")


def _fits_kept(bundle: verify.Bundle, kept: KeptCheckpoint, trusted: PublicKey | None) -> Found:
    newest = _key(bundle)
    try:
        ours = seal.read_checkpoint(_decoded(bundle, "checkpoint.txt"))
        theirs = seal.read_checkpoint(kept.note)
    except seal.NotACheckpoint as error:
        raise verify.Wrong(str(error)) from None
    _check_origin(bundle, ours, theirs)
    earlier, later = sorted((ours, theirs), key=lambda each: each.size)
    if kept.path is None and earlier.size != later.size:
        return None, (
            f"The kept checkpoint has {counted(theirs.size, *LEAF)} and the bundle's checkpoint "
            f"has {ours.size}: ask the shop for the output of `tallyhook log consistency "
            f"{earlier.size} {later.size}`, and give it with --consistency."
        )
    if not consistency_holds(
        old=earlier.size, old_head=earlier.head, size=later.size, head=later.head,
        proof=kept.path or (),
    ):  # fmt: skip
        raise verify.Wrong(
            "the kept checkpoint and the bundle's checkpoint belong to different logs"
        )
    leaves = bundle.document("log.json")["leaves"]
    within = sum(each["index"] < theirs.size for each in leaves)
    fits = (
        f"it belongs to the bundle's log, at {counted(theirs.size, *LEAF)}: {within} of the "
        f"{counted(len(leaves), *LEAF)} in the bundle are covered by it."
    )
    signers = (newest, *_endorsed_keys(bundle, newest), *(() if trusted is None else (trusted,)))
    if any(seal.note_holds(kept.note, name=theirs.origin, public=each) for each in signers):
        return True, f"The checkpoint that you kept is signed by this log's key, and {fits}"
    return None, (
        "The bundle does not prove that the key of the checkpoint that you kept is the shop's: "
        f"compare it with the keys that you got from the shop. According to its hashes, {fits}"
    )


def _check_origin(bundle: verify.Bundle, ours: seal.Checkpoint, theirs: seal.Checkpoint) -> None:
    log = bundle.document("log.json")
    if theirs.origin not in {ours.origin, *(each["log"] for each in log.get("origins", ()))}:
        raise verify.Wrong(
            f"the kept checkpoint belongs to another log, {theirs.origin}; if the shop's log "
            "continues under that origin, ask for a new bundle"
        )
    ended = dict(verify.earlier_origins(log)).get(theirs.origin)
    if ended is not None and theirs.size > ended:
        raise verify.Wrong(
            f"the kept checkpoint of the log {theirs.origin} has {counted(theirs.size, *LEAF)}, "
            f"but the bundle's log has only {counted(ended, *LEAF)} under this name: a backup was "
            "restored in between"
        )


def _cosigned(
    bundle: verify.Bundle, witnesses: TrustedWitnesses
) -> list[tuple[VerifierKey, Instant | None]]:
    note = _decoded(bundle, "checkpoint.txt")
    try:
        return [(key, cosigned_at(note, key)) for key in witnesses.keys]
    except WrongCosignature as error:
        raise verify.Wrong(
            f"checkpoint.txt has an invalid signature of the witness {error}"
        ) from None


def _witnessed(bundle: verify.Bundle, witnesses: TrustedWitnesses) -> Found:
    each = _cosigned(bundle, witnesses)
    found = "; ".join(
        f"{key.name} has not cosigned it" if at is None else
        f"{key.name} cosigned it at {format_instant(at)}"
        for key, at in each
    )  # fmt: skip
    count = sum(at is not None for _, at in each)
    if count < witnesses.quorum:
        raise verify.Wrong(
            f"the bundle's checkpoint has {counted(count, 'cosignature')} of witnesses that you "
            f"trust, but must have {witnesses.quorum}: {found}"
        )
    return True, f"The checkpoint is cosigned: {found}."


def _log_keys(bundle: verify.Bundle) -> list[PublicKey]:
    return [PublicKey(bytes.fromhex(each)) for each in bundle.document("log.json")["keys"]]


def _endorsed_keys(bundle: verify.Bundle, newest: PublicKey) -> list[PublicKey]:
    if "checkpoint.txt" not in bundle.members:
        return []
    try:
        origin = seal.read_checkpoint(_decoded(bundle, "checkpoint.txt")).origin
    except seal.NotACheckpoint:
        return []
    log = bundle.document("log.json")
    chain = seal.endorsed_chain(origin, _log_keys(bundle), log["endorsements"])
    return chain if chain and chain[-1] == newest else []


def _decoded(bundle: verify.Bundle, name: str) -> str:
    if name not in bundle.members:
        raise verify.Wrong(f"{name} is missing")
    return bundle.members[name].decode("utf-8")
