"""The table of forgeries made with the shop's key, and the step that finds each."""

import json
from dataclasses import replace
from typing import NamedTuple

from app.evidence.verify import MANIFEST, SIGNATURE
from tests.evidence.attacks import (
    KES,
    added,
    beside,
    body_of_another,
    checkpoint,
    dated,
    entry_repeated,
    invented,
    key_of,
    leaf_of,
    leaf_without,
    manifest,
    missing,
    money,
    moved,
    named,
    no_answer,
    note,
    note_of_answer,
    note_of_exhibit,
    other_body,
    other_exhibit,
    other_orders_leaf,
    other_proof,
    other_tree,
    our_commitment,
    read_again,
    removed_anew,
    renamed,
    reopened,
    repacked,
    repeated,
    sessions,
    signed_as,
    swapped_bodies,
    told_again,
    told_late,
    tree_of_less,
    unrendered,
    unsealed,
    unsigned,
)
from tests.evidence.forger import (
    Tried,
    all_of,
    delivery,
    exhibit,
    gone,
    in_leaf,
    in_place_of,
    of,
    of_delivery,
    of_event,
    of_leaf,
    of_record,
    record,
    revision,
    updated,
)


class Forgery(NamedTuple):
    """One story that is not true: what it is, how it is made, and the step that finds it."""

    says: str
    tried: Tried
    step: str


LATEST = "2026-11-21T10:01:00Z"

ON_THE_FIRST_DAY = all_of(
    gone(delivery("disputed"), delivery("dispute_won"), revision(-1), revision(-2)),
    of("log.json", lambda log: log.update(tree=None)),
)
"""Leaves out what came on the order's second day, and the tree."""

