"""The steps of `verify` that look at the log: each thing has its entry, what was read is what was
sealed, and of the order none is missing.

Python 3.8 and the standard library alone, and in every bundle: there it is a part of verify.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any, NamedTuple  # Python 3.8 has no dict[...]

from app.evidence.verify_archive import EPOCH, Bundle, attached, micros
from app.evidence.verify_forms import MASKED, Wrong, canonical, read_json

SEALED_WITHIN_S = 60
"""Seconds before the bundle's instant in which something may have come and not be sealed yet:
sealing takes some moments, and making a bundle waits for it."""


# --- the log (RFC 9162) --------------------------------------------------------------------------


def root_of(found: bytes, index: int, size: int, proof: list[bytes]) -> bytes:
    """Return the root over `size` leaves with this leaf hash at `index`: RFC 9162, section
    2.1.3.2."""
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
    """Return size and root of a checkpoint (C2SP tlog-checkpoint): its second and third line."""
    try:
        lines = text.decode("utf-8").split("\n")
        size, root = int(lines[1]), base64.b64decode(lines[2], validate=True)
        if str(size) == lines[1] and len(root) == 32:
            return size, root
        raise ValueError
    except (ValueError, IndexError):
        raise Wrong("checkpoint.txt is not a checkpoint") from None


def earlier_origins(log: dict[str, Any]) -> list[tuple[str, int]]:
    """Return each origin that the log had before, and of how many leaves; none for most logs."""
    found = [(each["log"], each["leaves"]) for each in log.get("origins", ())]
    earlier = [each for each in found if each[1] is not None]
    if not all(type(name) is str and type(leaves) is int for name, leaves in earlier):
        raise Wrong("log.json names origins of the log that are not in form")
    return earlier


def inclusion(bundle: Bundle) -> tuple[bool | None, str]:
    """Check, in step 6, that every leaf is in the log, in its order, and says what the files here
    say."""
    log, things = bundle.document("log.json"), _things(bundle)
    if not log["leaves"]:
        raise Wrong("log.json has no leaf: nothing here is proved by the log")
    size, root = checkpoint_of(bundle.members.get("checkpoint.txt", b""))
    earlier_origins(log)
    last, hidden, named = -1, 0, set()
    for each in log["leaves"]:
        name, index, proof = each["id"], each["index"], map(bytes.fromhex, each["proof"])
        if index <= last or root_of(bytes.fromhex(each["hash"]), index, size, list(proof)) != root:
            raise Wrong(f"the leaf of {name} is not in the log of the checkpoint, or out of order")
        if name in named:
            raise Wrong(f"two entries of the log have the name {name}")
        if each["leaf"] is None and bundle.manifest["redacted"]:
            hidden += 1
        else:
            leaf = _opened(each)
            if name != _own_name(leaf, index):
                raise Wrong(f"the leaf of {name} is of something else")
            if name in things:  # where nothing is here, completeness says why
                _compare(name, leaf, things[name])
        last = index
        named.add(name)
    for name in sorted(things.keys() - named - {*log["unsealed"]}):
        raise Wrong(f"{name} is not both here and in the log")
    for name in log["unsealed"]:
        thing = things[name]
        came = thing.get("received_at") or thing.get("recorded_at") or thing["at"]
        if micros(bundle.manifest["as_of"]) - micros(came) > SEALED_WITHIN_S * 1_000_000:
            raise Wrong(f"{name} came long before the bundle's instant and was not sealed")
    late = f"; not sealed yet: {len(log['unsealed'])} more" if log["unsealed"] else ""
    said = "leaf lies" if len(log["leaves"]) == 1 else "leaves lie"
    said = f"{len(log['leaves'])} {said} in the log of {size}"
    if not hidden:
        return True, f"{said}{late}."
    rest = f"here as a hash alone, for it holds personal data: {hidden}"
    return None, f"{said}; {rest}, of which only that something was sealed is proved{late}."


class _Things(dict):  # type: ignore[type-arg]  # of Python 3.8, where a base has no brackets
    """Things by name. None is given twice: a made-up one would stand behind a sealed one."""

    def __setitem__(self, name: str, thing: dict[str, Any]) -> None:
        if name in self:
            raise Wrong(f"two things here have the name {name}")
        super().__setitem__(name, thing)


def _things(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Return everything here that must have a leaf, by its name there, with what the leaf must
    say."""
    history, things = bundle.document("history.json"), _Things()
    names = "at recorded_at source key session payment expires_at reason author replaces"
    names += " free dated"
    listed = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for each in history["deliveries"]:
        stated = bundle.document(f"delivery-{each['delivery_id']}.json")
        parts = {name: stated[name]["sha256"] for name in ("headers", "whole") if stated[name]}
        things[stated["delivery"]] = {
            "kind": "delivery", "id": stated["delivery"], "received_at": stated["received_at"],
            "source": stated["source"], "body": stated["sha256"], "size": stated["size"], **parts,
        }  # fmt: skip
    for each in history["records"]:
        money, details = each.get("money"), listed.get(f"record-{each['record_id']}.details")
        tenders = [
            [tender["kind"], int(tender["amount"].replace(".", ""))]
            for tender in each.get("tenders", ())
        ]
        things[each["record_id"]] = {
            "kind": "record", "id": each["record_id"], "record": each["kind"],
            "currency": money and money["currency"],
            "amount": money and str(int(money["amount"].replace(".", ""))),
            **({} if details is None else {"details": details["sha256"]}),
            "tenders": json.dumps(tenders, separators=(",", ":")) if tenders else None,
            **{name: each.get(name) for name in names.split()},
        }  # fmt: skip
    for each in bundle.document("revisions.json"):
        said = {name: each[name] for name in ("outcome", "at", "fulfillable", "before")}
        because = json.dumps(each["because"], ensure_ascii=False)
        if not bundle.manifest["redacted"] or MASKED not in because:
            said["because"] = hashlib.sha256(because.encode("utf-8", "surrogatepass")).hexdigest()
        said.update(kind="revision", id=each["seq"])
        things[f"revision:{each['seq']}"] = said
    for each in attached(bundle):
        things[f"deed:{each['deed']}"] = {
            "kind": "deed", "id": each["deed"], "at": each["at"], "action": "attached",
            "subject": each["subject"],
            "facts": hashlib.sha256(each["facts"].encode("utf-8", "surrogatepass")).hexdigest(),
        }  # fmt: skip
    return things


