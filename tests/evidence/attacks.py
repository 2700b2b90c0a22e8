"""Single acts of a forger who has the shop's key: each changes one thing of a bundle."""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from app.evidence.seal import read_checkpoint, signed_checkpoint
from app.evidence.verify import MANIFEST, pack
from tests.evidence.conftest import (
    changed,
    in_manifest,
    refolded,
    written,
)
from tests.evidence.forger import (
    Forger,
    Tried,
    all_of,
    delivery,
    gone,
    of,
    of_event,
    of_leaf,
    record,
    revision,
    sealed_anew,
    updated,
)

KES = "KES"


def money(amount: str, currency: str = KES) -> dict[str, str]:
    return {"amount": amount, "currency": currency}


def dated(moment: str) -> Tried:
    def tried(forger: Forger) -> None:
        in_manifest(forger.members, as_of=moment)
        of("history.json", lambda history: history.update(as_of=moment), folded=True)(forger)

    return tried


def renamed(forger: Forger) -> None:
    for name in ("history.json", "sessions.json", "attachments.json"):
        forger.members[name] = forger.members[name].replace(b'"ORD-1"', b'"ORD-9"')
    in_manifest(forger.members, order="ORD-9")
    refolded(forger.members)


def key_of(reference: str) -> Tried:
    """Give the order's name a key of the forger's own, under which it is another's."""

    def tried(forger: Forger) -> None:
        key = bytes(32)
        of_ours = hmac.digest(key, reference.encode(), "sha256").hex()
        of("log.json", lambda log: log["order"].update(key=key.hex(), commitment=of_ours))(forger)

    return tried


def told_again(forger: Forger) -> None:
    """Open the leaf of a dispute with what it is to have said: its end."""
    of_event("disputed", claim="dispute_lost")(forger)
    heard = forger.doc("history.json")["deliveries"]
    event = next(each["event"] for each in heard if each["event"]["claim"] == "dispute_lost")
    name = next(each["delivery_id"] for each in heard if each["event"] == event)
    _, opened = sealed_anew(event, ("capture", "event_id", "movement", "order", "payment",
                                    "session"))  # fmt: skip
    of("log.json", lambda log: log["parts"].update({name: opened}))(forger)


def read_again(forger: Forger) -> None:
    """Append a leaf that says that the dispute was read otherwise, and open that one."""
    name = forger.delivery("disputed")
    of_event("disputed", claim="dispute_lost")(forger)
    heard = next(each for each in forger.doc("history.json")["deliveries"]
                 if each["delivery_id"] == name)  # fmt: skip
    parts, opened = sealed_anew(heard["event"], ("capture", "event_id", "movement", "order",
                                                 "payment", "session"))  # fmt: skip
    last = json.loads(forger.log[forger.own()[-1]])
    (index,) = forger.append({
        "kind": "reading", "salt": "0" * 32, "delivery": name, "parts": parts, "of": last["of"],
        "nth": last["nth"] + 1, "after": forger.own()[-1],
    })  # fmt: skip
    forger.prove([*forger.own(), index])

    def opens(log: Any) -> None:
        del log["parts"][name]
        log["parts"][f"reading:{name}:{index}"] = opened

    of("log.json", opens)(forger)


def moved(forger: Forger, *, back_to: str | None = None) -> None:
    """Append a leaf by which the refund is of another order, and leave the refund out."""
    name = forger.delivery("refunded")
    last = forger.own()[-1]
    gone(lambda _: name, leaves=False)(forger)
    (index,) = forger.append({
        "kind": "reading", "salt": "0" * 32, "delivery": name, "parts": None,
        "of": back_to or "ab" * 32, "nth": 1, "after": None,
    })  # fmt: skip
    assert index > last
    forger.prove([*forger.own(), index])


def our_commitment(forger: Forger) -> str:
    return str(forger.doc("log.json")["order"]["commitment"])