IN_LOG: tuple[Forgery, ...] = (
    # what is left out
    *(
        Forgery(f"a {what} is left out with its leaf", gone(name), "completeness")
        for what, name in (
            ("refund", delivery("refunded")), ("decline", delivery("declined")),
            ("first delivery", delivery("pending")), ("dispute", delivery("disputed")),
            ("price", record("order_placed")), ("session", record("session_opened")),
            ("first revision", revision(0)), ("revision in the middle", revision(3)),
            ("exhibit", exhibit(0)), ("removed exhibit", exhibit(1)),
        )
    ),
    *(
        Forgery(f"a {what} is left out, and its leaf stays", gone(name, leaves=False),
                "completeness")
        for what, name in (
            ("refund", delivery("refunded")), ("dispute", delivery("disputed")),
            ("price", record("order_placed")), ("revision", revision(2)),
            ("exhibit", exhibit(0)), ("last delivery", delivery("dispute_won")),
        )
    ),
    Forgery("a refund and its revision are left out",
            gone(delivery("refunded"), revision(3)), "completeness"),
    *(
        Forgery(f"another leaf repeats the number of a {what} that is left out",
                in_place_of(name), "inclusion")
        for what, name in (("refund", delivery("refunded")), ("price", record("order_placed")))
    ),
    *(
        Forgery(f"a made-up leaf repeats the number of a {what} that is left out",
                in_place_of(name, told=False), "completeness")
        for what, name in (
            ("refund", delivery("refunded")), ("price", record("order_placed")),
            ("revision", revision(3)), ("exhibit", exhibit(0)),
        )
    ),
    Forgery("a leaf of another order's stands in the place of a refund", other_orders_leaf,
            "completeness"),
    Forgery("the refund was read as this order's again, and is left out",
            lambda forger: moved(forger, back_to=our_commitment(forger)), "completeness"),
    Forgery("a sealed leaf is appended again", entry_repeated, "inclusion"),
    *(Forgery(f"a {kind} that never was is appended", invented(kind), "completeness")
      for kind in ("record", "revision", "deed")),
    Forgery("the dispute is opened as its end", told_again, "readings"),
    # what came again
    Forgery("a redelivery is left out with its leaf",
            repeated(lambda one, two: two["again"].pop(), leaf=False), "completeness"),
    Forgery("a redelivery is left out, and its leaf stays",
            repeated(lambda one, two: two["again"].pop()), "completeness"),
    Forgery("a redelivery is counted twice",
            repeated(lambda one, two: one["again"].append(one["again"][-1])), "deliveries"),
    Forgery("a redelivery is counted for two events",
            repeated(lambda one, two: two["again"].append(one["again"][-1])), "inclusion"),
    Forgery("a redelivery is counted for another event",
            repeated(lambda one, two: one["again"].append(two["again"].pop())), "inclusion"),
    Forgery("two redeliveries change places",
            repeated(lambda one, two: two["again"].insert(0, one["again"].pop(0))), "inclusion"),
    Forgery("a redelivery that never was is counted",
            repeated(lambda one, two: two["again"].append(["dlv_made", LATEST])), "inclusion"),
    Forgery("a redelivery came at another time",
            repeated(lambda one, two: two["again"][0].__setitem__(1, LATEST)), "inclusion"),
    Forgery("the redeliveries are in another order",
            repeated(lambda one, two: one["again"].reverse()), "deliveries"),
    Forgery("a redelivery is told as the first delivery, and the first as it", told_late,
            "deliveries"),
    Forgery("a redelivery is opened otherwise",
            reopened(lambda forger: forger.redelivery("pending"),
                     lambda opened: opened["said"].update(salt="0" * 32)), "readings"),
    Forgery("all is left out but the log", gone(*(
        delivery(claim) for claim in ("pending", "declined", "succeeded", "refunded", "disputed",
                                      "dispute_won")), leaves=False), "completeness"),
    Forgery("it is as of before what came last, whose leaves stay", all_of(
        gone(delivery("dispute_won"), revision(-1), leaves=False),
        dated("2026-11-21T10:00:00Z")), "completeness"),
    # how leaves are shown
    Forgery("a leaf is hidden", of_leaf(delivery("refunded"), lambda e: e.update(leaf=None)),
            "inclusion"),
    Forgery("a leaf has no text", of_leaf(delivery("refunded"), lambda e: e.update(leaf="")),
            "inclusion"),
    Forgery("a leaf says otherwise",
            leaf_of(delivery("refunded"), lambda leaf: leaf.replace('"size":', '"size":1')),
            "inclusion"),
    Forgery("a leaf is written with blanks",
            leaf_of(delivery("refunded"), lambda leaf: leaf.replace(",", ", ")), "inclusion"),
    *(Forgery(f"a leaf of a {what} has a member more", in_leaf(name, certified_by="Visa Inc."),
              "inclusion")
      for what, name in (
          ("delivery", delivery("refunded")), ("record", record("order_placed")),
          ("revision", revision(0)), ("exhibit", exhibit(0)), ("tree", lambda _: "orders:1"))),
    Forgery("a leaf has another kind", in_leaf(revision(0), kind="orders"), "inclusion"),
    Forgery("a leaf has a kind that no log has", in_leaf(revision(0), kind="proof"), "inclusion"),
    Forgery("a leaf has no salt", in_leaf(revision(0), salt=""), "inclusion"),
    *(Forgery(f"a leaf of a {what} is dated otherwise", in_leaf(name, at=1), "inclusion")
      for what, name in (
          ("delivery", delivery("refunded")), ("record", record("order_placed")),
          ("revision", revision(0)), ("exhibit", exhibit(0)))),
    Forgery("a leaf has an instant that is no whole number", in_leaf(revision(0), at=1.5),
            "inclusion"),
    Forgery("a leaf is of another body", in_leaf(delivery("refunded"), body="0" * 64), "inclusion"),
    Forgery("a leaf is of another source", in_leaf(delivery("refunded"), source="till"),
            "inclusion"),
    Forgery("a leaf is of a longer body", in_leaf(delivery("refunded"), size=9), "inclusion"),
    Forgery("a leaf is of other headers", in_leaf(delivery("refunded"), headers="0" * 64),
            "inclusion"),
    Forgery("a leaf is of a whole request", in_leaf(delivery("refunded"), whole="0" * 64),
            "kept_checkpoint"),
    Forgery("a leaf of a revision names no order",
            in_leaf(revision(0), of=None, nth=None, after=None), "inclusion"),
    *(Forgery(f"a leaf has no {'and no '.join(names)}", leaf_without(*names), "inclusion")
      for names in (("nth",), ("after",), ("of",), ("of", "nth", "after"), ("parts",), ("at",))),
    Forgery("a leaf counts otherwise", in_leaf(revision(0), nth=7), "completeness"),
    Forgery("a leaf follows another", in_leaf(revision(0), after=1), "completeness"),
    Forgery("a leaf follows none", in_leaf(revision(0), after=None), "completeness"),
    Forgery("a leaf commits to something else", in_leaf(revision(0), parts="0" * 64), "inclusion"),
    Forgery("a leaf of a record commits to something else",
            in_leaf(record("order_placed"), parts="0" * 64), "inclusion"),
    Forgery("a leaf of a delivery commits to something else",
            in_leaf(delivery("refunded"), parts="0" * 64), "readings"),
    Forgery("a leaf of an exhibit commits to something else",
            in_leaf(exhibit(0), parts="0" * 64), "inclusion"),
    Forgery("two leaves are exchanged",
            of("log.json", lambda log: log["leaves"].insert(0, log["leaves"].pop(1))), "inclusion"),
    Forgery("a leaf is shown twice",
            of("log.json", lambda log: log["leaves"].insert(0, log["leaves"][0])), "inclusion"),
    Forgery("a leaf has another name",
            of_leaf(delivery("refunded"), lambda e: e.update(id="dlv_0")), "inclusion"),
    Forgery("a leaf has another's name",
            of("log.json", lambda log: log["leaves"][0].update(id=log["leaves"][1]["id"])),
            "inclusion"),
    Forgery("a leaf has another place",
            of_leaf(delivery("refunded"), lambda e: e.update(index=e["index"] - 1)), "inclusion"),
    Forgery("a leaf is beyond the checkpoint",
            of("log.json", lambda log: log["leaves"][-1].update(index=10_000)), "inclusion"),
    Forgery("the log shows no leaf", of("log.json", lambda log: log.update(leaves=[])),
            "inclusion"),
    Forgery("a proof is reordered", other_proof(list.reverse), "inclusion"),
    Forgery("a proof is too short", other_proof(list.pop), "inclusion"),
    Forgery("a proof is too long", other_proof(lambda proof: proof.append("0" * 64)), "inclusion"),
    Forgery("a proof has no step", other_proof(list.clear), "inclusion"),
    Forgery("a proof is in capital letters",
            other_proof(lambda proof: proof.__setitem__(0, "A" * 64)), "digests"),
    # what opens them
    Forgery("a leaf is not opened",
            of("log.json", lambda log: log["parts"].pop("revision:1")), "inclusion"),
    Forgery("a delivery is not opened",
            lambda f: of("log.json", lambda log: log["parts"].pop(f.delivery("refunded")))(f),
            "readings"),
    Forgery("a part is not opened", reopened(revision(0), lambda parts: parts.pop("because")),
            "inclusion"),
    Forgery("a part more is opened",
            reopened(revision(0), lambda parts: parts.update(who={"salt": "0" * 32})), "inclusion"),
    Forgery("a part is hidden that shows nothing masked",
            reopened(revision(0), lambda parts: parts.update(because={"hash": "0" * 64})),
            "inclusion"),
    Forgery("what was said is hidden",
            reopened(delivery("refunded"), lambda parts: parts.update(said={"hash": "0" * 64})),
            "readings"),
    Forgery("a payment is hidden behind a mark", all_of(
        reopened(delivery("refunded"), lambda parts: parts.update(payment={"hash": "0" * 64})),
        of_event("refunded", payment="\N{BULLET}1")), "readings"),
    Forgery("a part has another salt",
            reopened(revision(0), lambda parts: parts.update(said={"salt": "0" * 32})),
            "inclusion"),
    Forgery("a part has salt and hash", reopened(
        revision(0), lambda parts: parts["said"].update(hash="0" * 64)), "digests"),
    Forgery("something that is not here is opened",
            of("log.json", lambda log: log["parts"].update(rec_0={})), "inclusion"),
    *(Forgery(f"a {what} is said to wait for its seal", unsealed(name), "inclusion")
      for what, name in (
          ("delivery", delivery("refunded")), ("revision", revision(3)),
          ("record", record("order_placed")), ("exhibit", exhibit(0)))),
    Forgery("something that is not here waits for its seal",
            of("log.json", lambda log: log["unsealed"].append("dlv_0")), "inclusion"),
    Forgery("the last event is said to wait for its seal, for more than a minute", all_of(
        unsealed(delivery("dispute_won")), unsealed(revision(-1)),
        dated("2026-11-21T10:02:00.000001Z")), "inclusion"),
    # which order
    Forgery("it is another order's bundle", renamed, "completeness"),
    Forgery("the order's name is made with a key of the forger's", key_of("ORD-1"),
            "completeness"),
    Forgery("so is it, and the tree is left out", all_of(
        key_of("ORD-1"), of("log.json", lambda log: log.update(tree=None))), "completeness"),
    Forgery("the log is said not to name the order, and a refund is left out", all_of(
        gone(delivery("refunded")), of("log.json", lambda log: log.update(order=None, tree=None))),
        "completeness"),
    Forgery("the order's key is not shown",
            of("log.json", lambda log: log["order"].update(key=None)), "completeness"),
    Forgery("the order's key is another",
            of("log.json", lambda log: log["order"].update(key="0" * 64)), "completeness"),
    Forgery("the order's name is another",
            of("log.json", lambda log: log["order"].update(commitment="0" * 64)), "completeness"),
    Forgery("the order has a name of its own in its bundle alone",
            all_of(renamed, key_of("ORD-9")), "inclusion"),
    # the tree of all orders
    Forgery("the tree and what came after it are left out", all_of(
        gone(delivery("dispute_won"), revision(-1)),
        of("log.json", lambda log: log.update(tree=None))), "completeness"),
    Forgery("the tree is left out", of("log.json", lambda log: log.update(tree=None)),
            "completeness"),
    Forgery("the tree counts less", other_tree(leaves=15), "completeness"),
    Forgery("the tree counts more", other_tree(leaves=17), "completeness"),
    Forgery("the tree has another last entry", other_tree(last=19), "completeness"),
    Forgery("the tree has no path", other_tree(path=[]), "completeness"),
    Forgery("the tree has another path", other_tree(path=[[0, "0" * 64]]), "completeness"),
    Forgery("the tree's path goes on", of(
        "log.json", lambda log: log["tree"]["path"].append([255, "0" * 64])), "completeness"),
    Forgery("the tree is of a bit that no name has", of(
        "log.json", lambda log: log["tree"]["path"][0].__setitem__(0, 300)), "completeness"),
    Forgery("the tree is sealed by a revision", other_tree(leaf="revision:1"), "completeness"),
    Forgery("the tree is sealed by nothing", other_tree(leaf="orders:9"), "completeness"),
    Forgery("what the tree counts last is left out, and what came after it", gone(
        delivery("disputed"), delivery("dispute_won"), revision(-1), revision(-2)),
        "completeness"),
    Forgery("what the tree counts last is left out", gone(revision(4)), "completeness"),
    Forgery("a tree counts an entry that came after its leaves",
            lambda forger: tree_of_less(forger, beyond=1), "completeness"),
    Forgery("it is as of the order's second day, and no tree is shown", all_of(
        ON_THE_FIRST_DAY, dated("2026-11-21T00:00:00Z")), "completeness"),
)  # fmt: skip

