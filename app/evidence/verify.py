#!/usr/bin/env python3
"""Checks an evidence bundle:  python3 -I verify.py bundle.zip

Python 3.8 or later and its standard library; no network, no configuration. Every bundle holds this
very file. Whoever does not trust it, and nobody should without reading, has some 650 lines to read
and can do each step by other means: README.txt shows how.

    1 archive      the ZIP is byte for byte what its files make: nothing beside, nothing hidden
    2 manifest     manifest.json is in canonical form and names exactly the files that are there
    3 digests      every file has the size and the SHA-256 that the manifest states
    4 signature    left to `minisign` or `openssl`: README.txt has the commands
    5 deliveries   what arrived, what was read from it and the bodies belong together
    6 inclusion    each delivery, record and revision lies in the log of the checkpoint
    7 checkpoint   left to `openssl`, as the signature is
    8 ledger       the ledger is what follows from the history; needs the package `reconcile`
    9 rendered     left to `tallyhook evidence verify` of the release that made the bundle: whether
                   report.html, explanation.txt, README.txt and this file follow from the rest

What it prints first is the verdict, and then what of the bundle nothing proves: that is only the
word of whoever made it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

MAX_BYTES = 256 * 1024 * 1024
"""Of a bundle: it is read into memory at once."""

MAX_MEMBERS = 10_000
"""Files of a bundle: five for each delivery, and two dozen."""

NAME = re.compile(
    r"verify\.py|manifest\.json\.minisig|[A-Za-z][A-Za-z0-9_-]{0,90}\."
    r"(?:body|details|headers|html|jpg|json|pdf|pem|png|pub|signed|toml|txt|whole)"
)
"""What a file may be called: flat, and nothing that a computer would run but this file."""

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.minisig"
FORMAT = "tallyhook evidence 2"
FORMAT_1 = "tallyhook evidence 1"
"""The form before: it does not name the program that made a bundle, its explanation.txt follows
from the ledger alone, and that nothing was sealed is no fault of such a bundle."""

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  # Python 3.8 has no other
UNSEALED = "Nothing here was sealed in the log when the bundle was made."

SEALED_WITHIN_S = 60
"""Seconds before the bundle's instant in which something may have come and not be sealed yet: it
takes some moments, and who makes a bundle waits for it."""

NOT_IN_FORM = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a stranger's JSON of another form makes of a look into it."""

MASKED = "\N{BULLET}"
"""What stands in the place of a masked digit."""

# --- the archive ---------------------------------------------------------------------------------

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_VERSION = 20
_MADE_BY_UNIX = 3 << 8 | _VERSION
_FIRST_OF_1980 = 1 << 5 | 1
_PLAIN_FILE = 0o100644 << 16


class Wrong(Exception):
    """Something is not as it must be; one sentence. A stranger's words in it move no terminal."""

    def __init__(self, said: str) -> None:
        super().__init__(clean(said))


def clean(said: object) -> str:
    """Somebody else's words, as far as they can be printed."""
    return "".join(c if c.isprintable() else "?" for c in str(said)[:400])


def pack(members: Mapping[str, bytes]) -> bytes:
    """The one ZIP of these files: sorted by name, stored as they are, dated 1 January 1980."""
    parts, directory, offset = list[bytes](), list[bytes](), 0
    for name in sorted(members):
        data, label = members[name], name.encode("ascii")
        shared = (_VERSION, 0, 0, 0, _FIRST_OF_1980, zlib.crc32(data), len(data), len(data))
        parts += [_LOCAL.pack(b"PK\3\4", *shared, len(label), 0), label, data]
        directory += [
            _CENTRAL.pack(b"PK\1\2", _MADE_BY_UNIX, *shared, len(label), 0, 0, 0, 0, _PLAIN_FILE,
                          offset),
            label,
        ]  # fmt: skip
        offset += _LOCAL.size + len(label) + len(data)
    listed = b"".join(directory)
    end = _END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(listed), offset, 0)
    return b"".join([*parts, listed, end])


