"""Steps of `verify` on the log's entries. Use only Python 3.8."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple  # Python 3.8 has no dict[...]

from app.evidence.verify_archive import EPOCH, Bundle, arrivals, attached, micros, redated
from app.evidence.verify_forms import (
    LEAVES,
    MASKED,
    Wrong,
    canonical,
    in_form,
    read_json,
)

SEALED_WITHIN_S = 60
"""Maximum age of unsealed evidence, in seconds."""


# --- the log (RFC 9162) --------------------------------------------------------------------------


def root_of(found: bytes, index: int, size: int, proof: list[bytes]) -> bytes:
    """Compute a tree's root from an inclusion proof (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise Wrong("a proof names a leaf beyond the end of the log")
    place, last = index, size - 1
    for step in proof:
        if last == 0:
            raise Wrong("a proof is too long for the size of the log")
        if place & 1 or place == last:
            found = hashlib.sha256(b"\1" + step + found).digest()
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + step).digest()
        place, last = place >> 1, last >> 1
    if last:
        raise Wrong("a proof is too short for the size of the log")
    return found


def checkpoint_of(text: bytes) -> tuple[int, bytes]:
    """Return the size and the root hash that a checkpoint states (C2SP tlog-checkpoint)."""
    try:
        lines = text.decode("utf-8").split("\n")
        size, root = int(lines[1]), base64.b64decode(lines[2], validate=True)
        if str(size) == lines[1] and len(root) == 32:
            return size, root
        raise ValueError
    except (ValueError, IndexError):
        raise Wrong("checkpoint.txt does not contain a checkpoint") from None


def earlier_origins(log: dict[str, Any]) -> list[tuple[str, int]]:
    """Return each earlier origin of the log with its final number of leaves."""
    found = [(each["log"], each["leaves"]) for each in log.get("origins", ())]
    return [each for each in found if each[1] is not None]


DAY = 24 * 60 * 60 * 1_000_000

TEXTS = ("agreement", "capture", "event_id", "movement", "order", "payment", "reason", "session",
         "suggested")  # fmt: skip
"""Members of an event that are sealed as separate parts."""

PARTS_OF = {
    "record": ("author", "key", "order", "payment", "reason", "replaces", "session"),
    "revision": ("because", "substance"),
    "deed": ("facts", "reason", "subject", "who"),
}
"""Members that are separate parts in other leaves; all others are the part `said`."""


def inclusion(bundle: Bundle) -> tuple[bool | None, str]:
    """Check that the log contains every leaf (step 6)."""
    log, things = bundle.document("log.json"), bundle.once(_things)
    if not log["leaves"]:
        raise Wrong("log.json has no leaf: the log proves nothing in this bundle")
    size, root = checkpoint_of(bundle.members.get("checkpoint.txt", b""))
    last, masked, named = -1, 0, set()
    for each, leaf in bundle.once(_leaves):
        name, index, proof = each["id"], each["index"], map(bytes.fromhex, each["proof"])
        found = hashlib.sha256(b"\0" + each["leaf"].encode()).digest()
        if index <= last or root_of(found, index, size, list(proof)) != root:
            raise Wrong(
                f"the leaf of {name} is not in the log of the checkpoint, or is out of order"
            )
        if name in named:
            raise Wrong(f"two entries of the log have the name {name}")
        if name != _own_name(leaf, index):
            raise Wrong(f"the leaf of {name} contains another name than log.json")
        if name in things:  # where nothing is here, completeness says why
            masked += _compare(name, leaf, things[name], bundle)
        last = index
        named.add(name)
    for name in sorted(things.keys() - named - {*log["unsealed"]}):
        raise Wrong(f"{name} is missing from log.json")
    sealed_by = micros(bundle.manifest["as_of"]) - SEALED_WITHIN_S * 1_000_000
    counts = redated(bundle)
    for name in log["unsealed"]:
        if counts.get(name, things[name].leaf["at"]) < sealed_by:
            raise Wrong(
                f"{name} is not sealed, although it arrived long before the time of the bundle"
            )
    readings = {name for name in log["parts"] if _delivery_of(name) in things}
    for name in sorted(log["parts"].keys() - {*things, *readings}):
        raise Wrong(f"log.json has the salts of {name}, which is not in the bundle")
    late = f"; {len(log['unsealed'])} more parts are not sealed yet" if log["unsealed"] else ""
    said = "leaf is" if len(log["leaves"]) == 1 else "leaves are"
    said = f"{len(log['leaves'])} {said} in the log of {size} leaves{late}"
    if not masked:
        return True, f"{said}. The bundle agrees with the log."
    return None, (
        f"{said}. The bundle agrees with the log, except for {masked} masked parts, which cannot "
        "be compared."
    )