IN_FILES: tuple[Forgery, ...] = (
    # sums, outcomes, dates
    *(
        Forgery(f"the shop's record of the price has {what}", of_record("order_placed", **said),
                "inclusion")
        for what, said in (
            ("another amount", {"money": money("1000.00")}),
            ("another currency", {"money": money("1500.00", "USD")}),
            ("another date", {"at": "2026-11-19T10:00:00Z"}),
            ("another author", {"author": "token:somebody"}), ("no author", {"author": None}),
            ("no amount", {"money": None}), ("a tender", {"tenders": [
                {"kind": "gift_card", **money("5.00")}]}),
            ("another kind", {"kind": "order_fulfilled"}), ("it free", {"free": True}),
            ("another order", {"order": "ORD-2"}),
            ("another arrival", {"recorded_at": "2026-11-20T09:59:59Z"}),
            ("a reason", {"reason": "void"}), ("another key", {"key": "key_2"}),
        )
    ),
    *(
        Forgery(f"a {claim} event has {what}", of_event(claim, **said), "readings")
        for claim, what, said in (
            ("refunded", "another amount", {"money": money("50.00")}),
            ("refunded", "no amount", {"money": None}),
            ("refunded", "another meaning", {"claim": "refund_failed"}),
            ("refunded", "another reference", {"movement": "re_9"}),
            ("refunded", "another payment", {"payment": "pay_9"}),
            ("refunded", "another kind", {"kind": "payment.void"}),
            ("refunded", "another date", {"occurred_at": "2026-11-19T10:00:00Z"}),
            ("succeeded", "another order", {"order": "ORD-7"}),
            ("succeeded", "another session", {"session": "cs_9"}),
            ("succeeded", "another price", {"order_money": money("1.00")}),
            ("succeeded", "an agreement", {"agreement": "sub_1"}),
            ("succeeded", "another standing", {"standing": "unconfirmed"}),
            ("declined", "another reason", {"reason": "stolen card"}),
            ("declined", "no reason", {"reason": None}),
            ("disputed", "another end", {"claim": "dispute_won"}),
            ("dispute_won", "another end", {"claim": "dispute_lost"}),
            ("pending", "another name", {"event_id": "e9"}),
        )
    ),
    *(
        Forgery(f"a revision has {what}",
                of("revisions.json", updated(said, -1)),
                "inclusion")
        for what, said in (
            ("another outcome", {"outcome": "succeeded"}), ("another date",
             {"at": "2026-11-21T10:00:01Z"}), ("another outcome before", {"before": "succeeded"}),
            ("other reasons", {"because": ["Paid."]}), ("another substance", {"substance": "x"}),
            ("another leave to ship", {"fulfillable": True}),
            ("another leave before", {"before_fulfillable": True}), ("another number", {"seq": 99}),
        )
    ),
    *(
        Forgery(f"an exhibit has {what}",
                of("attachments.json", updated(said, 0, "attached")), step)
        for what, said, step in (
            ("another date", {"at": "2026-11-20T10:04:00Z"}, "inclusion"),
            ("another person", {"who": "anna"}, "inclusion"),
            ("another role", {"role": "admin"}, "inclusion"),
            ("another reason", {"reason": "asked for"}, "inclusion"),
            ("another order", {"subject": "ORD-2"}, "deliveries"),
            ("another act", {"action": "detached"}, "deliveries"),
            ("another entry", {"number": 1}, "inclusion"),
        )
    ),
    *(
        Forgery(f"an exhibit is said to be {what}",
                of("attachments.json",
                   updated(said, 1, "attached", "facts")), step)
        for what, said, step in (
            ("a receipt", {"kind": "receipt"}, "inclusion"),
            ("a break's", {"about": "break"}, "inclusion"),
            ("a picture", {"media": "image/png"}, "inclusion"),
            ("larger", {"size": 9}, "inclusion"), ("another file", {"sha256": "0" * 64},
             "inclusion"), ("another", {"attachment": "att_0"}, "deliveries"),
        )
    ),
    Forgery("an exhibit was removed by an entry that attached it", of(
        "attachments.json", lambda e: e[1]["removed"].update(action="attached")), "deliveries"),
    Forgery("a removed exhibit stands",
            of("attachments.json", lambda listed: listed[1].update(removed=None)), "completeness"),
    Forgery("an exhibit that stands is said to be removed", removed_anew, "deliveries"),
    Forgery("an exhibit is another file", other_exhibit(sealed=True), "inclusion"),
    Forgery("an exhibit is another file than was attached", other_exhibit(sealed=False),
            "deliveries"),
    Forgery("an exhibit is listed twice",
            of("attachments.json", lambda listed: listed.append(listed[0])), "inclusion"),
    Forgery("no exhibit is listed", of("attachments.json", list.clear), "inclusion"),
    Forgery("the body of a payment is another", body_of_another, "inclusion"),
    Forgery("the body of a payment is not the one that the history has",
            lambda forger: body_of_another(forger, told=False), "deliveries"),
    Forgery("two bodies are exchanged", swapped_bodies, "deliveries"),
    Forgery("a refund came at another time", all_of(
        of_delivery("refunded", updated({"received_at": "2026-11-20T10:05:01Z"})),
        of("history.json", lambda history: next(
            each for each in history["deliveries"] if each["event"]["claim"] == "refunded"
        ).update(received_at="2026-11-20T10:05:01Z"), folded=True)), "inclusion"),
    # what is stated beside the history
    *(
        Forgery(f"a delivery is stated with {what}",
                of_delivery("refunded", updated(said)), step)
        for what, said, step in (
            ("another arrival", {"received_at": "2026-11-20T10:05:01Z"}, "deliveries"),
            ("another source", {"source": "till"}, "inclusion"),
            ("another size", {"size": 1}, "inclusion"),
            ("another body", {"sha256": "0" * 64}, "deliveries"),
            ("another name", {"delivery": "dlv_0"}, "deliveries"),
            ("a file of another name", {"signed": {"file": "receipt.html", "sha256": "0" * 64,
                                                   "size": 1}}, "deliveries"),
            ("no headers", {"headers": None}, "deliveries"),
        )
    ),
    Forgery("a session had another idempotency key",
            sessions(lambda listed: listed[0].update(key="key_2")), "deliveries"),
    Forgery("a session is not listed", sessions(list.pop), "deliveries"),
    Forgery("a session is listed twice", sessions(lambda e: e.append(e[0])), "deliveries"),
    Forgery("a session is listed twice, and another is not",
            sessions(lambda listed: listed.__setitem__(1, listed[0])), "deliveries"),
    Forgery("a session that never was is listed",
            sessions(lambda listed: listed.append(listed[0] | {"record_id": "rec_0"})),
            "deliveries"),
    Forgery("the history is another instant's",
            of("history.json", lambda history: history.update(as_of="2026-11-21T10:02:00Z")),
            "deliveries"),
    Forgery("the history is another order's",
            of("history.json", lambda history: history.update(order="ORD-2")), "deliveries"),
    Forgery("a record of a sealed name is made up",
            of("history.json", lambda h: h["records"].insert(0, h["records"][0] | {
                "kind": "order_canceled"})), "inclusion"),
    Forgery("a record that never was is made up",
            of("history.json", lambda h: h["records"].append(h["records"][0] | {
                "record_id": "rec_0"})), "inclusion"),
    Forgery("a revision's number counts twice",
            of("revisions.json", lambda e: e.insert(0, e[0] | {"outcome": "failed"})),
            "inclusion"),
    Forgery("a revision that never was is made up",
            of("revisions.json", lambda e: e.append(e[0] | {"seq": 99})), "inclusion"),
    Forgery("a delivery counts twice",
            of("history.json", lambda h: h["deliveries"].insert(0, h["deliveries"][-1])),
            "inclusion"),
    # the conclusion
    *(
        Forgery(f"the ledger says {what}", of("ledger.json", change), "ledger")
        for what, change in (
            ("that it is paid", lambda ledger: ledger.update(outcome="succeeded")),
            ("that it may be shipped", lambda e: e.update(fulfillable=not e["fulfillable"])),
            ("another total", lambda e: e["totals"].update(refunded=money("0.00"))),
            ("another sentence", lambda e: e["explanation"].append("Paid.")),
            ("no entry", lambda e: e["entries"].clear()),
            ("no finding", lambda e: e.update(findings=[])),
            ("another deadline", lambda e: e.update(next_decision_at=LATEST)),
            ("another fingerprint", lambda e: e.update(fingerprint="sha256:0")),
            ("a fact more", lambda e: e["attempts"][0]["reasons"][0]["facts"].update(
                certified_by="Visa Inc.")),
        )
    ),
    Forgery("the policy has a setting more", of(
        "history.json", lambda h: h["policy"].update(leniency=1)), "digests"),
    *(Forgery(f"{name} is rewritten", added(name), "rendered")
      for name in ("report.html", "README.txt", "verify.py", "explanation.txt")),
    # files
    *(Forgery(f"{name} is laid beside", beside(name), "deliveries") for name in (
        "receipt.html", "Report.html", "more.txt", "key-0.pem", "attachment-x.pdf",
        "delivery-dlv_0.body", "record-rec_0.details", "profile-9.toml")),
    Forgery("a document is laid beside", beside("proof.json", b"{}"), "digests"),
    Forgery("a delivery's document is laid beside", lambda f: f.members.update({
        "delivery-dlv_0.json": f.members[f"delivery-{f.delivery('refunded')}.json"]}),
        "deliveries"),
    *(Forgery(f"{name} is missing", missing(name), step)
      for name, step in (
          ("log.json", "inclusion"), ("history.json", "deliveries"), ("checkpoint.txt",
           "checkpoint"), ("sessions.json", "deliveries"), ("revisions.json", "deliveries"),
          ("ledger.json", "ledger"), ("attachments.json", "completeness"))),
    Forgery("an answer has no file", no_answer, "inclusion"),
)  # fmt: skip

