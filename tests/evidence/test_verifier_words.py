"""Sentences of the verifier: of each step, of what is not proven, and in the end."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from app.evidence.verify import (
    NOT_LISTED,
    VerifyStep,
    _repeats,
    _same,
    check_steps,
    main,
    report_lines,
    unproven,
    verdict,
)
from app.evidence.verify_archive import MANIFEST, SIGNATURE, Bundle, micros, pack
from app.evidence.verify_entries import (
    Chain,
    Readings,
    completeness,
    order_chain,
    readings,
    readings_of,
)
from app.evidence.verify_forms import Wrong
from tests.rows import for_each

AT: Final = "2026-11-20T10:00:00Z"


def bundle_of(members: dict[str, bytes], manifest: Any, **documents: Any) -> Bundle:
    """Return a bundle whose documents are these, whatever their files contain."""

    class Given(Bundle):
        def document(self, name: str) -> Any:
            known = documents[name.removesuffix(".json").replace("-", "_")]
            if known is None:
                raise Wrong(f"{name} is missing")
            return known

    return Given(members, manifest)


def delivery(name: str, **more: Any) -> dict[str, Any]:
    """Return a delivery's document: nothing of the delivery is in a file."""
    bare: dict[str, Any] = {
        "body": None,
        "headers": None,
        "headers_shown": [],
        "let_go_at": None,
        "problem": None,
    }
    return {"delivery": name, **bare, **more}


HEARD: Final = {"unread": [], "refused": 0, "sources": [], "unallocated": [], "not_kept": 0,
                "gaps": []}  # fmt: skip

COSIGNED: Final = "\n".join([
    "tallyhook.sandbox/1", "5", "head", "", f"\u2014 tallyhook.sandbox/1 {'A' * 92}",
    f"\u2014 witness.example {'B' * 104}", f"\u2014 of two words {'B' * 104}",
    f"\u2014 other.example {'C' * 104}", f"- no.example {'C' * 104}",
])  # fmt: skip


def rich(*, left_out: Any = None, redacted: bool = False, **documents: Any) -> Bundle:
    """Return a bundle with everything that can be left unproven."""
    members = dict.fromkeys(
        ("attachments.json", "times.json", "key-ab.pem", "key-cd.pem", "d1.headers", "d1.body"), b""
    )
    given: dict[str, Any] = {
        "history": {"deliveries": [
            {"delivery_id": "d1", "received_at": AT, "again": [["d3", AT], ["d4", AT]]},
            {"delivery_id": "d2", "received_at": AT},
        ]},
        "delivery_d1": delivery("d1", headers={"file": "d1.headers"}, body={"file": "d1.body"},
                                headers_shown=[["x", "a •"]], problem="no JSON"),
        "delivery_d2": delivery("d2", let_go_at=AT),
        "log": {
            "order": {"commitment": "aa", "key": "bb"},
            "parts": {
                "d1": {"order": {"hash": "x"}},
                "reading:d9:3": {"order": {"hash": "x"}},
                "rec_1": {"order": {"hash": "x"}, "said": {"salt": "x"}},
                "revision:1": {"because": {"hash": "x"}, "substance": {"hash": "x"}},
            },
            "origins": [{"log": "first", "leaves": 1234}, {"log": "now", "leaves": None}],
            "unsealed": ["a", "b", "c", "d", "e"],
        },
        "sessions": [{"record_id": "rec_5"}, {"record_id": "rec_6"}],
        "attachments": [
            {"content": None, "removed": None},
            {"content": {"file": "x"}, "removed": None},
            {"content": None, "removed": {"number": 7}},
        ],
        "heard": {
            "unread": [{"delivery": f"u{number}"} for number in range(5)],
            "unallocated": [{"payment": "p1"}],
            "sources": [{"source": "shop", "refusing_since": AT},
                        {"source": "till", "refusing_since": None}],
            "refused": 2, "not_kept": 3, "gaps": [{"since": AT, "until": "then"}],
        },
        "books": [{}], "sources": [{}],
    }  # fmt: skip
    manifest = {
        "order": "ORD-1", "redacted": redacted, "release": "r" * 41,
        "left_out": {"record-rec_5.details": {}} if left_out is None else left_out,
    }  # fmt: skip
    bundle = bundle_of(members | {"checkpoint.txt": COSIGNED.encode()}, manifest,
                       **given | documents)  # fmt: skip
    bundle._made[order_chain] = Chain([(3, "d1")], ["o1"], ["m1", "m2"], (7, AT))
    bundle._made[readings_of] = Readings(["d1"], ["d2"], ["d2", "d3"], ["d1", "d2"])
    return bundle