def _opened(each: dict[str, Any]) -> Any:
    """Return what a leaf says, which must be what was hashed."""
    data = (each["leaf"] or "").encode()
    if hashlib.sha256(b"\0" + data).hexdigest() != each["hash"]:
        raise Wrong(f"the leaf of {each['id']} is not the one that was hashed")
    return read_json(data, "a leaf")


def _own_name(leaf: dict[str, Any], index: int) -> str:
    """Return a leaf's name, which follows from what it says: another's name would hide it."""
    if leaf["kind"] == "reading":
        return f"reading:{leaf['delivery']}:{index}"
    if leaf["kind"] in ("delivery", "record"):
        return str(leaf["id"])
    return f"{leaf['kind']}:{leaf['id']}"


def _compare(name: str, leaf: dict[str, Any], thing: dict[str, Any]) -> None:
    """Raise Wrong where a leaf says otherwise than the files, moments in microseconds. For a record
    and a revision it names the order by a commitment, which completeness compares."""
    for member, said in thing.items():
        wanted = micros(said) if said and member.endswith("at") else said
        away = member == "headers" and leaf.get(member) is None
        if leaf.get(member) != wanted and not away:
            raise Wrong(f"the log says otherwise of {name}: {member}")
    if thing["kind"] in ("record", "revision") and "of" not in leaf:
        raise Wrong(f"the log names no order of {name}")


# --- what was read, and whether all is here ------------------------------------------------------

TEXTS = ("capture", "event_id", "movement", "order", "payment", "reason", "session")
"""Parts of what was read that are a text each; the part `said` is all the rest."""