def other_orders_leaf(forger: Forger) -> None:
    """Show a leaf of the other order's in the place of the refund's."""
    others = {*range(len(forger.log))} - {*forger.own()}
    other = max(each for each in others if json.loads(forger.log[each])["kind"] == "revision")
    wanted = forger.delivery("refunded")
    gone(lambda _: wanted)(forger)
    forger.prove([*forger.own(), other])


def entry_repeated(forger: Forger) -> None:
    """Append the very leaf of a revision again, and show both."""
    index = forger.index(revision(0)(forger))
    (again,) = forger.append(json.loads(forger.log[index]))
    forger.prove([*forger.own(), again])


def invented(kind: str) -> Tried:
    """Append a leaf of something that never was, behind the order's last, and show that."""

    def tried(forger: Forger) -> None:
        last = json.loads(forger.log[forger.own()[-1]])
        placed = {"of": last["of"], "nth": last["nth"] + 2, "after": forger.own()[-1]}
        made = {**last, **placed, "kind": kind, "id": "rec_made" if kind == "record" else 99}
        forger.prove([*forger.own(), *forger.append(made)])

    return tried


def other_tree(**said: Any) -> Tried:
    return of("log.json", lambda log: log["tree"].update(said))


def tree_of_less(forger: Forger, *, beyond: int = 0) -> None:
    """Leave out what came last, and append a tree that counts less and is dated as the true one.

    beyond  how many of the last leaves that the tree counts it says that it is not of
    """
    last = forger.index(forger.doc("log.json")["tree"]["leaf"])
    tree = json.loads(forger.log[last])
    shown = [each for each in forger.own() if each < forger.index(delivery("disputed")(forger))]
    names = [delivery("disputed"), delivery("dispute_won"), revision(-1), revision(-2)]
    gone(*names)(forger)
    of_ours = our_commitment(forger)
    entry = {"last": shown[-1], "leaves": len(shown), "of": of_ours}
    root = hashlib.sha256(b"\0" + written(entry)).hexdigest()
    (index,) = forger.append({**tree, "id": 2, "root": root, "size": shown[-1] + 1 - beyond})
    forger.prove([*shown, index])
    said = {"leaf": "orders:2", "leaves": len(shown), "last": shown[-1], "path": []}
    of("log.json", lambda log: log.update(tree=said))(forger)


def checkpoint(change: Callable[[Any], Any]) -> Tried:
    """Sign another checkpoint with the shop's key."""

    def tried(forger: Forger) -> None:
        found = read_checkpoint(forger.members["checkpoint.txt"].decode())
        forger.members["checkpoint.txt"] = signed_checkpoint(forger.key, change(found)).encode()

    return tried


def note(change: Callable[[bytes], bytes], name: str = "checkpoint.txt") -> Tried:
    return lambda forger: forger.members.update({name: change(forger.members[name])})


def signed_as(change: Callable[[bytes], bytes]) -> Tried:
    return lambda forger: setattr(forger, "signed_as", change)


def manifest(change: Callable[[Any], object], *, listed: bool = False) -> Tried:
    def tried(forger: Forger) -> None:
        of(MANIFEST, change)(forger)
        forger.listed = listed

    return tried


def repacked(change: Callable[[bytes], bytes]) -> Tried:
    return lambda forger: setattr(forger, "packed", lambda members: change(pack(members)))


def named(change: Callable[[Any], object]) -> Tried:
    """Pack other files than were signed."""

    def tried(forger: Forger) -> None:
        def packed(members: Any) -> bytes:
            found = dict(members)
            change(found)
            return pack(found)

        forger.packed = packed

    return tried


def unrendered(*tried: Tried) -> Tried:
    def each_of(forger: Forger) -> None:
        forger.rendered = False
        all_of(*tried)(forger)

    return each_of


def added(name: str, more: bytes = b" Paid in full. ") -> Tried:
    return unrendered(note(lambda data: data + more, name))


def beside(name: str, data: bytes = b"Paid in full.") -> Tried:
    return lambda forger: forger.members.update({name: data})


