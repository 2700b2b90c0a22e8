#!/usr/bin/env python3
"""Check an evidence bundle:  python3 -I verify.py bundle.zip

This program needs only Python 3.8 or later, and no network. It has some 1400 lines: read them
before you trust it, or do each step with other tools, as README.txt shows.

    1 archive      the ZIP has exactly the bytes that packing its files gives
    2 manifest     manifest.json lists exactly the files in the ZIP, and its instant is not in the
                   future
    3 digests      every file has the stated size, SHA-256 and form
    4 signature    not checked here: README.txt has the commands for `minisign` and `openssl`
    5 deliveries   deliveries, their bodies and their events agree, and all arrived before the
                   bundle's instant
    6 inclusion    each delivery, record and revision is in the log of the checkpoint
    7 readings     each delivery's event in the history equals the sealed event
    8 completeness the bundle has all of the log's entries for the order, without a gap
    9 checkpoint   not checked here: README.txt has the commands for `openssl`
   10 ledger       the ledger follows from the history. This needs the package `reconcile`
   11 rendered     not checked here: `tallyhook evidence verify` checks the rendered files

The output begins with the verdict. Then it lists what the bundle does not prove.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.evidence.verify_archive import (
    FORMAT,
    MANIFEST,
    MAX_BYTES,
    MAX_MEMBERS,
    NAME,
    SIGNATURE,
    Bundle,
    arrivals,
    attached,
    micros,
    opened,
    pack,
    redated,
    unpack,
)
from app.evidence.verify_entries import (
    SEALED_WITHIN_S,
    completeness,
    earlier_origins,
    inclusion,
    order_chain,
    readings,
    readings_of,
)
from app.evidence.verify_forms import MASKED, NOT_IN_FORM, Wrong, clean, instant

__all__ = ("FORMAT", "MANIFEST", "MAX_BYTES", "MAX_MEMBERS", "NAME", "NOT_IN_FORM",
           "SEALED_WITHIN_S", "SIGNATURE", "Bundle", "Wrong", "earlier_origins",
           "opened", "pack", "unpack")  # fmt: skip


def digests(bundle: Bundle) -> str:
    """Check each file's size, SHA-256 and form (step 3)."""
    for name, said in bundle.manifest["files"].items():
        data = bundle.members[name]
        if said != {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}:
            raise Wrong(f"{name} differs from the file that was signed")
    for name in bundle.manifest["files"]:
        if name.endswith(".json"):
            bundle.document(name)
    return f"All {len(bundle.members) - 2} files have the stated size and SHA-256."


def deliveries(bundle: Bundle) -> str:
    """Check that history, deliveries and bodies agree (step 5)."""
    history = bundle.document("history.json")
    heard = {each["delivery_id"]: each for each in history["deliveries"]}
    known = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for name, each in heard.items():
        stated = bundle.document(f"delivery-{name}.json")
        if (stated["delivery"], stated["received_at"]) != (name, each["received_at"]):
            raise Wrong(
                f"history.json and delivery-{name}.json disagree on the id or the arrival time"
            )
        if stated["sha256"] != each["event"]["digest"]:
            raise Wrong(f"the event of delivery {name} does not belong to its body")
        for part in filter(None, (stated[each] for each in PARTS)):
            if known.get(part["file"]) != {"sha256": part["sha256"], "size": part["size"]}:
                raise Wrong(f"a part of delivery {name} differs from the file that arrived")
        body = stated["sha256"] if stated["size"] else NOTHING
        if stated["body"] and stated["body"]["sha256"] != body:
            raise Wrong(f"the body of delivery {name} differs from the body that was read")
        _as_kept(stated, bundle)
        _repeats(each)
    if (history["order"], history["as_of"]) != (bundle.manifest["order"], bundle.manifest["as_of"]):
        raise Wrong(
            "history.json and manifest.json disagree on the order or on the time of the bundle"
        )
    came = [(name, at) for name, at, _ in arrivals(bundle)]
    repeats = len(came) - len(heard)
    came += [(each["record_id"], each["recorded_at"]) for each in history["records"]]
    came += [(f"revision:{each['seq']}", each["at"]) for each in bundle.document("revisions.json")]
    came += [(f"deed:{entry['number']}", entry["at"]) for each in attached(bundle)
             for entry in (each["attached"], each["removed"]) if entry]  # fmt: skip
    counts = redated(bundle)
    if any(counts.get(name, micros(at)) > micros(history["as_of"]) for name, at in came):
        raise Wrong("the bundle contains data that is newer than the time of the bundle")
    _sessions(bundle, history)
    _attachments(bundle)
    _nothing_else(bundle, history)
    noun = "delivery" if len(heard) == 1 else "deliveries"
    moved = len(counts.keys() & {name for name, _ in came})
    more = f", with {repeats} redeliveries" if repeats else ""
    said = f"{len(heard)} {noun}{more}: the events, headers and bodies agree with each other."
    if not moved:
        return said
    return (
        f"{said} The dates of {moved} parts come from a clock that was ahead; their corrected "
        "dates count."
    )