def _shown(bundle: Bundle) -> dict[str, tuple[int, Any]]:
    """Return number and content of each leaf that is shown with its content, by its name."""
    leaves = bundle.document("log.json")["leaves"]
    return {each["id"]: (each["index"], _opened(each)) for each in leaves if each["leaf"]}


class Readings(NamedTuple):
    """Deliveries by how far what was read of them is proved: `proved`; but for masked texts
    (`masked`); not at all (`bare`). `several` were read in several ways: only the body tells which
    is right."""

    proved: list[str]
    masked: list[str]
    bare: list[str]
    several: list[str]


def readings_of(bundle: Bundle) -> Readings:
    """Compare what the history says of each delivery with what was sealed. Raise Wrong."""
    sealed: dict[str, list[Any]] = {}
    for name, (_, leaf) in sorted(_shown(bundle).items(), key=lambda each: each[1][0]):
        if "reading" in leaf:
            sealed.setdefault(leaf.get("delivery", name), []).append(leaf["reading"])
    known = bundle.document("log.json")["readings"]
    found = Readings([], [], [], [])
    for each in bundle.document("history.json")["deliveries"]:
        name, opened = each["delivery_id"], known.get(each["delivery_id"])
        if opened is None or name not in sealed:
            found.bare.append(name)
            continue
        if _reading(each["event"], opened, bundle) not in sealed[name]:
            raise Wrong(f"the log says otherwise of {name}: what was read of it")
        masked = any("hash" in part for part in opened.values())
        (found.masked if masked else found.proved).append(name)
        if len([digest for digest in sealed[name] if digest]) > 1:
            found.several.append(name)
    return found


def _reading(event: dict[str, Any], opened: dict[str, Any], bundle: Bundle) -> str:
    """Return the digest of what was read: each part's commitment, for a masked one as it is
    given."""
    parts: dict[str, Any] = {name: event[name] for name in TEXTS if name in event}
    parts["said"] = {name: event[name] for name in event if name not in TEXTS}
    hashes = {}
    for name, value in parts.items():
        part = opened.get(name, {})
        if "hash" in part and name != "said" and MASKED in value and bundle.manifest["redacted"]:
            hashes[name] = part["hash"]
        else:
            part_document = {"part": name, "salt": part.get("salt"), "value": value}
            hashes[name] = hashlib.sha256(canonical(part_document)).hexdigest()
    return hashlib.sha256(canonical(hashes)).hexdigest()


def readings(bundle: Bundle) -> tuple[bool | None, str]:
    """Check, in step 7, that what the history says of each delivery is what was sealed of it."""
    found = readings_of(bundle)
    whole, good = sum(map(len, found[:3])), len(found.proved)
    if good == whole:
        return True, f"What the history says of {whole} is what was sealed."
    return None, (
        f"What the history says of {good} of {whole} is what was sealed; but for texts that are "
        f"masked, of {len(found.masked)} more; of {len(found.bare)} nothing shows it."
    )


class Chain(NamedTuple):
    """The log's entries that name the order.

    entries  those here: number and name, by which of the order's they are
    whole    how many there are, by the last of them and by the tree
    others   deliveries, records and revisions here that no such entry is of
    moved    whose entry is here alone, since a later entry names another order for them
    tree     which leaf seals the tree of all orders that counts them, and when; None without one
    """

    entries: dict[int, tuple[int, str]]
    whole: int
    others: list[str]
    moved: list[str]
    tree: tuple[int, str] | None