IN_FORM: tuple[Forgery, ...] = (
    # when it is of
    *(Forgery(f"it is as of {moment}", dated(moment), step) for moment, step in (
        ("2026-11-19T10:00:00Z", "deliveries"), ("2026-11-21T10:00:59.999Z", "deliveries"),
        ("2030-01-01T00:00:00Z", "manifest"), ("2026-11-21T10:01:00.000Z", "manifest"),
        ("2026-11-21T10:01:00+00:00", "manifest"), ("2026-11-21", "manifest"),
        ("2026-02-30T10:00:00Z", "manifest"))),
    # other documents, or others' forms of them
    *(
        Forgery(f"{name} is {what}", unrendered(note(change, name)), "digests")
        for name in ("history.json", "log.json", "revisions.json", "ledger.json", "heard.json",
                     "sources.json", "sessions.json", "attachments.json")
        for what, change in (
            ("indented", lambda data: json.dumps(json.loads(data), indent=1).encode()),
            ("ended with a line", lambda data: data + b"\n"),
            ("begun with a mark", lambda data: b"\xef\xbb\xbf" + data),
            ("written twice", lambda data: data + data),
            ("no object", lambda data: b"null"),
            ("wrapped", lambda data: b"[" + data + b"]"),
            ("certified", lambda data: data[:-1] + b',"certified_by":"Visa Inc."' + data[-1:]),
        )
    ),
    *(
        Forgery(f"a delivery is stated with {what}", of_delivery(
            "refunded", updated(said)), "digests")
        for what, said in (
            ("a size that is no whole number", {"size": 347.5}), ("a size in words", {"size": "9"}),
            ("a certificate", {"certified_by": "Visa Inc."}), ("no method", {"method": None}),
            ("a verdict that is true", {"verdict": True}), ("headers by name", {
                "headers_shown": {"a": "b"}}), ("a header of three", {
                    "headers_shown": [["a", "b", "c"]]}),
        )
    ),
    Forgery("a size has a point", unrendered(lambda f: note(
        lambda data: data.replace(b',"source":', b'.0,"source":', 1),
        f"delivery-{f.delivery('refunded')}.json")(f)), "digests"),
    Forgery("leave to ship is a number", of(
        "revisions.json", lambda listed: listed[0].update(fulfillable=0)), "digests"),
    Forgery("an event is certified", of_event("refunded", certified_by="Visa Inc."), "digests"),
    Forgery("a record is certified", of_record("order_placed", certified_by="x"), "digests"),
    Forgery("an amount is certified", of_record(
        "order_placed", money={**money("1500.00"), "certified_by": "x"}), "digests"),
    *(Forgery(f"an amount is written {amount!r}", of_record("order_placed", money=money(amount)),
              "digests") for amount in ("15000.0", "0150000", "1500", "01500.00", "+1500.00",
                                        "1500.000", "1 500.00", "150000", "-0.00", "1.5e3")),
    Forgery("an amount is a number", of_record(
        "order_placed", money={"amount": 1500, "currency": KES}), "digests"),
    Forgery("an instant has zeros", of_record("order_placed", at="2026-11-20T10:00:00.000Z"),
            "digests"),
    Forgery("an instant has another zone", of_record(
        "order_placed", at="2026-11-20T12:00:00+02:00"), "digests"),
    Forgery("a name stands twice in an object", unrendered(note(
        lambda data: data.replace(b'"order":"ORD-1"', b'"order":"X","order":"ORD-1"', 1),
        "history.json")), "digests"),
    Forgery("a text is escaped", unrendered(note(
        lambda data: data.replace(b"ORD-1", b"ORD\\u002d1", 1), "history.json")), "digests"),
    # the manifest
    Forgery("the manifest is certified",
            manifest(lambda e: e.update(certified_by="Visa Inc."), listed=True), "manifest"),
    Forgery("the manifest is of another format", manifest(
        lambda e: e.update(format="tallyhook evidence 3"), listed=True), "manifest"),
    Forgery("the manifest does not say whether it is redacted", manifest(
        lambda e: e.update(redacted=None), listed=True), "manifest"),
    Forgery("the manifest says otherwise of redaction", manifest(
        lambda e: e.update(redacted=not e["redacted"]), listed=True), "deliveries"),
    Forgery("the manifest names no program", manifest(
        lambda e: e.pop("program"), listed=True), "manifest"),
    Forgery("the manifest is another order's", manifest(
        lambda e: e.update(order="ORD-2"), listed=True), "deliveries"),
    Forgery("the manifest has another digest", manifest(
        lambda e: e["files"]["history.json"].update(sha256="0" * 64)), "digests"),
    Forgery("the manifest has another size", manifest(
        lambda e: e["files"]["history.json"].update(size=1)), "digests"),
    Forgery("the manifest lists a file more", manifest(
        lambda e: e["files"].update({"more.txt": {"sha256": "0" * 64, "size": 0}})), "manifest"),
    Forgery("the manifest lists a file less", manifest(
        lambda e: e["files"].pop("heard.json")), "manifest"),
    Forgery("the manifest leaves out what is not there", manifest(
        lambda e: e["left_out"].update({"receipt.html": {"sha256": "0" * 64, "size": 0}}),
        listed=True), "deliveries"),
    Forgery("the manifest is indented",
            signed_as(lambda data: json.dumps(json.loads(data), indent=1).encode()), "manifest"),
    Forgery("the manifest has a line's end", signed_as(lambda data: data + b"\n"), "manifest"),
    Forgery("the manifest is no object", signed_as(lambda data: b"[]"), "manifest"),
    # keys and signatures
    Forgery("the manifest was not signed again", unsigned, "signature"),
    Forgery("the signature's first line says something", named(lambda m: m.update({
        SIGNATURE: m[SIGNATURE].replace(b"evidence", b"interest", 1)})), "signature"),
    Forgery("the signature's comment says something", named(lambda m: m.update({
        SIGNATURE: m[SIGNATURE].replace(b"forged", b"proved", 1)})), "signature"),
    Forgery("the signature has a line more", named(lambda m: m.update({
        SIGNATURE: m[SIGNATURE] + b"\n"})), "signature"),
    Forgery("the manifest is missing", named(lambda m: m.pop(MANIFEST)), "manifest"),
    Forgery("the signature is missing", named(lambda m: m.pop(SIGNATURE)), "manifest"),
    Forgery("the key for openssl is another",
            note(lambda data: data.replace(b"A", b"B", 9), "evidence-key.pem"), "signature"),
    Forgery("the key is none", note(lambda data: b"key\n", "evidence-key.pub"), "signature"),
    # the checkpoint
    Forgery("the checkpoint is of fewer leaves",
            checkpoint(lambda found: replace(found, size=found.size - 1)), "inclusion"),
    Forgery("the checkpoint is of more leaves",
            checkpoint(lambda found: replace(found, size=found.size * 2)), "inclusion"),
    Forgery("the checkpoint has another head",
            checkpoint(lambda found: replace(found, head=bytes(32))), "inclusion"),
    Forgery("the checkpoint is of another log",
            checkpoint(lambda found: replace(found, origin="shop.example/log")),
            "kept_checkpoint"),
    Forgery("the checkpoint's signature is another",
            note(lambda data: data[:-9] + bytes(reversed(data[-9:-5])) + data[-5:]), "checkpoint"),
    Forgery("the checkpoint has no signature",
            note(lambda data: data.partition(b"\n\n")[0] + b"\n\n"), "checkpoint"),
    Forgery("the checkpoint has a line more",
            note(lambda data: data.replace(b"\n\n", b"\nPaid\n\n")), "checkpoint"),
    Forgery("the checkpoint's size has a zero before",
            note(lambda data: data.replace(b"\n", b"\n0", 1)), "inclusion"),
    Forgery("the checkpoint's head has a character that base64 has not",
            note(lambda data: data.replace(b"=\n\n", b"*=\n\n", 1)), "inclusion"),
    Forgery("the checkpoint is none", note(lambda data: b"hello"), "inclusion"),
    Forgery("an earlier key of the log is no key",
            of("log.json", lambda log: log["keys"].insert(0, "0")), "digests"),
    Forgery("an earlier log is of no size",
            of("log.json", lambda log: log.update(origins=[{"log": "x", "leaves": "9"}])),
            "digests"),
    # the archive
    *(
        Forgery(f"the archive {what}", repacked(change), "archive")
        for what, change in (
            ("has a comment", lambda zip: zip[:-2] + b"\2\0hi"),
            ("has bytes behind", lambda zip: zip + b"\0"),
            ("has bytes before", lambda zip: b"\0" + zip),
            ("is cut short", lambda zip: zip[:-1]),
            ("is of another year", lambda zip: zip.replace(b"\x21\0", b"\x22\0", 1)),
            ("is made by Windows", lambda zip: zip.replace(b"PK\1\2\x14\3", b"PK\1\2\x14\0")),
            ("has files that run", lambda zip: zip.replace(b"\xa4\x81", b"\xed\x81")),
            ("has another checksum", lambda zip: zip[:14] + b"\0\0\0\0" + zip[18:]),
            ("has a flag", lambda zip: zip[:6] + b"\0\x08" + zip[8:]),
            ("says it is compressed", lambda zip: zip[:8] + b"\x08\0" + zip[10:]),
            ("has another number of files", lambda zip: zip[:-14] + b"\1\0\1\0" + zip[-10:]),
            ("has its directory elsewhere", lambda zip: zip[:-6] + b"\0\0\0\0" + zip[-2:]),
            ("is two archives", lambda zip: zip + zip),
        )
    ),
    Forgery("the archive has a folder", named(lambda m: m.update({"a/b.txt": b""})), "archive"),
    Forgery("the archive has a program", named(lambda m: m.update({"json.py": b""})), "archive"),
    Forgery("the archive has a file more", named(lambda m: m.update({"m.txt": b""})), "manifest"),
    Forgery("the archive has a file less", named(lambda m: m.pop("heard.json")), "manifest"),
    Forgery("the archive has another file",
            named(lambda m: m.update({"heard.json": b"{}"})), "digests"),
)  # fmt: skip