def _repeats(heard: dict[str, Any]) -> None:
    first = micros(heard["received_at"]), heard["delivery_id"]
    for name, at in heard.get("again", ()):
        if (micros(at), name) <= first:
            raise Wrong(
                f"redelivery {name} arrived before the first delivery of its event, or is out of "
                "order"
            )
        first = micros(at), name


def _as_kept(stated: dict[str, Any], bundle: Bundle) -> None:
    kept = bundle.members.get(stated["headers"]["file"]) if stated["headers"] else None
    if kept is None:
        return
    method, shown = "POST", []
    for line in kept.decode("utf-8").split("\n"):
        name, _, value = line.partition(": ")
        if name == ":method":
            method = value
        elif line and name != ":url":
            shown.append([name, value])
    named = [name for name, _ in stated["headers_shown"]] == [name for name, _ in shown]
    if stated["method"] != method or not named or not _same(stated["headers_shown"], shown):
        raise Wrong(
            f"the method or headers in delivery-{stated['delivery']}.json differ from the file "
            "of headers"
        )


def _same(shown: Any, kept: Any) -> bool:
    if isinstance(shown, str) and MASKED in shown:
        return True
    if isinstance(shown, dict) and isinstance(kept, dict):
        return shown.keys() == kept.keys() and all(_same(shown[each], kept[each]) for each in kept)
    if isinstance(shown, list) and isinstance(kept, list):
        places = range(len(kept))
        return len(shown) == len(kept) and all(_same(shown[n], kept[n]) for n in places)
    return json.dumps(shown) == json.dumps(kept)  # so that NaN is itself, and 1 is not true


def _sessions(bundle: Bundle, history: dict[str, Any]) -> None:
    records = {each["record_id"]: each for each in history["records"]}
    wanted = {name for name, each in records.items() if each["kind"].startswith("session_")}
    listed = bundle.document("sessions.json")
    if len(listed) != len(wanted) or {each["record_id"] for each in listed} != wanted:
        raise Wrong("sessions.json and history.json list different sessions")
    for each in listed:
        name = each["record_id"]
        if {key: each[key] for key in each if key != "details"} != records[name]:
            raise Wrong(f"sessions.json and history.json disagree on {name}")
        file = f"record-{name}.details"
        if file in bundle.manifest["left_out"]:
            continue
        kept = bundle.members[file].decode("utf-8") if file in bundle.members else None
        if each["details"] != kept:
            raise Wrong(f"sessions.json and {file} disagree on the details of {name}")


def _attachments(bundle: Bundle) -> None:
    known = {**bundle.manifest["left_out"], **bundle.manifest["files"]}
    for each in attached(bundle):
        entry, removed, facts = each["attached"], each["removed"], each["attached"]["facts"]
        name, content, details = facts["attachment"], each["content"], each["details"]
        foreign = facts["about"] == "order" and entry["subject"] != bundle.manifest["order"]
        if foreign or entry["action"] != "attached":
            raise Wrong(f"attachment {name} was not attached to this order")
        if removed and (removed["action"], removed["facts"]["attachment"]) != ("detached", name):
            raise Wrong(f"the audit entry for attachment {name} does not record its removal")
        if (content is None) != (details is None) or (removed and content):
            raise Wrong(f"attachment {name} is incomplete, or is included although it was removed")
        if content and details and (content["sha256"], content["size"], details["sha256"]) != (
            facts["sha256"], facts["size"], facts["details"]
        ):  # fmt: skip
            raise Wrong(f"the digests of attachment {name} differ from its audit entry")
        for part in filter(None, (content, details)):
            if known.get(part["file"]) != {"sha256": part["sha256"], "size": part["size"]}:
                raise Wrong(f"attachment {name} differs from the file that was attached")