def unpack(archive: bytes) -> dict[str, bytes]:
    """The files of a bundle. Raises Wrong for every ZIP that `pack` did not make.

    Nothing is ever decompressed: a bundle stores its files as they are, so none can be larger than
    the bundle, and the only way through it is from its first byte to its last.
    """
    if len(archive) > MAX_BYTES:
        raise Wrong(f"it is larger than the {MAX_BYTES} bytes that a bundle may have")
    members: dict[str, bytes] = {}
    offset, last = 0, ""
    while archive[offset : offset + 4] == b"PK\3\4":
        name, data, offset = _member(archive, offset)
        if name <= last:
            raise Wrong(f"{name} comes twice or out of order")
        if len(members) == MAX_MEMBERS:
            raise Wrong(f"it has more than {MAX_MEMBERS} files")
        members[name], last = data, name
    if not members:
        raise Wrong("it is no ZIP that begins with a file")
    if archive != pack(members):
        raise Wrong("a header, its directory, or what comes after it, is not what its files make")
    return members


def _member(archive: bytes, offset: int) -> tuple[str, bytes, int]:
    if offset + _LOCAL.size > len(archive):
        raise Wrong("it ends in the middle of a file's header")
    (_, _, flags, method, _, _, _, packed, size, label, extra) = _LOCAL.unpack_from(archive, offset)
    begin = offset + _LOCAL.size + label
    name = archive[offset + _LOCAL.size : begin].decode("ascii", "replace")
    if not NAME.fullmatch(name):
        raise Wrong(f"it has a file with the name {name[:100]!r}, which no bundle has")
    if method or flags or extra or packed != size:
        raise Wrong(f"{name} is compressed, encrypted, streamed or has extra fields: none here are")
    if begin + size > len(archive):
        raise Wrong(f"{name} claims more bytes than there are")
    return name, archive[begin : begin + size], begin + size


# --- the manifest and the files ------------------------------------------------------------------


def read_json(data: bytes, name: str) -> Any:
    """The JSON in a file. Raises Wrong."""
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Wrong(f"{name} is not JSON") from None


class Bundle(NamedTuple):
    """The files by name, and the manifest."""

    members: dict[str, bytes]
    manifest: dict[str, Any]

    def document(self, name: str) -> Any:
        """The JSON of a file. Raises Wrong where it is missing or none."""
        if name not in self.members:
            raise Wrong(f"{name} is missing")
        return read_json(self.members[name], name)