IN_FULL: tuple[Forgery, ...] = (
    *(
        Forgery(f"a delivery had {what}", of_delivery("refunded", change), "deliveries")
        for what, change in (
            ("headers of another size", lambda stated: stated["headers"].update(size=7)),
            ("another header's value", lambda e: e["headers_shown"][0].__setitem__(1, "x")),
            ("another header's name", lambda e: e["headers_shown"][0].__setitem__(0, "\N{BULLET}")),
            ("a header more", lambda e: e["headers_shown"].append(["x-paid", "yes"])),
            ("another method", lambda stated: stated.update(method="PUT")),
            ("a header that no text has", lambda e: e["headers_shown"][0].__setitem__(1, "")),
        )
    ),
    Forgery("an answer is another than was kept",
            sessions(lambda listed: listed[1].update(details="{}")), "deliveries"),
    Forgery("a body is another than was read", other_body, "deliveries"),
    Forgery("an exhibit's file is another", note_of_exhibit(b"%PDF-1.7 by nobody"), "deliveries"),
    Forgery("an exhibit's digest is another", of("attachments.json", lambda listed: listed[0][
        "content"].update(sha256="0" * 64)), "deliveries"),
    Forgery("an exhibit's size is another", of("attachments.json", lambda listed: listed[0][
        "content"].update(size=1)), "deliveries"),
    Forgery("an exhibit's name and note are others", of("attachments.json", lambda listed: listed[
        0]["details"].update(sha256="0" * 64)), "deliveries"),
    Forgery("an exhibit has no name and note", of(
        "attachments.json", lambda listed: listed[0].update(details=None)), "deliveries"),
    Forgery("a removed exhibit is here", of("attachments.json", lambda listed: listed[1].update(
        content=listed[0]["content"], details=listed[0]["details"])), "deliveries"),
    Forgery("an answer's file is another", note_of_answer(b'{"status":"refused"}'), "inclusion"),
)  # fmt: skip
"""Forgeries of what a full bundle alone has."""