def order_chain(bundle: Bundle) -> Chain:
    """Return the chain. Raise Wrong where an entry is missing, or what it is of is left out."""
    log, reference, shown = bundle.document("log.json"), bundle.manifest["order"], _shown(bundle)
    entries: dict[int, tuple[int, str]] = {}
    named: dict[str, list[Any]] = {}
    order = log["order"] or {"commitment": "", "key": None}
    of, key = order["commitment"], order["key"]
    said = reference.encode("utf-8", "surrogatepass")
    if key and hmac.new(bytes.fromhex(key), said, hashlib.sha256).hexdigest() != of:
        raise Wrong("the order's key does not give the name by which the log calls it")
    if log["order"] and not key and MASKED not in reference:
        raise Wrong("the key that gives the name by which the log calls the order is missing")
    for name, (index, leaf) in sorted(shown.items(), key=lambda each: each[1][0]):
        named.setdefault(leaf.get("delivery", name), []).append(leaf.get("of"))
        if of and leaf.get("of") == of:
            entries[leaf["nth"]] = (index, name)
    sealed = log["tree"] or {"leaves": 0}
    whole, hidden = max([*entries, sealed["leaves"]]), len(log["leaves"]) - len(shown)
    if whole - len(entries) > hidden:
        raise Wrong(f"of entries 1 to {whole} of the log for this order not all are here")
    things = _things(bundle)
    moved = []
    for name in sorted({shown[name][1].get("delivery", name) for _, name in entries.values()}):
        if name in things or _came_later(shown.get(name, (0, {}))[1], bundle):
            continue
        if named[name][-1] == of:
            raise Wrong(f"the log has an entry of this order, {name}, of which nothing is here")
        moved.append(name)
    # Entries of the audit trail name what they are about themselves.
    owned = [name for name, thing in things.items() if thing["kind"] != "deed"]
    others = [name for name in owned if of not in named.get(name, ())]
    tree = _tree(sealed, of, shown, bundle) if log["tree"] else None
    if tree and entries.get(sealed["leaves"], (sealed["last"], ""))[0] != sealed["last"]:
        raise Wrong("the tree of all orders counts other entries of this order than are here")
    return Chain(entries, whole, sorted({*others} - {*log["unsealed"]}), moved, tree)


def _tree(
    sealed: dict[str, Any], of: str, shown: dict[str, tuple[int, Any]], bundle: Bundle
) -> tuple[int, str]:
    """Return number and time of the leaf that seals the tree, to whose root the order's entry
    leads: up from where its name parts from those of others, after so many bits."""
    index, leaf = shown[sealed["leaf"]]
    entry = {"last": sealed["last"], "leaves": sealed["leaves"], "of": of}
    found, below = hashlib.sha256(b"\0" + canonical(entry)).digest(), 256
    for shared, other in sealed["path"]:
        side = bytes.fromhex(other)
        one = int(of, 16) >> (255 - shared) & 1
        both = side + found if one else found + side
        found = hashlib.sha256(b"\1" + bytes([shared]) + both).digest()
        if shared >= below:
            raise Wrong("the order's entry does not lead upwards in the tree of all orders")
        below = shared
    if leaf["kind"] != "orders" or found.hex() != leaf["root"]:
        raise Wrong("the order's entry does not lead to the root of the tree of all orders")
    if _came_later(leaf, bundle):
        raise Wrong("the tree of all orders is dated later than the bundle")
    moment = EPOCH + timedelta(microseconds=leaf["at"])
    return index, moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _came_later(leaf: dict[str, Any], bundle: Bundle) -> bool:
    """Return whether what a leaf seals came later than the bundle's instant."""
    came = leaf.get("received_at") or leaf.get("recorded_at") or leaf.get("at") or 0
    return bool(came > micros(bundle.manifest["as_of"]))


def completeness(bundle: Bundle) -> tuple[bool | None, str]:
    """Check, in step 8, that the log's entries for the order are all here."""
    found = order_chain(bundle)
    if not found.whole:
        return (
            None,
            "The key by which entries of the log name the order is not here: none can be counted.",
        )
    said = f"Entries 1 to {found.whole} of the log for this order are all here"
    if len(found.entries) < found.whole:
        return None, f"{said}, {found.whole - len(found.entries)} of them maybe as a hash alone."
    if found.tree:
        said += f", with all that the tree of all orders of {found.tree[1]} counts"
    key = bundle.document("log.json")["order"]["key"]
    return (True, f"{said}.") if key else (None, f"{said}; its reference is masked.")