def leaf_of(name: Callable[[Forger], str], text: Callable[[str], str]) -> Tried:
    """Show a leaf's text in another form."""
    return of_leaf(name, lambda each: each.update(leaf=text(each["leaf"])))


def other_proof(change: Callable[[list[str]], object]) -> Tried:
    return of_leaf(delivery("refunded"), lambda each: change(each["proof"]))


def reopened(name: Callable[[Forger], str], change: Callable[[Any], object]) -> Tried:
    """Make a change of what opens a leaf."""

    def tried(forger: Forger) -> None:
        of("log.json", lambda log: change(log["parts"][name(forger)]))(forger)

    return tried


def unsealed(name: Callable[[Forger], str]) -> Tried:
    """Take away the leaf of what is here, and call that not sealed yet."""

    def tried(forger: Forger) -> None:
        wanted = name(forger)

        def change(log: Any) -> None:
            log["leaves"] = [each for each in log["leaves"] if each["id"] != wanted]
            log["parts"].pop(wanted, None)
            log["unsealed"].append(wanted)

        of("log.json", change)(forger)

    return tried


def missing(name: str) -> Tried:
    return lambda forger: forger.members.pop(name)


def no_answer(forger: Forger) -> None:
    name = f"record-{record('session_opened')(forger)}.details"
    forger.members.pop(name, None)
    left = forger.doc(MANIFEST)["left_out"]
    left.pop(name, None)
    in_manifest(forger.members, left_out=left)


def unsigned(forger: Forger) -> None:
    in_manifest(forger.members, release="9.9")
    forger.signed = False


def leaf_without(*names: str) -> Tried:
    """Write the log anew from a revision's leaf on that lacks members."""

    def tried(forger: Forger) -> None:
        index = forger.index(revision(0)(forger))
        leaf = json.loads(forger.log[index])
        for name in names:
            del leaf[name]
        forger.log[index] = written(leaf).decode()
        forger.prove()

    return tried


def sessions(change: Callable[[Any], object]) -> Tried:
    return of("sessions.json", change)


def removed_anew(forger: Forger) -> None:
    """Say that the exhibit that stands was removed by the entry that removed the other."""

    def change(listed: Any) -> None:
        listed[0]["removed"] = listed[1]["removed"]
        listed[0].update(content=None, details=None)
        listed[1]["removed"] = None

    of("attachments.json", change)(forger)
    name = json.loads(forger.members["attachments.json"])[0]["attached"]["facts"]["attachment"]
    for file in [each for each in forger.members if each.startswith(f"attachment-{name}.")]:
        del forger.members[file]
    left = {file: said for file, said in forger.doc(MANIFEST)["left_out"].items()
            if not file.startswith(f"attachment-{name}.")}  # fmt: skip
    in_manifest(forger.members, left_out=left)


def other_exhibit(*, sealed: bool) -> Tried:
    """Put another file in the place of an exhibit, with its digest; with that of the audit entry,
    too, or without."""

    def tried(forger: Forger) -> None:
        listed = forger.doc("attachments.json")
        content = listed[0]["content"]
        if content is None:
            content = {"file": "attachment-x.pdf", "sha256": "", "size": 0}
        data = b"%PDF-1.7 signed for by nobody\nstartxref\n0\n%%EOF\n"
        content.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        listed[0].update(content=content, details=listed[0]["details"] or content)
        if sealed:
            listed[0]["attached"]["facts"].update(sha256=content["sha256"], size=len(data))
        forger.members[content["file"]] = data
        forger.put("attachments.json", listed)

    return tried