FORGERIES = (*IN_LOG, *IN_FILES, *IN_FORM, *IN_FULL)
assert len(FORGERIES) > 300


# --- what nothing proves is listed before the steps ---------------------------------------------


class Unproven(NamedTuple):
    """One story that no step finds: what it is, how it is made, and what the first lines say.

    full  whether a full bundle is no way around that, too
    """

    says: str
    tried: Tried
    words: str
    full: bool = True


LINE = {
    "from": "statement", "line": "x", "kind": "payment", "payment": "pay_1", "order": None,
    "gross": money("5.00"), "fee": money("0.00"), "net": money("5.00"), "settled_at": None,
    "payout": None,
}  # fmt: skip

STATED = "the address, verdict, signature and signed bytes of deliveries (delivery-ID.json)"

UNPROVEN: tuple[Unproven, ...] = (
    Unproven("a line of a settlement file is invented",
             of("books.json", lambda listed: listed.append(LINE)),
             "lines of order books and settlement files (books.json)"),
    Unproven("a delivery had a header more",
             of_delivery("refunded", lambda e: e["headers_shown"].append(["x-paid", "yes"])),
             "the method and headers of deliveries (delivery-ID.json)", full=False),
    Unproven("a delivery came by another method",
             of_delivery("refunded", lambda stated: stated.update(method="PUT")),
             "the method and headers of deliveries (delivery-ID.json)", full=False),
    Unproven("a delivery came to another address",
             of_delivery("refunded", lambda stated: stated.update(address="https://x.example")),
             STATED),
    Unproven("a delivery was signed with another secret",
             of_delivery("refunded", lambda stated: stated["signature"].update(key="0" * 16)),
             STATED),
    Unproven("a body was deleted",
             of_delivery("refunded", lambda stated: stated.update(let_go_at=LATEST)),
             "- that a body was deleted, and when"),
    Unproven("a body could not be read",
             of_delivery("refunded", lambda stated: stated.update(problem="no JSON")),
             "- why a body could not be read"),
    Unproven("a header is masked that is not",
             of_delivery("refunded", lambda e: e["headers_shown"][0].__setitem__(1, "\N{BULLET}")),
             "headers"),
    Unproven("the payment service answered otherwise",
             sessions(lambda listed: listed[1].update(details="{}")),
             "the answers of the payment service (sessions.json)", full=False),
    Unproven("a profile reads the service's words otherwise",
             note(lambda data: data + b"\n#\n", "profile-1.toml"),
             "which profile reads which source, and how (sources.json, profile-N.toml)"),
    Unproven("the shop waits for longer than it did",
             of("history.json", lambda e: e["policy"].update(refund_window_us=1), folded=True),
             "the shop's time limits (policy in history.json)"),
    Unproven("more was refused than is said",
             of("heard.json", lambda heard: heard.update(refused=7)),
             "what refused messages state, 7 in all: they do not count"),
    Unproven("a masked text was another",
             of("attachments.json",
                lambda listed: listed[0]["attached"].update(who="\N{BULLET}a")),
             "masked texts of records, revisions and audit entries", full=False),
    Unproven("the refund was read as another order's later, and is left out", moved,
             "that these parts, which are not in the bundle, do not belong to this order, 1: dlv_"),
    Unproven("the dispute was read as its end later", read_again,
             "what bodies stated that were read in more than one way: claims, money, "
             "references (history.json), of 1 of 6", full=False),
    Unproven("a tree that counts less is appended", tree_of_less,
             "up to then, it is proven only if a checkpoint whose size is at least"),
    Unproven("it is as of the order's first day, and no tree is shown", all_of(
        ON_THE_FIRST_DAY, dated("2026-11-20T23:59:59.999999Z")),
        ": no tree of all orders counts its entries yet"),
    Unproven("the last event is said to wait for its seal, for a minute", all_of(
        unsealed(delivery("dispute_won")), unsealed(revision(-1)), dated("2026-11-21T10:02:00Z")),
        "- parts that are not sealed yet, 2: dlv_"),
    Unproven("the log is said not to name the order",
             of("log.json", lambda log: log.update(order=None, tree=None)),
             "that everything in the bundle belongs to it: the key of the order's"),
    Unproven("another program has made it", unrendered(
        manifest(lambda e: e.update(program="0" * 64, release="9.9"), listed=True),
        note(lambda data: b"<h1>Paid in full</h1>", "report.html")),
        "that report.html, explanation.txt and README.txt agree with the data in the bundle: "
        "`tallyhook evidence verify` of release 9.9"),
)  # fmt: skip