def opened(members: dict[str, bytes]) -> Bundle:
    """The bundle of these files, whose manifest names exactly them. Raises Wrong."""
    if MANIFEST not in members or SIGNATURE not in members:
        raise Wrong(f"{MANIFEST} or {SIGNATURE} is missing")
    manifest = read_json(members[MANIFEST], MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") not in (FORMAT, FORMAT_1):
        raise Wrong(f"{MANIFEST} is not of the format {FORMAT!r} or {FORMAT_1!r}")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    canonical = text.encode("utf-8", "surrogatepass")  # RFC 8785 for ASCII names and no floats
    if canonical != members[MANIFEST]:
        raise Wrong(f"{MANIFEST} is not in canonical form")
    listed, left_out = manifest.get("files"), manifest.get("left_out")
    if not isinstance(listed, dict) or not isinstance(left_out, dict):
        raise Wrong(f"{MANIFEST} does not list files and what was left out")
    there = members.keys() - {MANIFEST, SIGNATURE}
    for name in sorted(there ^ listed.keys()):
        fault = "not in the manifest" if name in there else "missing"
        raise Wrong(f"{name} is {fault}")
    return Bundle(members, manifest)


def digests(bundle: Bundle) -> str:
    """Step 3."""
    for name, said in bundle.manifest["files"].items():
        data = bundle.members[name]
        if said != {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}:
            raise Wrong(f"{name} is not the file that was signed")
    return f"All {len(bundle.members) - 2} files have the stated size and SHA-256."


def deliveries(bundle: Bundle) -> str:
    """Step 5: history, deliveries and bodies say the same."""
    history = bundle.document("history.json")
    heard = {each["delivery_id"]: each for each in history["deliveries"]}
    files = {name[len("delivery-") : -len(".json")] for name in bundle.members
             if name.startswith("delivery-") and name.endswith(".json")}  # fmt: skip
    for name in sorted(files ^ heard.keys()):
        raise Wrong(f"delivery {name} is not in both the history and the files")
    known = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for name, each in heard.items():
        told = bundle.document(f"delivery-{name}.json")
        if (told["delivery"], told["received_at"]) != (name, each["received_at"]):
            raise Wrong(f"delivery {name} is told in two ways")
        if told["sha256"] != each["event"]["digest"]:
            raise Wrong(f"delivery {name} has another body than the one that was read")
        for part in filter(None, (told[each] for each in ("body", "whole", "headers", "signed"))):
            if known.get(part["file"], {}).get("sha256") != part["sha256"]:
                raise Wrong(f"a part of delivery {name} is another file than the one that arrived")
        if told["size"] and told["body"] and told["body"]["sha256"] != told["sha256"]:
            raise Wrong(f"the body of delivery {name} is not the one that was read")
        _as_kept(told, bundle)
    if (history["order"], history["as_of"]) != (bundle.manifest["order"], bundle.manifest["as_of"]):
        raise Wrong("history.json is of another order or another instant")
    _sessions(bundle, history)
    _attachments(bundle)
    _nothing_else(bundle, history)
    noun = "delivery" if len(heard) == 1 else "deliveries"
    return f"{len(heard)} {noun}: what was read, headers and bodies belong together."


def _as_kept(told: dict[str, Any], bundle: Bundle) -> None:
    """Method and headers are told as they were kept, where the kept lines are here."""
    kept = bundle.members.get(told["headers"]["file"]) if told["headers"] else None
    if kept is None:
        return
    method, shown = "POST", []
    for line in kept.decode("utf-8").split("\n"):
        name, _, value = line.partition(": ")
        if name == ":method":
            method = value
        elif line and name != ":url":
            shown.append([name, value])
    if told["method"] != method or not _same(told["headers_shown"], shown):
        raise Wrong(f"delivery {told['delivery']} is told with another method or other headers")


def _same(shown: Any, kept: Any) -> bool:
    """Whether JSON is told as it was kept, but for texts in which something personal is masked."""
    if isinstance(shown, str) and MASKED in shown:
        return True
    if isinstance(shown, dict) and isinstance(kept, dict):
        return shown.keys() == kept.keys() and all(_same(shown[each], kept[each]) for each in kept)
    if isinstance(shown, list) and isinstance(kept, list):
        places = range(len(kept))
        return len(shown) == len(kept) and all(_same(shown[n], kept[n]) for n in places)
    return json.dumps(shown) == json.dumps(kept)  # so that NaN is itself, and 1 is not true


def _sessions(bundle: Bundle, history: dict[str, Any]) -> None:
    """sessions.json repeats records of the history, each with what was kept beside it."""
    records = {each["record_id"]: each for each in history["records"]}
    wanted = {name for name, each in records.items() if each["kind"].startswith("session_")}
    told = bundle.document("sessions.json")
    if len(told) != len(wanted) or {each["record_id"] for each in told} != wanted:
        raise Wrong("sessions.json does not tell the sessions of the history")
    for each in told:
        name = each["record_id"]
        if {key: each[key] for key in each if key != "details"} != records[name]:
            raise Wrong(f"sessions.json tells {name} otherwise than the history")
        file = f"record-{name}.details"
        if file in bundle.manifest["left_out"]:
            continue
        kept = _read_or_text(bundle.members[file]) if file in bundle.members else None
        if not _same(each["details"], kept):
            raise Wrong(f"sessions.json tells of {name} what was not kept beside it")


ATTACHMENTS = "attachments.json"


def attached(bundle: Bundle) -> list[dict[str, Any]]:
    """What is told of files that people of the shop attached; nothing where none were asked for."""
    return bundle.document(ATTACHMENTS) if ATTACHMENTS in bundle.members else []


def _attachments(bundle: Bundle) -> None:
    """Each file, and what is said of it, has the digest that the shop's audit entry states."""
    known = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for each in attached(bundle):
        name, facts = each["attachment"], read_json(each["facts"].encode(), "an audit entry")
        told = {part: each[part] for part in ("attachment", "about", "kind", "media")}
        told.update(sha256=each["content"]["sha256"], size=each["content"]["size"],
                    details=each["details"]["sha256"])  # fmt: skip
        foreign = each["about"] == "order" and each["subject"] != bundle.manifest["order"]
        if foreign or {part: facts.get(part) for part in told} != told:
            raise Wrong(f"attachment {name} is not the one that was attached")
        for part in (each["content"], each["details"]):
            if known.get(part["file"]) != {"sha256": part["sha256"], "size": part["size"]}:
                raise Wrong(f"attachment {name} is another file than the one that was attached")


def _read_or_text(kept: bytes) -> Any:
    text = kept.decode("utf-8")
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return text


ALWAYS = frozenset((
    "README.txt", "attachments.json", "books.json", "checkpoint.txt", "evidence-key.pem",
    "evidence-key.pub", "explanation.txt", "history.json", "ledger.json", "log.json", "report.html",
    "revisions.json", "sessions.json", "sources.json", "verify.py",
))  # fmt: skip


def _nothing_else(bundle: Bundle, history: dict[str, Any]) -> None:
    """Every file is one that something here refers to: no receipt that somebody has laid beside."""
    named = set(ALWAYS) | {f"record-{each['record_id']}.details" for each in history["records"]}
    named.update(each["file"] for each in bundle.document("sources.json"))
    named.update(each[part]["file"] for each in attached(bundle) for part in ("content", "details"))
    for each in history["deliveries"]:
        told = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = (told[name] for name in ("body", "whole", "headers", "signed"))
        named.update(part["file"] for part in parts if part)
        named.update(
            (f"delivery-{each['delivery_id']}.json", f"key-{told['signature']['key']}.pem")
        )
    for name in sorted({*bundle.manifest["files"], *bundle.manifest["left_out"]} - named):
        raise Wrong(f"nothing here refers to the file {name}")


# --- the log (RFC 9162) --------------------------------------------------------------------------


def root_of(found: bytes, index: int, size: int, proof: list[bytes]) -> bytes:
    """The root over `size` leaves with this leaf hash at `index`: RFC 9162, section 2.1.3.2."""
    if not 0 <= index < size:
        raise Wrong("a proof is of a leaf that the log does not have")
    place, last = index, size - 1
    for step in proof:
        if last == 0:
            raise Wrong("a proof is longer than the log is high")
        if place & 1 or place == last:
            found = hashlib.sha256(b"\1" + step + found).digest()
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + step).digest()
        place, last = place >> 1, last >> 1
    if last:
        raise Wrong("a proof is shorter than the log is high")
    return found