def body_of_another(forger: Forger, *, told: bool = True) -> None:
    """Change an amount in a body, and every digest of that body; in the history, too, or not."""
    name = forger.delivery("succeeded")
    file = f"delivery-{name}.body"
    data = forger.members.get(file, b"1500").replace(b"1500", b"1600")
    digest, size = hashlib.sha256(data).hexdigest(), len(data)
    stated = forger.doc(f"delivery-{name}.json")
    stated.update(sha256=digest)
    stated["body"] = {"file": file, "sha256": digest, "size": size}
    forger.put(f"delivery-{name}.json", stated)
    if file in forger.members:
        forger.members[file] = data
    else:
        left = forger.doc(MANIFEST)["left_out"]
        in_manifest(forger.members, left_out={**left, file: {"sha256": digest, "size": size}})

    def change(history: Any) -> None:
        heard = next(each for each in history["deliveries"] if each["delivery_id"] == name)
        heard["event"]["digest"] = digest

    if told:
        of("history.json", change, folded=True)(forger)


def other_body(forger: Forger) -> None:
    """Put another body in the place of the one that was read, which is stated as it was."""
    name = f"delivery-{forger.delivery('refunded')}"
    data = forger.members[f"{name}.body"] + b" "
    forger.members[f"{name}.body"] = data
    digest = hashlib.sha256(data).hexdigest()
    changed(f"{name}.json", updated({"sha256": digest, "size": len(data)}, "body"))(forger.members)


def repeated(
    change: Callable[[dict[str, Any], dict[str, Any]], object], *, leaf: bool = True
) -> Tried:
    """Make a change of the events that were redelivered, of which the first was pending and the
    second declined. Without `leaf`, leaves of redeliveries that are gone are not shown either."""

    def tried(forger: Forger) -> None:
        history = forger.doc("history.json")
        found = {each["event"]["claim"]: each for each in history["deliveries"]}
        before = {name for each in found.values() for name, _ in each.get("again", ())}
        change(found["pending"], found["declined"])
        left = {name for each in found.values() for name, _ in each.get("again", ())}
        for each in found.values():
            if not each.get("again", True):
                del each["again"]
        forger.put("history.json", history)
        refolded(forger.members)
        log = forger.doc("log.json")
        for name in before - left:
            del log["parts"][name]
        if not leaf:
            log["leaves"] = [each for each in log["leaves"] if each["id"] not in before - left]
        forger.put("log.json", log)

    return tried


def told_late(forger: Forger) -> None:
    """Let an event have come first with its redelivery, and again with its first delivery."""
    history = forger.doc("history.json")
    heard = next(each for each in history["deliveries"] if each["event"]["claim"] == "pending")
    first, began = heard["delivery_id"], heard["received_at"]
    later, came = heard["again"][0]
    for name in [MANIFEST, *(each for each in forger.members if first in each)]:
        data = forger.members.pop(name)
        if name.endswith(".json"):
            data = written(json.loads(data.replace(first.encode(), later.encode())))
        forger.members[name.replace(first, later)] = data
    heard.update(delivery_id=later, received_at=came)
    heard["again"][0] = [first, began]
    forger.put("history.json", history)
    changed(f"delivery-{later}.json", updated({"received_at": came}))(forger.members)
    refolded(forger.members)


def note_of_exhibit(data: bytes) -> Tried:
    def tried(forger: Forger) -> None:
        forger.members[forger.doc("attachments.json")[0]["content"]["file"]] = data

    return tried


def note_of_answer(data: bytes) -> Tried:
    """Let the payment service have answered otherwise, in the file as in the list."""

    def tried(forger: Forger) -> None:
        forger.members[f"record-{record('session_opened')(forger)}.details"] = data
        sessions(updated({"details": data.decode()}, 1))(forger)

    return tried


def swapped_bodies(forger: Forger) -> None:
    """Let the declined payment's body be the paid one's, and the other way round."""
    one, two = forger.delivery("declined"), forger.delivery("succeeded")
    first, second = (forger.doc(f"delivery-{each}.json") for each in (one, two))
    parts = ("sha256", "size")
    for name, mine, theirs in ((one, first, second), (two, second, first)):
        forger.put(f"delivery-{name}.json", mine | {part: theirs[part] for part in parts})