FACTS: Final = (
    f"left out since {AT}; up to then", "size is at least 8 left",
    "belong to this order, 1: o1; in the log",
    "do not belong to this order, 2: m1, m2; in the log",
    "log was not rewritten", "bundle is the shop's", f"release {'r' * 40} makes",
    "origin of the log: first from leaf 1,234 on",
    "names witness.example, other.example, and",
    "reads the bodies again, of 1 of 2",
    "if the log does not prove it: claims, money, references (history.json), of 1 of 2",
    "in texts that are masked (history.json), of 1 of 2",
    "in more than one way: claims, money, references (history.json), of 1 of 2",
    "method and headers of deliveries (delivery-ID.json), of 1 of 2",
    "signed bytes of deliveries", "signature of redeliveries", "body was deleted",
    "could not be read", "masked texts of headers", "key-FINGERPRINT.pem",
    "answers of the payment service", "books.json", "who made them",
    "not in the bundle (attachments.json), of 1 of 3",
    "unreadable messages state, 5: u0, u1, u2, u3; they may",
    "payments without an order are not for this order, 1: p1; their amount",
    f"arrived from shop: every delivery from it has been refused since {AT}",
    "3 unsigned requests", f"between {AT} and then", "refused messages state, 2 in all",
    "last delivered a readable message", "sources.json",
    "masked texts of records, revisions and audit entries, 3 in all",
    "time limits", "time zone", "not sealed yet, 5: a, b, c, d",
)  # fmt: skip
"""A part of each sentence, in the order of the sentences. Two are of the first."""


def test_everything_that_a_bundle_leaves_unproven_is_listed() -> None:
    """With the counts and the names, of which four are shown at most."""
    told = unproven(rich())
    assert FACTS[1] in told[0]
    for sentence, fact in zip(told, (FACTS[0], *FACTS[2:]), strict=True):
        assert fact in sentence


def bare() -> Bundle:
    """Return a bundle of an order of which only a price is known."""
    bundle = bundle_of(
        {}, {"left_out": {}, "redacted": False, "release": "r"},
        history={"deliveries": []}, log={"order": {"key": "bb"}, "parts": {}, "unsealed": []},
        sessions=[], attachments=[], heard=HEARD, books=[], sources=[],
    )  # fmt: skip
    bundle._made[order_chain] = Chain([(3, "d1")], [], [], (7, AT))
    bundle._made[readings_of] = Readings([], [], [], [])
    return bundle


def test_what_is_not_in_a_bundle_is_not_listed_as_unproven() -> None:
    told = unproven(bare(), 8)
    wanted = (
        f"left out since {AT}", "log was not rewritten", "bundle is the shop's", "release r makes",
        "last delivered a readable message", "time limits",
    )  # fmt: skip
    for sentence, fact in zip(told, wanted, strict=True):
        assert fact in sentence
    assert told[0].endswith(AT)


@for_each(
    ("changes", "left", "without", "more"),
    [
        ({}, 7, "", "; up to then, it is proven only"),
        ({}, 8, "; up to then", ""),
        ({"redacted": True}, 0, "masked texts of headers", ""),
        ({"left_out": {}}, 0, "answers of the payment service", ""),
        ({"left_out": {"record-rec_7.details": {}}}, 0, "answers of the payment service", ""),
        ({"log": {"order": {"key": None}, "parts": {}, "unsealed": ["a"]}}, 0,
         "masked texts of records", "belong to this order: its reference is masked"),
        ({"log": {"order": None, "parts": {}, "unsealed": ["a"]}}, 0,
         "under an earlier origin", "not sealed yet, 1: a"),
        ({"delivery_d1": delivery("d1", headers={"file": "d7.headers"})}, 0,
         "why a body could not be read", "method and headers of deliveries (delivery-ID.json)"),
        ({"delivery_d1": delivery("d1", body={"file": "d7.body"})}, 0,
         "reads the bodies again", "in texts that are masked"),
        ({"history": {"deliveries": []}}, 0, "signed bytes of deliveries", "time limits"),
        ({"sessions": []}, 0, "answers of the payment service", "masked texts of headers"),
    ],
)  # fmt: skip
def test_a_change_of_a_bundle_changes_what_is_unproven(
    changes: dict[str, Any], left: int, without: str, more: str
) -> None:
    told = "\n".join(unproven(rich(**changes), left))
    assert more in told
    assert not without or without not in told


def test_unproven_parts_of_the_order_are_those_that_the_log_shows() -> None:
    bundle = rich()
    bundle._made[order_chain] = Chain([(3, "d1")], [], [], None)
    assert unproven(bundle)[0].endswith(": no tree of all orders counts its entries yet")
    bundle._made[order_chain] = Chain([], [], [], None)
    told = unproven(bundle)
    assert "the key of the order's pseudonym in the log is missing" in told[0]
    assert "log was not rewritten" in told[1]