def checkpoint_of(text: bytes) -> tuple[int, bytes]:
    """Size and root of a checkpoint (C2SP tlog-checkpoint): its second and third line."""
    try:
        lines = text.decode("utf-8").split("\n")
        return int(lines[1]), base64.b64decode(lines[2], validate=True)
    except (ValueError, IndexError):
        raise Wrong("checkpoint.txt is not a checkpoint") from None


def inclusion(bundle: Bundle) -> tuple[bool | None, str]:
    """Step 6: every leaf is in the log, in its order, and says what the files here say."""
    log, things = bundle.document("log.json"), _things(bundle)
    if not log["leaves"]:
        if bundle.manifest["format"] == FORMAT_1:
            return None, UNSEALED
        raise Wrong("log.json has no leaf: nothing here is proved by the log")
    size, root = checkpoint_of(bundle.members.get("checkpoint.txt", b""))
    last, hidden, found = -1, 0, set(log["unsealed"])
    for each in log["leaves"]:
        name, index, proof = each["id"], each["index"], map(bytes.fromhex, each["proof"])
        if index <= last or root_of(bytes.fromhex(each["hash"]), index, size, list(proof)) != root:
            raise Wrong(f"the leaf of {name} is not in the log of the checkpoint, or out of order")
        if each["leaf"] is None and bundle.manifest["redacted"]:
            hidden += 1
        else:
            _compare(each, things[name], bundle)
        last = index
        found.add(name)
    for name in sorted(things.keys() ^ found):
        raise Wrong(f"{name} is not both here and in the log")
    for name in log["unsealed"]:
        if bundle.manifest["format"] != FORMAT_1 and _is_late(things[name], bundle):
            raise Wrong(f"{name} came long before the bundle's instant and was not sealed")
    rest = f"; here as a hash alone, for it holds personal data: {hidden}" if hidden else ""
    late = f"; not sealed yet: {len(log['unsealed'])} more" if log["unsealed"] else ""
    said = "leaf lies" if len(log["leaves"]) == 1 else "leaves lie"
    return True, f"{len(log['leaves'])} {said} in the log of {size}{rest}{late}."