class _Thing(NamedTuple):
    leaf: dict[str, Any]
    document: dict[str, Any] | None = None


class _Things(dict):  # type: ignore[type-arg]  # of Python 3.8, where a base has no brackets
    def __setitem__(self, name: str, thing: _Thing) -> None:
        if name in self:
            raise Wrong(f"two parts of the bundle have the name {name}")
        super().__setitem__(name, thing)


def _things(bundle: Bundle) -> dict[str, _Thing]:
    history, things = bundle.document("history.json"), _Things()
    listed = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for name, at, each in arrivals(bundle):
        stated = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = {}
        if name == stated["delivery"]:  # headers of further ones are in the log alone
            parts = {part: stated[part]["sha256"] for part in ("headers", "whole") if stated[part]}
        things[name] = _Thing({
            "at": micros(at), "source": stated["source"], "body": stated["sha256"],
            "size": stated["size"], **parts,
        })  # fmt: skip
    for each in history["records"]:
        name, details = each["record_id"], listed.get(f"record-{each['record_id']}.details")
        document = each if details is None else {**each, "details": details["sha256"]}
        things[name] = _Thing({"at": micros(each["recorded_at"])}, document)
    for each in bundle.document("revisions.json"):
        things[f"revision:{each['seq']}"] = _Thing({"at": micros(each["at"])}, each)
    for each in attached(bundle):
        for deed in filter(None, (each["attached"], each["removed"])):
            things[f"deed:{deed['number']}"] = _Thing({"at": micros(deed["at"])}, deed)
    return things


def _opened(each: dict[str, Any]) -> Any:
    name, data = f"the leaf of {each['id']}", each["leaf"].encode()
    leaf = read_json(data, name)
    in_form(leaf, data, name, LEAVES.get(leaf["kind"]))
    if len(leaf.keys() & {"of", "nth", "after"}) not in (0, 3):
        raise Wrong(f"{name} must have either all of the members of, nth and after, or none")
    return leaf


def _leaves(bundle: Bundle) -> list[Any]:
    return [(each, _opened(each)) for each in bundle.document("log.json")["leaves"]]


def _own_name(leaf: dict[str, Any], index: int) -> str:
    if leaf["kind"] == "reading":
        return f"reading:{leaf['delivery']}:{index}"
    if leaf["kind"] in ("delivery", "record"):
        return str(leaf["id"])
    return f"{leaf['kind']}:{leaf['id']}"


def _delivery_of(name: str) -> str:
    return name.split(":")[1] if name.startswith("reading:") else name


def _compare(name: str, leaf: dict[str, Any], thing: _Thing, bundle: Bundle) -> int:
    for member, said in thing.leaf.items():
        away = member == "headers" and leaf[member] is None
        if leaf[member] != said and not away:
            raise Wrong(f"{name} differs from its leaf in the log: {member}")
    if thing.document is None:
        return 0
    if "of" not in leaf:
        raise Wrong(f"the leaf of {name} names no order")
    opened = bundle.document("log.json")["parts"].get(name)
    if opened is None:
        raise Wrong(f"log.json lacks the salts of {name}")
    digest, masked = _digest(thing.document, PARTS_OF[leaf["kind"]], opened, bundle)
    if digest != leaf["parts"]:
        raise Wrong(f"the content of {name} differs from its leaf in the log")
    return masked


# --- readings, and completeness -------------------------------------------------------------


def _shown(bundle: Bundle) -> dict[str, tuple[int, Any]]:
    return {each["id"]: (each["index"], leaf) for each, leaf in bundle.once(_leaves)}