ALWAYS = frozenset((
    "README.txt", "attachments.json", "books.json", "checkpoint.txt", "evidence-key.pem",
    "evidence-key.pub", "explanation.txt", "heard.json", "history.json", "ledger.json", "log.json",
    "report.html", "revisions.json", "sessions.json", "sources.json", "times.json", "verify.py",
))  # fmt: skip

PARTS = ("body", "whole", "headers", "signed")
"""Parts of a delivery in separate files."""

NOTHING = hashlib.sha256().hexdigest()
"""SHA-256 of an empty body."""


def _nothing_else(bundle: Bundle, history: dict[str, Any]) -> None:
    shown, personal = set(ALWAYS), {f"record-{each['record_id']}.details"
                                    for each in history["records"]}  # fmt: skip
    count = len(bundle.document("sources.json"))
    shown.update(f"profile-{number}.toml" for number in range(1, count + 1))
    for each in attached(bundle):
        if each["content"]:
            own = f"attachment-{each['attached']['facts']['attachment']}."
            personal.update((f"{own}{each['content']['file'][len(own) :]}", f"{own}details"))
    for each in history["deliveries"]:
        own = f"delivery-{each['delivery_id']}."
        stated = bundle.document(f"{own}json")
        personal.update(f"{own}{part}" for part in PARTS if stated[part])
        shown.update((f"{own}json", f"key-{stated['signature']['key']}.pem"))
    for name in sorted(
        {*bundle.manifest["files"], *bundle.manifest["left_out"]} - shown - personal
    ):
        raise Wrong(f"no document of the bundle refers to the file {name}")
    redacted, there = bundle.manifest["redacted"], bundle.manifest["files"].keys() & personal
    for name in sorted(there if redacted else bundle.manifest["left_out"]):
        fault = "included" if redacted else "left out"
        whole = "redacted" if redacted else "not redacted"
        raise Wrong(f"{name} is {fault}, but the manifest says that the bundle is {whole}")


# --- the conclusion, and all steps ----------------------------------------------------------


def ledger(bundle: Bundle) -> tuple[bool | None, str]:
    """Check that the history gives the stated ledger (step 10)."""
    try:
        from reconcile.transparency.evidence import ledger_of
    except ImportError:
        return None, "The package `reconcile` of Tallyhook is not installed here."
    try:
        found = ledger_of(bundle.document("history.json"))
    except (ValueError, OverflowError, RecursionError) as error:
        raise Wrong(f"no ledger can be computed from history.json: {error}") from None
    if found != bundle.document("ledger.json"):
        raise Wrong("the ledger computed from history.json differs from ledger.json")
    return True, (
        "The ledger computed from history.json equals ledger.json, with the outcome "
        f"{found['outcome']}."
    )


class VerifyStep(NamedTuple):
    """Result of one verification step. `passed` is None for a skipped step."""

    name: str
    passed: bool | None
    sentence: str


def signature(bundle: Bundle) -> tuple[bool | None, str]:
    """Skip step 4, which needs a separate tool."""
    return None, "Use minisign or openssl for this step: README.txt has the commands."


def rendered(bundle: Bundle) -> tuple[bool | None, str]:
    """Skip step 11, which needs the program that made the bundle."""
    said = (
        "report.html, explanation.txt, README.txt and verify.py were made by release "
        f"{release(bundle)}"
    )
    return None, (
        f"{said}: `tallyhook evidence verify` of that release makes them again and compares them."
    )


def release(bundle: Bundle) -> str:
    """Return the release that the manifest names. The manifest may be wrong."""
    return clean(bundle.manifest.get("release"))[:40]