def _things(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Everything here that must have a leaf, by its name there, with what the leaf must say."""
    history, things = bundle.document("history.json"), {}
    names = "order at recorded_at source key session payment expires_at reason author"
    listed = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for each in history["deliveries"]:
        told = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = {name: told[name]["sha256"] for name in ("headers", "whole") if told[name]}
        things[told["delivery"]] = {
            "kind": "delivery", "id": told["delivery"], "received_at": told["received_at"],
            "source": told["source"], "body": told["sha256"], "size": told["size"], **parts,
        }  # fmt: skip
    for each in history["records"]:
        money, details = each.get("money"), listed.get(f"record-{each['record_id']}.details")
        things[each["record_id"]] = {
            "kind": "record", "record": each["kind"], "currency": money and money["currency"],
            "amount": money and str(int(money["amount"].replace(".", ""))),
            **({} if details is None else {"details": details["sha256"]}),
            **{name: each.get(name) for name in names.split()},
        }  # fmt: skip
    for each in bundle.document("revisions.json"):
        said = {name: each[name] for name in ("outcome", "at", "fulfillable", "before")}
        because = json.dumps(each["because"], ensure_ascii=False)
        if not bundle.manifest["redacted"] or MASKED not in because:
            said["because"] = hashlib.sha256(because.encode("utf-8", "surrogatepass")).hexdigest()
        things[f"revision:{each['seq']}"] = {"kind": "revision", "order": history["order"], **said}
    for each in attached(bundle):
        things[f"deed:{each['deed']}"] = {
            "kind": "deed", "id": each["deed"], "at": each["at"], "action": "attached",
            "subject": each["subject"],
            "facts": hashlib.sha256(each["facts"].encode("utf-8", "surrogatepass")).hexdigest(),
        }  # fmt: skip
    return things


def _is_late(thing: dict[str, Any], bundle: Bundle) -> bool:
    """Whether there was time enough to seal it before the bundle's instant."""
    came = thing.get("received_at") or thing.get("recorded_at") or thing["at"]
    return _micros(bundle.manifest["as_of"]) - _micros(came) > SEALED_WITHIN_S * 1_000_000


def _micros(at: str) -> int:
    return (datetime.fromisoformat(at.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1)


def _compare(each: dict[str, Any], thing: dict[str, Any], bundle: Bundle) -> None:
    """A leaf is what was hashed, and says what the files say, moments in microseconds."""
    data = (each["leaf"] or "").encode()
    if hashlib.sha256(b"\0" + data).hexdigest() != each["hash"]:
        raise Wrong(f"the leaf of {each['id']} is not the one that was hashed")
    leaf = read_json(data, "a leaf")
    for name, said in thing.items():
        wanted = _micros(said) if said and name.endswith("at") else said
        if leaf.get(name) != wanted and not (name == "headers" and leaf.get(name) is None):
            raise Wrong(f"the log says otherwise of {each['id']}: {name}")


# --- what was concluded, and all steps -----------------------------------------------------------


def ledger(bundle: Bundle) -> tuple[bool | None, str]:
    """Step 8: fold what is here, and compare."""
    try:
        from reconcile.transparency.evidence import ledger_of
    except ImportError:
        return None, "The package `reconcile` of Tallyhook is not installed here."
    try:
        found = ledger_of(bundle.document("history.json"))
    except (ValueError, OverflowError, RecursionError) as error:
        raise Wrong(f"history.json cannot be folded: {error}") from None
    if found != bundle.document("ledger.json"):
        raise Wrong("ledger.json is not what follows from history.json")
    explained = "".join(f"{sentence}\n" for sentence in found["explanation"]).encode()
    first = bundle.manifest["format"] == FORMAT_1
    if first and explained != bundle.members.get("explanation.txt"):
        raise Wrong("explanation.txt is not what follows from history.json")
    return True, f"Folding the history here again gives this ledger: {found['outcome']}."


class VerifyStep(NamedTuple):
    """One step: whether it passed (None: it was not checked), and why."""

    name: str
    passed: bool | None
    sentence: str


def signature(bundle: Bundle) -> tuple[bool | None, str]:
    """Step 4, which takes a tool of its own."""
    return None, "That takes minisign or openssl: README.txt shows how."


def rendered(bundle: Bundle) -> tuple[bool | None, str]:
    """Step 9, which takes the program that made the bundle."""
    if bundle.manifest["format"] == FORMAT_1:
        return (
            None,
            "Whether report.html and README.txt follow from the rest, format 1 cannot tell.",
        )
    said = (
        f"report.html, explanation.txt, README.txt and verify.py are of release {release(bundle)}"
    )
    return None, f"{said}: its `tallyhook evidence verify` renders them again and compares."


def release(bundle: Bundle) -> str:
    """The release that the manifest names; a stranger's word."""
    return clean(bundle.manifest.get("release"))[:40]


CHECKS: list[tuple[str, Callable[[Bundle], Any]]] = [
    *(("digests", digests), ("signature", signature), ("deliveries", deliveries)),
    *(("inclusion", inclusion), ("checkpoint", signature), ("ledger", ledger)),
    ("rendered", rendered),
]

# --- what nothing proves --------------------------------------------------------------------------


NOT_ANEW = "that the log was not written anew: a checkpoint that left the shop before shows it"
COSIGNED = "that witnesses have cosigned the log"
PROFILES = "which profile reads which source, and how (sources.json, profile-N.toml)"


def unproven(bundle: Bundle) -> list[str]:
    """What of a bundle is only the word of whoever made it, however many steps passed. Of a bundle
    that is not in form nothing: a step has failed."""
    try:
        return [clean(sentence) for sentence in _unproven(bundle) if sentence]
    except (Wrong, *NOT_IN_FORM):
        return []


def _unproven(bundle: Bundle) -> list[str]:
    log, history = bundle.document("log.json"), bundle.document("history.json")
    deliveries = [bundle.document(f"delivery-{each['delivery_id']}.json")
                  for each in history["deliveries"]]  # fmt: skip
    bare = sum(not (each["body"] and each["body"]["file"] in bundle.members) for each in deliveries)
    unread = "what the bodies said, which are left out: claims, money, references"
    plain = sum(not (each["headers"] and each["headers"]["file"] in bundle.members)
                for each in deliveries)  # fmt: skip
    hidden = sum(each["leaf"] is None for each in log["leaves"])
    left_out = bundle.manifest["left_out"]
    answers = [each for each in bundle.document("sessions.json")
               if f"record-{each['record_id']}.details" in left_out]  # fmt: skip
    revisions = bundle.document("revisions.json")
    masked = sum(MASKED in json.dumps(each["because"], ensure_ascii=False) for each in revisions)
    keys = [name for name in bundle.members if name.startswith("key-")]
    return [
        "that nothing about the order was left out",
        NOT_ANEW,
        _cosigners(bundle),
        _of(bare, f"{unread} (history.json)", len(deliveries)),
        _of(plain, "method and headers (delivery-ID.json)", len(deliveries)),
        "address, verdict, signature and what it is over (delivery-ID.json)" if deliveries else "",
        "that key-FINGERPRINT.pem is the payment service's own key" if keys else "",
        "the answers of the payment service (sessions.json)" if answers else "",
        "lines of order books and settlement files (books.json)" if bundle.document("books.json")
        else "",
        "what the attached files show, and who made them: the log has when somebody of the shop "
        "attached them (attachments.json)" if attached(bundle) else "",
        "of which order a break is, to which a file was attached (attachments.json)"
        if any(each["about"] != "order" for each in attached(bundle)) else "",
        PROFILES if bundle.document("sources.json") else "",
        _of(masked, "why the shop's systems were told, where that is masked (revisions.json)",
            len(revisions)),
        "the shop's time limits (policy in history.json)",
        f"what the log says, where its entry is shown without its content ({hidden} of "
        f"{len(log['leaves'])}): something was sealed, and nobody can tell what" if hidden else "",
        f"not sealed yet, {len(log['unsealed'])}: {', '.join(log['unsealed'][:4])}"
        if log["unsealed"] else "",
    ]  # fmt: skip


def _cosigners(bundle: Bundle) -> str:
    """Who has cosigned the checkpoint, as it says itself: C2SP tlog-cosignature, whose signatures
    hold 8 bytes of a time more than others do."""
    lines = bundle.members.get("checkpoint.txt", b"").decode("utf-8", "replace").split("\n")
    words = [line.split(" ") for line in lines if line.startswith("\u2014 ")]
    names = [each[1] for each in words if len(each) == 3 and len(each[2]) == 104]
    if not names:
        return ""
    return (
        f"{COSIGNED}, as checkpoint.txt says of {', '.join(names)}: `tallyhook evidence verify "
        "--witness KEY` checks it with a key of theirs"
    )


def _of(count: int, what: str, whole: int) -> str:
    """Nothing where there is none; of how many, where it is not all."""
    return "" if not count else what if count == whole else f"{what}, of {count} of {whole}"


def steps_of(
    archive: bytes, checks: Sequence[tuple[str, Callable[[Bundle], Any]]]
) -> tuple[Bundle | None, list[VerifyStep]]:
    """Every step, until nothing is left to look at."""
    steps: list[VerifyStep] = []
    try:
        members = unpack(archive)
        steps.append(VerifyStep("archive", True, f"The ZIP is exactly its {len(members)} files."))
    except Wrong as error:
        return None, [VerifyStep("archive", False, f"This is no bundle as it was made: {error}.")]
    try:
        bundle = opened(members)
    except Wrong as error:
        return None, [*steps, VerifyStep("manifest", False, f"The manifest does not fit: {error}.")]
    count = len(members) - 2
    steps.append(
        VerifyStep("manifest", True, f"The manifest names exactly the {count} other files.")
    )
    return bundle, steps + [_step(name, check, bundle) for name, check in checks]


def _step(name: str, check: Callable[[Bundle], Any], bundle: Bundle) -> VerifyStep:
    try:
        found = check(bundle)
    except Wrong as error:
        said = str(error)
        if said.partition(" ")[0].isalpha():  # and no name of a file, nor an id
            said = said[:1].upper() + said[1:]
        return VerifyStep(name, False, f"{said}.")
    except NOT_IN_FORM as error:
        return VerifyStep(name, False, f"What it looks at is not in form: {type(error).__name__}.")
    return VerifyStep(name, True, found) if isinstance(found, str) else VerifyStep(name, *found)


def lines_of(steps: list[VerifyStep], not_proven: Sequence[str] = ()) -> list[str]:
    """The report: the verdict, what nothing proves, and a line for each step."""
    words = {True: "passed", False: "FAILED", None: "not checked"}
    told = [f"{_plain(each)}: {words[each.passed]}. {each.sentence}" for each in steps]
    lines = [verdict(steps)]
    if not_proven:
        lines.append("Not proven, and only the word of whoever made the bundle:")
        lines += [f"- {each}" for each in not_proven]
    return [*lines, *(f"{number}. {line}" for number, line in enumerate(told, 1))]


def _plain(step: VerifyStep) -> str:
    return step.name.replace("_", " ")


def verdict(steps: Sequence[VerifyStep]) -> str:
    """One sentence."""
    failed = ", ".join(_plain(each) for each in steps if each.passed is False)
    if failed:
        return f"DO NOT RELY ON IT: {failed} failed."
    left = ", ".join(_plain(each) for each in steps if each.passed is None)
    return (
        f"Everything that was checked holds; not checked: {left}." if left else "All of it holds."
    )


def main(words: list[str]) -> int:
    """Check the file that is named. Returns 0 if no step failed, 1 if one did, 2 without a file."""
    if len(words) != 1:
        sys.stderr.write("usage: python3 -I verify.py bundle.zip\n")
        return 2
    try:
        with open(words[0], "rb") as file:
            archive = file.read(MAX_BYTES + 1)
    except OSError as error:
        sys.stderr.write(f"{words[0]} cannot be read: {error.strerror}\n")
        return 2
    bundle, steps = steps_of(archive, CHECKS)
    not_proven = [] if bundle is None else unproven(bundle)
    sys.stdout.write("\n".join(lines_of(steps, not_proven)) + "\n")
    return 1 if any(passed is False for _, passed, _ in steps) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
