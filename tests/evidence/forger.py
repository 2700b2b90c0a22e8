"""A forger who holds the shop's key and its whole log: the world that bundles are forged in, and
what such a person can do.

Each forgery hangs together as well as its maker can: documents are written anew, what follows from
them is rendered again, leaves are proved in a log that goes on from the one that the reader knows,
and all of it is signed with the shop's key.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.evidence.attachments import AttachRequest, attach, detach
from app.evidence.bundle import ABOUT
from app.evidence.keys import EvidenceKey, minisign_signature
from app.evidence.seal import (
    Checkpoint,
    NotACheckpoint,
    open_signer,
    read_checkpoint,
    seal_all,
    seal_orders,
    signed_checkpoint,
)
from app.evidence.verify import (
    MANIFEST,
    NOT_IN_FORM,
    SIGNATURE,
    Bundle,
    Wrong,
    pack,
    unpack,
)
from app.evidence.verify_evidence import rendered_again
from app.orders.refold import refold_until_quiet
from app.sealing import log_store
from reconcile.instants import DAY, MINUTE
from reconcile.transparency import merkle
from tests.api.driving import Driver, driving, event
from tests.evidence.conftest import Members, build, changed, in_manifest, refolded, written
from tests.evidence.world import CUSTOMER, PHONE, open_session
from tests.reconcile.build import T

PDF = b"%PDF-1.7 the parcel was signed for\nstartxref\n0\n%%EOF\n"
NOTE = b"The parcel came back."


@dataclass(frozen=True)
class ForgersWorld:
    """Bundles of ORD-1 in a log with ORD-2, all leaves of that log, and the key that signed them.

    note  the checkpoint that left the shop
    """

    full: bytes
    redacted: bytes
    log: tuple[str, ...]
    note: str
    key: EvidenceKey


async def forgers_world(folder: Path) -> ForgersWorld:
    """Live through an order's sessions, payments, redeliveries, refund, dispute, exhibits and
    days."""
    async with driving(folder, with_worker=False, looking=True) as driver:
        context = driver.context
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await open_session(context)
        other: Any = {"session": {"reference": "cs_2"}, "payment": {"reference": "pay_2"}}
        pending = event("e1", "pending", customer=CUSTOMER)
        declined = event("e2", "declined", payment={"reference": "pay_0", "reason": f"not {PHONE}"},
                         customer=CUSTOMER)  # fmt: skip
        for minute, each in enumerate((
            pending,
            event("o1", "pending", order=None, **other),
            declined,
            event("e3", customer=CUSTOMER),
            event("o2", order={"reference": "ORD-2"}, **other),
            event("e4", "refunded", refund={"reference": "re_1", "amount": 500}),
            pending, pending, declined,
        )):  # fmt: skip
            driver.clock.put(T + minute * MINUTE)
            await driver.send(each)
            await _sealed(driver)
        for content, name in ((PDF, "slip.pdf"), (NOTE, "note.txt")):
            given: Any = {"about": "order", "subject": "ORD-1", "kind": "delivery", "note": ""}
            asked = AttachRequest(**given, name=name, content=content, by=None)
            last = await attach(context, asked)
        await detach(context, last.record.attachment_id, reason="of another parcel", by=None)
        await _sealed(driver)
        driver.clock.put(T + DAY)
        await driver.send(event("e5", "disputed", refund={"reference": "dp_1", "amount": 1000}))
        await _sealed(driver)
        assert await seal_orders(context)
        await _sealed(driver)
        driver.clock.put(T + DAY + MINUTE)
        await driver.send(event("e6", "dispute_won", refund={"reference": "dp_1"}))
        await _sealed(driver)
        redacted = await build(driver, as_of=None)
        full = await build(driver, as_of=None, reason="dispute 12", attachments=True)
        note = unpack(full)["checkpoint.txt"].decode()
        async with context.database.reading() as connection:
            leaves = await log_store.leaves_after(connection, 0, limit=1_000)
        key = (await open_signer(context)).key
    log = tuple(each.document for each in leaves[: read_checkpoint(note).size])
    return ForgersWorld(full=full, redacted=redacted, log=log, note=note, key=key)


async def _sealed(driver: Driver) -> None:
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    await seal_all(driver.context, await open_signer(driver.context))


# --- what a forger can do -------------------------------------------------------------------------


@dataclass
class Forger:
    """A forger at work on one bundle, whose files are `members`.

    log        the leaves as they are to be; what the reader knows is the log as it was
    listed     whether the manifest lists the files as they are
    signed     whether the manifest is signed again
    rendered   whether what follows from the rest is rendered again
    signed_as  what is done to the manifest before it is signed
    packed     what makes the archive of the files
    """

    members: Members
    log: list[str]
    key: EvidenceKey
    honest: int = 0
    listed: bool = True
    rendered: bool = True
    signed: bool = True
    signed_as: Callable[[bytes], bytes] = bytes
    packed: Callable[[Members], bytes] = pack

    def __post_init__(self) -> None:
        self.honest = len(self.log)

    def bundle(self) -> bytes:
        """Return the forged bundle, signed with the shop's key."""
        members = self.members
        manifest = json.loads(members[MANIFEST])
        if self.rendered:
            with suppress(Wrong, *NOT_IN_FORM):
                members |= rendered_again(Bundle(members, manifest))
        if self.listed:
            manifest["files"] = {
                name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
                for name, data in members.items()
                if name not in (MANIFEST, SIGNATURE)
            }
        members[MANIFEST] = self.signed_as(written(manifest))
        if self.signed:
            signature = minisign_signature(
                self.key, members[MANIFEST], comment="forged", about=ABOUT
            )
            members[SIGNATURE] = signature.encode()
        return self.packed(members)

    def doc(self, name: str) -> Any:
        """Return a document; what is changed in it counts once it is put."""
        return json.loads(self.members[name])

    def put(self, name: str, document: Any) -> None:
        self.members[name] = written(document)

    def delivery(self, claim: str) -> str:
        """Return the id of the delivery that made a claim."""
        found = self.doc("history.json")["deliveries"]
        return str(next(e["delivery_id"] for e in found if e["event"]["claim"] == claim))

    def redelivery(self, claim: str) -> str:
        """Return the id of the first redelivery of the event that made a claim."""
        found = self.doc("history.json")["deliveries"]
        return str(next(e["again"][0][0] for e in found if e["event"]["claim"] == claim))

    def own(self) -> list[int]:
        """Return the indices of the leaves that the bundle shows."""
        return [each["index"] for each in self.doc("log.json")["leaves"]]

    def index(self, name: str) -> int:
        """Return the index of the leaf of this name."""
        leaves = self.doc("log.json")["leaves"]
        return int(next(each["index"] for each in leaves if each["id"] == name))

    def hashes(self) -> list[merkle.Hash]:
        return [merkle.leaf_hash(each.encode()) for each in self.log]

    def append(self, *leaves: dict[str, Any]) -> list[int]:
        """Add leaves to the log, and return their indices."""
        first = len(self.log)
        self.log += [written(each).decode() for each in leaves]
        return list(range(first, len(self.log)))

    def prove(self, shown: Iterable[int] | None = None) -> None:
        """Show these leaves, or those shown now, with proofs under a head of the log as it is."""
        hashes, note = self.hashes(), read_checkpoint(self.members["checkpoint.txt"].decode())
        span = (0, len(hashes))
        head = merkle.span_hash(span, lambda node: _node(hashes, node))
        checkpoint = Checkpoint(origin=note.origin, size=len(hashes), head=head)
        self.members["checkpoint.txt"] = signed_checkpoint(self.key, checkpoint).encode()
        log = self.doc("log.json")
        log["leaves"] = [
            {
                "id": name_of(json.loads(self.log[index]), index), "index": index,
                "leaf": self.log[index],
                "proof": [
                    merkle.span_hash(each, lambda node: _node(hashes, node)).hex()
                    for each in merkle.inclusion_spans(index, size=len(hashes))
                ],
            }
            for index in sorted(self.own() if shown is None else shown)
        ]  # fmt: skip
        self.put("log.json", log)

    def consistency(self) -> tuple[bytes, ...]:
        """Return what proves that the log goes on from the one that the reader knows."""
        hashes = self.hashes()
        try:
            size = read_checkpoint(self.members["checkpoint.txt"].decode()).size
        except (KeyError, NotACheckpoint):
            return ()
        if not self.honest < size <= len(hashes):
            return ()
        spans = merkle.consistency_spans(self.honest, size=size)
        return tuple(merkle.span_hash(each, lambda node: _node(hashes, node)) for each in spans)