@pytest.mark.parametrize("name", ["log", "history", "heard"])
def test_of_a_malformed_bundle_everything_is_unproven(name: str) -> None:
    wrongs: list[Any] = [None, [], {}]
    for wrong in wrongs:
        given: dict[str, Any] = {name: wrong}
        assert unproven(rich(**given)) == [NOT_LISTED]


# --- steps, report and verdict --------------------------------------------------------------------


A_FILE: Final = {"sha256": "0" * 64, "size": 1}


def small(**said: Any) -> bytes:
    """Return the archive of a bundle with one file."""
    manifest: dict[str, Any] = {
        "as_of": AT, "files": {"a.txt": A_FILE},
        "format": "tallyhook evidence 2", "left_out": {}, "order": "ORD-1", "program": "0" * 64,
        "redacted": True, "release": "1",
    }  # fmt: skip
    data = json.dumps(manifest | said, sort_keys=True, separators=(",", ":")).encode()
    return pack({MANIFEST: data, SIGNATURE: b"", "a.txt": b"1"})


def raising(error: Exception) -> Any:
    def check(bundle: Bundle) -> str:
        raise error

    return check


def test_each_step_says_what_it_found() -> None:
    """A sentence begins with a capital letter, unless it begins with the name of a file."""
    checks: list[tuple[str, Any]] = [
        ("one", lambda bundle: "All is well."),
        ("two", lambda bundle: (None, "Not here.")),
        ("three", raising(Wrong("the body is another"))),
        ("four", raising(Wrong("a.txt is another"))),
        ("five", raising(KeyError("x"))),
    ]
    bundle, steps = check_steps(small(), checks, micros(AT))
    assert bundle is not None
    assert steps == [
        ("archive", True, "The ZIP contains 3 files and nothing else."),
        ("manifest", True, "The manifest names the 1 other files and nothing else."),
        ("one", True, "All is well."),
        ("two", None, "Not here."),
        ("three", False, "The body is another."),
        ("four", False, "a.txt is another."),
        ("five", False, "The checked data is malformed: KeyError."),
    ]


@for_each(
    ("archive", "name", "said"),
    [
        (b"", "archive", "it is not a ZIP"),
        (small(format="1"), "manifest", "does not have the format"),
        (small(files={}), "manifest", "a.txt is not in the manifest."),
        (small(files=dict.fromkeys(("a.txt", "b.txt"), A_FILE)), "manifest", "b.txt is missing."),
        (pack({MANIFEST: b"{}"}), "manifest", "manifest.json.minisig is missing"),
        (pack({SIGNATURE: b""}), "manifest", "manifest.json.minisig is missing"),
    ],
)
def test_no_step_follows_one_that_leaves_nothing_to_check(
    archive: bytes, name: str, said: str
) -> None:
    bundle, steps = check_steps(archive, [("one", lambda bundle: "well")], micros(AT))
    assert bundle is None
    assert said in steps[-1].sentence
    assert [each.name for each in steps] == ["archive", "manifest"][: 1 + (name == "manifest")]
    assert [each.passed for each in steps] == [True, False][name == "archive" :]


PASSED, SKIPPED, FAILED = (
    VerifyStep(name, passed, "Said.")
    for name, passed in (("one", True), ("the_second", None), ("the_third", False))
)


@for_each(
    ("steps", "said"),
    [
        ([PASSED], "Every check passed."),
        ([PASSED, SKIPPED], "Every check that was made passed; not checked: the second."),
        ([FAILED, SKIPPED, FAILED], "DO NOT RELY ON IT: the third, the third failed."),
        ([], "Every check passed."),
    ],
)
def test_the_verdict_names_what_failed_or_what_was_not_checked(steps: Any, said: str) -> None:
    assert verdict(steps) == said


def test_a_report_begins_with_the_verdict_and_numbers_its_steps() -> None:
    steps = [PASSED, SKIPPED]
    numbered = ["1. one: passed. Said.", "2. the second: not checked. Said."]
    assert report_lines(steps) == [verdict(steps), *numbered]
    assert report_lines([*steps, FAILED], ["that it rained"]) == [
        verdict([FAILED]),
        "Not proven, but only stated by the maker of the bundle:",
        "- that it rained",
        *numbered,
        "3. the third: FAILED. Said.",
    ]