CHECKS: list[tuple[str, Callable[[Bundle], Any]]] = [
    *(("digests", digests), ("signature", signature), ("deliveries", deliveries)),
    *(("inclusion", inclusion), ("readings", readings), ("completeness", completeness)),
    *(("checkpoint", signature), ("ledger", ledger), ("rendered", rendered)),
]

# --- unproven parts -------------------------------------------------------------------------


NOT_LISTED = "anything: a part of the bundle is malformed, so the unproven parts cannot be listed"
NOT_ANEW = (
    "that the log was not rewritten: only a checkpoint that left the shop earlier can prove that"
)
NOTHING_LEFT_OUT = "that nothing about the order was left out"
SAID = "claims, money, references (history.json)"
COSIGNED = "that witnesses have cosigned the log"
WHOSE = (
    "that the bundle is the shop's: compare evidence-key.pub with a key that you got from the "
    "shop through another channel"
)
LETTER = "that report.html, explanation.txt and README.txt agree with the data in the bundle"
READ_AGAIN = "that history.json agrees with the bodies"
PROFILES = "which profile reads which source, and how (sources.json, profile-N.toml)"


def unproven(bundle: Bundle, left: int = 0) -> list[str]:
    """Return sentences on facts that the bundle does not prove."""
    try:
        return [clean(sentence) for sentence in _unproven(bundle, left) if sentence]
    except (Wrong, *NOT_IN_FORM):
        return [NOT_LISTED]


def _unproven(bundle: Bundle, left: int) -> list[str]:
    log, history = bundle.document("log.json"), bundle.document("history.json")
    deliveries = [bundle.document(f"delivery-{each['delivery_id']}.json")
                  for each in history["deliveries"]]  # fmt: skip
    plain = sum(not (each["headers"] and each["headers"]["file"] in bundle.members)
                for each in deliveries)  # fmt: skip
    left_out = bundle.manifest["left_out"]
    answers = [each for each in bundle.document("sessions.json")
               if f"record-{each['record_id']}.details" in left_out]  # fmt: skip
    repeats = sum(len(each.get("again", ())) for each in history["deliveries"])
    heard = {name for name, _, _ in arrivals(bundle)}
    masked = sum("hash" in part for name, opened in log["parts"].items() for part in opened.values()
                 if name not in heard and not name.startswith("reading:"))  # fmt: skip
    keys = [name for name in bundle.members if name.startswith("key-")]
    earlier = ", ".join(f"{name} from leaf {size:,} on" for name, size in earlier_origins(log))
    away = sum(not (each["content"] or each["removed"]) for each in attached(bundle))
    beside = json.dumps([[each["headers_shown"] for each in deliveries],
                         bundle.document("sessions.json")], ensure_ascii=False)  # fmt: skip
    return [
        *_sealed_unproven(bundle, left),
        NOT_ANEW,
        WHOSE,
        f"{LETTER}: `tallyhook evidence verify` of release {release(bundle)} makes them again "
        "and compares them",
        # If the log continued under another origin, after a restore from a backup.
        f"leaves that were sealed under an earlier origin of the log: {earlier}" if earlier else "",
        _cosigners(bundle),
        *_said_unproven(bundle, deliveries),
        _of(plain, "the method and headers of deliveries (delivery-ID.json)", len(deliveries)),
        "the address, verdict, signature and signed bytes of deliveries (delivery-ID.json)"
        if deliveries else "",
        _of(repeats, "the address and signature of redeliveries (log.json has only their entries)",
            repeats),
        "that a body was deleted, and when (delivery-ID.json)"
        if any(each["let_go_at"] for each in deliveries) else "",
        "why a body could not be read (delivery-ID.json)"
        if any(each["problem"] for each in deliveries) else "",
        "masked texts of headers and answers; the bundle also has files with the unmasked texts "
        "(delivery-ID.json, sessions.json)"
        if MASKED in beside and not bundle.manifest["redacted"] else "",
        "that key-FINGERPRINT.pem is the payment service's own key" if keys else "",
        "the answers of the payment service (sessions.json)" if answers else "",
        "lines of order books and settlement files (books.json)" if bundle.document("books.json")
        else "",
        "what the attached files show, and who made them: the log proves only when the shop "
        "attached them (attachments.json)" if attached(bundle) else "",
        _of(away, "what attached files show that are not in the bundle (attachments.json)",
            len(attached(bundle))),
        *_unheard(bundle.document("heard.json")),
        PROFILES if bundle.document("sources.json") else "",
        f"masked texts of records, revisions and audit entries, {masked} in all (history.json, "
        "revisions.json, attachments.json)" if masked else "",
        "the shop's time limits (policy in history.json)",
        "the shop's time zone and its offsets from UTC (times.json)"
        if "times.json" in bundle.members else "",
        f"parts that are not sealed yet, {len(log['unsealed'])}: {', '.join(log['unsealed'][:4])}"
        if log["unsealed"] else "",
    ]  # fmt: skip