def _digest(
    document: dict[str, Any], names: Sequence[str], opened: dict[str, Any], bundle: Bundle
) -> tuple[str, int]:
    parts: dict[str, Any] = {name: document[name] for name in names if name in document}
    parts["said"] = {name: document[name] for name in document if name not in names}
    hashes, masked = {}, 0
    if opened.keys() != parts.keys():
        raise Wrong("log.json has salts for other parts than the document has")
    for name, value in parts.items():
        part = opened[name]
        shown = canonical(value)
        hidden = bundle.manifest["redacted"] and name != "said" and MASKED.encode() in shown
        if "hash" in part and hidden:
            hashes[name] = part["hash"]
            masked += 1
        elif "salt" in part:
            part_document = {"part": name, "salt": part["salt"], "value": value}
            hashes[name] = hashlib.sha256(canonical(part_document)).hexdigest()
        else:
            raise Wrong(f"log.json lacks the salt of a document's part {name}")
    return hashlib.sha256(canonical(hashes)).hexdigest(), masked


class Readings(NamedTuple):
    """Ids of deliveries, by how well the log proves their events."""

    proved: list[str]
    """Deliveries whose whole event is proved."""
    masked: list[str]
    """Deliveries whose event is proved except for masked texts."""
    bare: list[str]
    """Deliveries that are not sealed yet."""
    several: list[str]
    """Deliveries for which the log has different events."""


def readings_of(bundle: Bundle) -> Readings:
    """Compare each event with its sealed event. Raise Wrong for differences."""
    log = bundle.document("log.json")
    sealed: dict[str, dict[str, Any]] = {}
    for name, (_, leaf) in bundle.once(_shown).items():
        if leaf["kind"] in ("delivery", "reading"):
            sealed.setdefault(_delivery_of(name), {})[name] = leaf["parts"]
    found = Readings([], [], [], [])
    for name, _, each in arrivals(bundle):
        known = sealed.get(name, {})
        opened = [leaf for leaf in known if leaf in log["parts"]]
        if not opened and name in log["unsealed"]:
            found.bare.append(name)
            continue
        if opened != [*known][-1:]:
            raise Wrong(
                f"log.json must have the salts of the last leaf of {name}, and no others of {name}"
            )
        digest, masked = _digest(each["event"], TEXTS, log["parts"][opened[0]], bundle)
        if digest != known[opened[0]]:
            raise Wrong(f"the event that was read from {name} differs from its leaf in the log")
        (found.masked if masked else found.proved).append(name)
        if len({digest for digest in known.values() if digest}) > 1:
            found.several.append(name)
    return found


def readings(bundle: Bundle) -> tuple[bool | None, str]:
    """Check that each delivery's event in the history equals the sealed event (step 7)."""
    found = bundle.once(readings_of)
    whole, good = sum(map(len, found[:3])), len(found.proved)
    if good == whole:
        return True, f"Events in history.json that equal the sealed event: {whole} of {whole}."
    return None, (
        f"Events in history.json that equal the sealed event: {good} of {whole}. "
        f"Equal except for masked texts: {len(found.masked)}. Not sealed yet: {len(found.bare)}."
    )


class Chain(NamedTuple):
    """Entries of the log that name the order."""

    entries: list[tuple[int, str]]
    """Index in the log and name of each entry."""
    others: list[str]
    """Parts of the bundle without such an entry."""
    moved: list[str]
    """Entries that a later entry assigns to another order."""
    tree: tuple[int, str] | None
    """Index and time of the leaf with the tree of all orders, or None."""