def _node(hashes: list[merkle.Hash], node: tuple[int, int]) -> merkle.Hash:
    level, place = node
    return merkle.subtree_hash(hashes[place << level : (place + 1) << level])


def name_of(leaf: dict[str, Any], index: int) -> str:
    """Return a leaf's name, as the log has it."""
    if leaf["kind"] == "reading":
        return f"reading:{leaf['delivery']}:{index}"
    return leaf["id"] if leaf["kind"] in ("delivery", "record") else f"{leaf['kind']}:{leaf['id']}"


def sealed_anew(document: dict[str, Any], names: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Return a digest of a document's parts, and what opens it."""
    parts = {name: document[name] for name in names if name in document}
    parts["said"] = {name: value for name, value in document.items() if name not in parts}
    hashes = {
        name: hashlib.sha256(written({"part": name, "salt": "0" * 32, "value": value})).hexdigest()
        for name, value in parts.items()
    }
    opened = {name: {"salt": "0" * 32} for name in parts}
    return hashlib.sha256(written(hashes)).hexdigest(), opened


Tried = Callable[[Forger], object]


def of(name: str, change: Callable[[Any], object], *, folded: bool = False) -> Tried:
    """Make a change of one document, and of the ledger that follows from it where it is folded."""

    def tried(forger: Forger) -> None:
        changed(name, change)(forger.members)
        if folded:
            try:
                refolded(forger.members)
            except NOT_IN_FORM:
                return

    return tried


def updated(said: dict[str, Any], *path: str | int) -> Callable[[Any], None]:
    """Let the object at the end of a path in a document say something else."""

    def change(document: Any) -> None:
        for step in path:
            document = document[step]
        document.update(said)

    return change


def of_delivery(claim: str, change: Callable[[Any], object]) -> Tried:
    """Make a change of the statement of the delivery that made a claim."""
    return lambda forger: changed(f"delivery-{forger.delivery(claim)}.json", change)(forger.members)


def of_event(which: str, /, **said: Any) -> Tried:
    """Let a delivery have said something else."""

    def change(history: Any) -> None:
        (heard,) = (e for e in history["deliveries"] if e["event"]["claim"] == which)
        for name, value in said.items():
            if value is None:
                heard["event"].pop(name)
            else:
                heard["event"][name] = value

    return of("history.json", change, folded=True)


def of_record(which: str, /, **said: Any) -> Tried:
    """Let the shop have said something else."""

    def change(history: Any) -> None:
        found = next(each for each in history["records"] if each["kind"] == which)
        found.update(said)
        for name in [name for name, value in said.items() if value is None]:
            del found[name]

    return of("history.json", change, folded=True)


def of_leaf(name: Callable[[Forger], str], change: Callable[[Any], object]) -> Tried:
    """Make a change of how log.json shows a leaf."""

    def tried(forger: Forger) -> None:
        wanted, log = name(forger), forger.doc("log.json")
        change(next(each for each in log["leaves"] if each["id"] == wanted))
        forger.put("log.json", log)

    return tried


def in_leaf(name: Callable[[Forger], str], **said: Any) -> Tried:
    """Write the log anew from a leaf on that says otherwise."""

    def tried(forger: Forger) -> None:
        index = forger.index(name(forger))
        forger.log[index] = written(json.loads(forger.log[index]) | said).decode()
        forger.prove()

    return tried


def all_of(*tried: Tried) -> Tried:
    """Do one after the other."""

    def each_of(forger: Forger) -> None:
        for each in tried:
            each(forger)

    return each_of


def gone(*names: Callable[[Forger], str], leaves: bool = True) -> Tried:
    """Leave things out, as if they had never been; with their leaves, or without."""

    def tried(forger: Forger) -> None:
        wanted = {name(forger) for name in names}
        for each in forger.doc("history.json")["deliveries"]:
            if each["delivery_id"] in wanted:
                wanted |= {name for name, _ in each.get("again", ())}
        for file in list(forger.members):
            if file.partition(".")[0].partition("-")[2] in wanted:
                del forger.members[file]
        manifest = forger.doc(MANIFEST)
        left = {name: said for name, said in manifest["left_out"].items()
                if name.partition(".")[0].partition("-")[2] not in wanted}  # fmt: skip
        in_manifest(forger.members, left_out=left)
        history = forger.doc("history.json")
        history["deliveries"] = [e for e in history["deliveries"] if e["delivery_id"] not in wanted]
        history["records"] = [e for e in history["records"] if e["record_id"] not in wanted]
        forger.put("history.json", history)
        for name, naming in (
            ("sessions.json", lambda each: each["record_id"]),
            ("revisions.json", lambda each: f"revision:{each['seq']}"),
            ("attachments.json", lambda each: f"deed:{each['attached']['number']}"),
        ):
            forger.put(name, [each for each in forger.doc(name) if naming(each) not in wanted])
        log = forger.doc("log.json")
        log["parts"] = {name: each for name, each in log["parts"].items()
                        if not wanted & {name, *name.split(":")}}  # fmt: skip
        if leaves:
            log["leaves"] = [each for each in log["leaves"] if each["id"] not in wanted]
        forger.put("log.json", log)
        refolded(forger.members)

    return tried


def in_place_of(name: Callable[[Forger], str], *, told: bool = True) -> Tried:
    """Leave a thing out with its leaf, and let leaves that are appended stand in its place: each
    repeats an entry's `nth`, as if the order had no other."""

    def tried(forger: Forger) -> None:
        wanted = name(forger)
        index = forger.index(wanted)
        leaf = json.loads(forger.log[index])
        shown = [each for each in forger.own() if each != index]
        gone(lambda _: wanted)(forger)
        kept = forger.doc("revisions.json")[0]
        again = json.loads(forger.log[forger.index(f"revision:{kept['seq']}")])
        repeated = again | {"nth": leaf["nth"], "after": leaf["after"]}
        forger.prove([*shown, *forger.append(repeated | ({} if told else {"id": 999}))])

    return tried


def delivery(claim: str) -> Callable[[Forger], str]:
    return lambda forger: forger.delivery(claim)


def record(kind: str) -> Callable[[Forger], str]:
    def named(forger: Forger) -> str:
        found = forger.doc("history.json")["records"]
        return str(next(each["record_id"] for each in found if each["kind"] == kind))

    return named


def revision(place: int) -> Callable[[Forger], str]:
    return lambda forger: f"revision:{forger.doc('revisions.json')[place]['seq']}"


def exhibit(place: int, which: str = "attached") -> Callable[[Forger], str]:
    return lambda forger: f"deed:{forger.doc('attachments.json')[place][which]['number']}"


def forged_copy(world: ForgersWorld, archive: bytes) -> Forger:
    """Return a forger at work on a copy of a bundle."""
    return Forger(members=copy.copy(unpack(archive)), log=list(world.log), key=world.key)