def _sealed_unproven(bundle: Bundle, left: int) -> list[str]:
    found, key = bundle.once(order_chain), (bundle.document("log.json")["order"] or {}).get("key")
    if not found.entries:
        return [
            f"{NOTHING_LEFT_OUT}, and that everything in the bundle belongs to it: the key of the "
            "order's pseudonym in the log is missing, perhaps because it was erased"
        ]
    after = ": no tree of all orders counts its entries yet"
    if found.tree:
        index, at = found.tree
        after = f" since {at}"
        if index >= left:
            after += (
                "; up to then, it is proven only if a checkpoint whose size is at least "
                f"{index + 1} left the shop before the dispute"
            )
    return [
        f"{NOTHING_LEFT_OUT}{after}",
        "" if key else "that the log's entries belong to this order: its reference is masked",
        _some("that these parts belong to this order", found.others,
              "in the log they belong to another order or to none"),
        _some("that these parts, which are not in the bundle, do not belong to this order",
              found.moved,
              "in the log they belonged to it first, and later to another order or to none"),
    ]  # fmt: skip


def _said_unproven(bundle: Bundle, deliveries: Sequence[dict[str, Any]]) -> list[str]:
    bare = [each["delivery"] for each in deliveries
            if not (each["body"] and each["body"]["file"] in bundle.members)]  # fmt: skip
    said = "what the left-out bodies stated"
    found = bundle.once(readings_of)
    first = {each["delivery"] for each in deliveries}
    dark = len({*found.bare} & {*bare})
    loose = ({*found.bare, *found.masked, *found.several} & first) - {*bare}
    several = f"what bodies stated that were read in more than one way: {SAID}"
    return [
        _of(len(loose), f"{READ_AGAIN}, if the log does not prove it: `tallyhook evidence "
            "verify` reads the bodies again", len(deliveries)),
        _of(dark, f"{said}, if the log does not prove it: {SAID}", len(deliveries)),
        _of(len({*found.masked} & {*bare}), f"{said}, in texts that are masked (history.json)",
            len(deliveries)),
        _of(len({*found.several} & {*bare}), several, len(deliveries)),
    ]  # fmt: skip


def _unheard(heard: dict[str, Any]) -> list[str]:
    unread, refused = heard["unread"], heard["refused"]
    refusing = [each for each in heard["sources"] if each["refusing_since"]]
    return [
        _some("what these unreadable messages state",
              [each["delivery"] for each in unread], "they may be about this order (heard.json)"),
        _some("that these payments without an order are not for this order",
              [each["payment"] for each in heard["unallocated"]],
              "their amount and their payer's phone number match the order (heard.json)"),
        *[(
            f"that nothing more arrived from {each['source']}: every delivery from it has been "
            f"refused since {each['refusing_since']} (heard.json)"
        ) for each in refusing],
        f"that nothing more arrived: {heard['not_kept']} unsigned request"
        f"{' was' if heard['not_kept'] == 1 else 's were'} not stored (heard.json)"
        if heard["not_kept"] else "",
        *[f"that nothing more arrived between {each['since']} and {each['until']}: data of that "
          "time may be lost, and the shop accepted this gap (heard.json)"
          for each in heard["gaps"]],
        f"what refused messages state, {refused} in all: they do not count, and anyone can send "
        "them (heard.json)" if refused else "",
        "when each source last delivered a readable message (heard.json)",
    ]  # fmt: skip