@pytest.mark.parametrize("words", [[], ["a", AT, AT], ["a", "now"], ["a", ""]])
def test_wrong_arguments_are_answered_with_the_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, error = capsys.readouterr()
    assert (out, error.startswith("usage: python3 -I verify.py bundle.zip [NOW]\n")) == ("", True)


def test_a_file_that_cannot_be_read_is_no_bundle_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "b.zip")
    assert main([name]) == 2
    assert capsys.readouterr() == ("", f"{name} cannot be read: No such file or directory\n")
    Path(name).write_bytes(b"x")
    assert main([name]) == 1
    assert capsys.readouterr().out.startswith("DO NOT RELY ON IT: archive failed.\n1. archive: ")


# --- entries of the log and readings --------------------------------------------------------------


@for_each(
    ("entries", "tree", "key", "passed", "said"),
    [
        ([(3, "d1"), (5, "d2")], (7, AT), "bb", True,
         "The bundle contains the log's entries 1 to 2 for this order without a gap, including all "
         f"that the tree of all orders of {AT} counts."),
        ([(3, "d1")], None, None, None,
         "The bundle contains the log's entries 1 to 1 for this order without a gap; its reference "
         "is masked."),
        ([], None, "bb", None,
         "The bundle lacks the key that proves the order's pseudonym in the log, so the order's "
         "entries cannot be counted."),
    ],
)  # fmt: skip
def test_all_entries_of_an_order_are_counted(
    entries: Any, tree: Any, key: str | None, passed: bool | None, said: str
) -> None:
    bundle = bundle_of({}, {}, log={"order": {"key": key}})
    bundle._made[order_chain] = Chain(entries, [], [], tree)
    assert completeness(bundle) == (passed, said)


def test_readings_are_counted_by_how_well_the_log_proves_them() -> None:
    """A reading in more than one way is counted among the others, too."""
    bundle = bundle_of({}, {})
    bundle._made[readings_of] = Readings(["a", "b"], [], [], ["a"])
    words = "Events in history.json that equal the sealed event: "
    assert readings(bundle) == (True, f"{words}2 of 2.")
    bundle._made[readings_of] = Readings(["a", "b"], ["c", "d", "e"], ["f"], [])
    assert readings(bundle) == (
        None, f"{words}2 of 6. Equal except for masked texts: 3. Not sealed yet: 1."
    )  # fmt: skip


# --- parts of a bundle that must agree ------------------------------------------------------------


@for_each(
    ("again", "right"),
    [
        ([], True),
        ([["d3", "2026-11-20T10:00:01Z"], ["d4", "2026-11-20T10:00:01Z"]], True),
        ([["d3", AT]], True),
        ([["d2", AT]], False),
        ([["d1", AT]], False),
        ([["d3", "2026-11-20T09:59:59.999Z"]], False),
        ([["d4", "2026-11-20T10:00:01Z"], ["d3", "2026-11-20T10:00:01Z"]], False),
        ([["d4", "2026-11-20T10:00:02Z"], ["d5", "2026-11-20T10:00:01Z"]], False),
        ([["d3", "2026-11-20T10:00:01Z"], ["d3", "2026-11-20T10:00:01Z"]], False),
    ],
)
def test_redeliveries_are_listed_by_arrival_after_the_first(
    again: list[list[str]], right: bool
) -> None:
    """Those of one instant by their ids."""
    heard = {"delivery_id": "d2", "received_at": AT, "again": again}
    if right:
        _repeats(heard)
        return
    with pytest.raises(Wrong, match="arrived before the first delivery of its event, or is out of"):
        _repeats(heard)


@for_each(
    ("shown", "kept", "same"),
    [
        ("a", "a", True), ("a", "b", False), ("a •", "b", True), (1, 1, True), (1, True, False),
        (1, 1.0, False), (None, None, True), (float("nan"), float("nan"), True),
        ([], [], True), (["a", 1], ["a", 1], True), (["a"], ["a", 1], False),
        (["a", 1], ["a"], False), (["a", 2], ["a", 1], False), (["•", 2], ["a", 2], True),
        ({"x": "a"}, {"x": "a"}, True), ({"x": "a"}, {"x": "b"}, False),
        ({"x": "a"}, {"y": "a"}, False), ({"x": "•"}, {"x": {"y": 1}}, True),
        ({"x": "a", "y": 1}, {"x": "a"}, False), ({"x": "a"}, {"x": "a", "y": 1}, False),
        ([], {}, False), ({}, [], False), ([{"x": [1]}], [{"x": [1]}], True),
    ],
)  # fmt: skip
def test_a_masked_text_agrees_with_any_value_and_nothing_else_does(
    shown: Any, kept: Any, same: bool
) -> None:
    assert _same(shown, kept) is same