def order_chain(bundle: Bundle) -> Chain:
    """Return the log's entries for the order. Raise Wrong for a missing entry."""
    log, reference, shown = (
        bundle.document("log.json"),
        bundle.manifest["order"],
        bundle.once(_shown),
    )
    entries: list[tuple[int, str]] = []
    named: dict[str, list[Any]] = {}
    order = log["order"] or {"commitment": "", "key": None}
    of, key = order["commitment"], order["key"]
    said = reference.encode("utf-8", "surrogatepass")
    if key and hmac.new(bytes.fromhex(key), said, hashlib.sha256).hexdigest() != of:
        raise Wrong("the order's key does not produce the order's pseudonym in the log")
    if log["order"] and not key and MASKED not in reference:
        raise Wrong("the key that proves the order's pseudonym in the log is missing")
    # Revisions are of no other order: what names it where its key was erased, or is not shown.
    chains: dict[str, list[tuple[int, str]]] = {of: entries}
    chains.update({leaf["of"]: [] for _, leaf in shown.values()
                   if leaf["kind"] == "revision" and leaf["of"] != of})  # fmt: skip
    for name, (index, leaf) in sorted(shown.items(), key=lambda each: each[1][0]):
        named.setdefault(_delivery_of(name), []).append(leaf.get("of"))
        chain = chains.get(leaf.get("of", ""))
        if chain is not None and "of" in leaf:
            before = chain[-1][0] if chain else None
            if leaf["nth"] != len(chain) + 1 or leaf["after"] != before:
                raise Wrong(
                    f"entry {index} of the log does not follow this order's previous entry: an "
                    "entry is missing or was inserted"
                )
            chain.append((index, name))
    things = bundle.once(_things)
    if of and not entries and things.keys() - {*log["unsealed"]}:
        raise Wrong("no entry in log.json has the order's pseudonym")
    moved = []
    for ours, name in sorted({(ours, _delivery_of(name)) for ours, chain in chains.items()
                              for _, name in chain}):  # fmt: skip
        if name in things or _came_later(shown.get(name, (0, {}))[1], bundle):
            continue
        if named[name][-1] == ours:
            raise Wrong(
                f"the log has the entry {name} of this order, but the bundle does not contain it"
            )
        moved.append(name)
    if entries and entries[-1][1] not in things and _came_later(shown[entries[-1][1]][1], bundle):
        raise Wrong("the newest entry of this order is newer than the time of the bundle")
    others = [name for name in things if of not in named.get(name, ())]
    tree = _tree(log["tree"], of, shown, bundle) if log["tree"] else None
    if tree:
        counted = [index for index, _ in entries if index < shown[log["tree"]["leaf"]][1]["size"]]
        if (len(counted), counted[-1:]) != (log["tree"]["leaves"], [log["tree"]["last"]]):
            raise Wrong(
                "the bundle's entries of this order differ from those in the tree of all orders"
            )
    day = micros(bundle.manifest["as_of"]) // DAY
    made = shown[log["tree"]["leaf"]][1]["at"] // DAY if tree else 0
    if entries and made < day and (shown[entries[0][1]][1].get("at") or 0) // DAY < day:
        raise Wrong(
            "the tree of all orders lacks this order, although the order is older than the "
            "bundle's day"
        )
    return Chain(entries, sorted({*others} - {*log["unsealed"]}), moved, tree)


def _tree(
    sealed: dict[str, Any], of: str, shown: dict[str, tuple[int, Any]], bundle: Bundle
) -> tuple[int, str]:
    index, leaf = shown[sealed["leaf"]]
    entry = {"last": sealed["last"], "leaves": sealed["leaves"], "of": of}
    found, below = hashlib.sha256(b"\0" + canonical(entry)).digest(), 256
    for shared, other in sealed["path"]:
        side = bytes.fromhex(other)
        one = int(of, 16) >> (255 - shared) & 1
        both = side + found if one else found + side
        found = hashlib.sha256(b"\1" + bytes([shared]) + both).digest()
        if shared >= below:
            raise Wrong("the order's proof in the tree of all orders is out of order")
        below = shared
    if found.hex() != leaf.get("root"):
        raise Wrong("the order's proof does not lead to the root of the tree of all orders")
    moment = EPOCH + timedelta(
        microseconds=min(leaf["at"], micros(bundle.manifest["as_of"]))
    )  # what came later than the bundle's instant is only counted
    return index, moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _came_later(leaf: dict[str, Any], bundle: Bundle) -> bool:
    return bool((leaf.get("at") or 0) > micros(bundle.manifest["as_of"]))


def completeness(bundle: Bundle) -> tuple[bool | None, str]:
    """Check the order's log entries for completeness (step 8)."""
    found = bundle.once(order_chain)
    if not found.entries:
        return (
            None,
            "The bundle lacks the key that proves the order's pseudonym in the log, so the order's "
            "entries cannot be counted.",
        )
    said = (
        f"The bundle contains the log's entries 1 to {len(found.entries)} for this order without "
        "a gap"
    )
    if found.tree:
        said += f", including all that the tree of all orders of {found.tree[1]} counts"
    key = bundle.document("log.json")["order"]["key"]
    return (True, f"{said}.") if key else (None, f"{said}; its reference is masked.")