def _some(what: str, names: Sequence[str], why: str) -> str:
    return f"{what}, {len(names)}: {', '.join(names[:4])}; {why}" if names else ""


def _cosigners(bundle: Bundle) -> str:
    lines = bundle.members.get("checkpoint.txt", b"").decode("utf-8", "replace").split("\n")
    words = [line.split(" ") for line in lines if line.startswith("\u2014 ")]
    names = [each[1] for each in words if len(each) == 3 and len(each[2]) == 104]
    if not names:
        return ""
    return (
        f"{COSIGNED}: checkpoint.txt names {', '.join(names)}, and `tallyhook evidence verify "
        "--witness KEY` checks a cosignature with the witness's key"
    )


def _of(count: int, what: str, whole: int) -> str:
    return "" if not count else what if count == whole else f"{what}, of {count} of {whole}"


def check_steps(
    archive: bytes, checks: Sequence[tuple[str, Callable[[Bundle], Any]]], now: int
) -> tuple[Bundle | None, list[VerifyStep]]:
    """Run the steps in order. `now` is microseconds since 1970."""
    steps: list[VerifyStep] = []
    try:
        members = unpack(archive)
        steps.append(
            VerifyStep(
                "archive", True, (f"The ZIP contains {len(members)} files and nothing else.")
            )
        )
    except Wrong as error:
        return None, [
            VerifyStep("archive", False, (f"The archive was changed, or is not a bundle: {error}."))
        ]
    try:
        bundle = opened(members, now)
    except Wrong as error:
        return None, [*steps, VerifyStep("manifest", False, f"The manifest is wrong: {error}.")]
    count = len(members) - 2
    steps.append(
        VerifyStep(
            "manifest", True, (f"The manifest names the {count} other files and nothing else.")
        )
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
        return VerifyStep(name, False, f"The checked data is malformed: {type(error).__name__}.")
    return VerifyStep(name, True, found) if isinstance(found, str) else VerifyStep(name, *found)


def report_lines(steps: list[VerifyStep], not_proven: Sequence[str] = ()) -> list[str]:
    """Return the report: the verdict, the unproven parts, and a line for each step."""
    words = {True: "passed", False: "FAILED", None: "not checked"}
    numbered = [f"{_plain(each)}: {words[each.passed]}. {each.sentence}" for each in steps]
    lines = [verdict(steps)]
    if not_proven:
        lines.append("Not proven, but only stated by the maker of the bundle:")
        lines += [f"- {each}" for each in not_proven]
    return [*lines, *(f"{number}. {line}" for number, line in enumerate(numbered, 1))]


def _plain(step: VerifyStep) -> str:
    return step.name.replace("_", " ")


def verdict(steps: Sequence[VerifyStep]) -> str:
    """Return the verdict in one sentence."""
    failed = ", ".join(_plain(each) for each in steps if each.passed is False)
    if failed:
        return f"DO NOT RELY ON IT: {failed} failed."
    left = ", ".join(_plain(each) for each in steps if each.passed is None)
    return (
        f"Every check that was made passed; not checked: {left}." if left else "Every check passed."
    )


def main(words: list[str]) -> int:
    """Check the named file. Return 0 for success, 1 for failure, 2 for wrong arguments."""
    if len(words) not in (1, 2) or not all(map(instant, words[1:])):
        sys.stderr.write(
            "usage: python3 -I verify.py bundle.zip [NOW]\n"
            "NOW, such as 2026-11-29T12:00:00Z, replaces the time of this computer's clock.\n"
        )
        return 2
    try:
        with open(words[0], "rb") as file:
            archive = file.read(MAX_BYTES + 1)
    except OSError as error:
        sys.stderr.write(f"{words[0]} cannot be read: {error.strerror}\n")
        return 2
    now = micros(words[1]) if words[1:] else time.time_ns() // 1000
    bundle, steps = check_steps(archive, CHECKS, now)
    not_proven = [] if bundle is None else unproven(bundle)
    sys.stdout.write("\n".join(report_lines(steps, not_proven)) + "\n")
    return 1 if any(passed is False for _, passed, _ in steps) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
