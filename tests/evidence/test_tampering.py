"""Nothing in a bundle can be changed unseen, and a hostile ZIP is refused before it costs much."""

import io
import json
import random
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import rfc8785

from app.evidence.bundle import KEY, KEY_PEM
from app.evidence.keys import EvidenceKey, read_public_key
from app.evidence.verify import MANIFEST, MAX_BYTES, SIGNATURE, pack, unpack
from app.evidence.verify_evidence import verify_evidence
from app.providers.profile import MAX_FILE_BYTES
from tests.evidence.conftest import Bundles, Forge, Members, changed, failed, refolded, steps


@pytest.mark.slow
def test_every_changed_byte_is_found(bundles: Bundles) -> None:
    """Seeded positions in every file's content and header, and in the directory at the end."""
    archive, chance = bundles.full, random.Random("evidence")
    starts = [at for at in range(len(archive)) if archive.startswith(b"PK\3\4", at)] + [
        archive.index(b"PK\1\2"),
        len(archive),
    ]
    positions = {
        at
        for begin, end in pairwise(starts)
        for at in [*range(begin, begin + 30), *(chance.randrange(begin, end) for _ in range(12))]
    }
    assert len(positions) > 1_000
    for at in sorted(positions | set(range(len(archive) - 22, len(archive)))):
        flipped = bytearray(archive)
        flipped[at] ^= 1 << chance.randrange(8)
        assert failed(bytes(flipped)) == ["archive"], f"byte {at}"


@pytest.mark.slow
def test_a_changed_file_in_a_sound_archive_is_found(bundles: Bundles) -> None:
    """Each file, at one seeded position, packed again as a bundle: its digest, or the signature."""
    files, chance = unpack(bundles.full), random.Random("files")
    for name, data in files.items():
        at, flipped = chance.randrange(len(data)), bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        found = failed(pack({**files, name: bytes(flipped)}))
        first = {MANIFEST: {"manifest", "signature", "digests"}, SIGNATURE: {"signature"}}
        assert found, f"{name} at {at}"
        assert found[0] in first.get(name, {"digests"}), f"{name} at {at}"


def test_the_untrusted_comment_is_the_one_that_was_written(bundles: Bundles) -> None:
    """Minisign lets anyone change it; here a changed one is found all the same."""
    files = unpack(bundles.full)
    other = files[SIGNATURE].replace(b"evidence", b"interest", 1)
    assert failed(pack({**files, SIGNATURE: other})) == ["signature"]


@pytest.mark.parametrize("name", ["ledger.json", "verify.py", MANIFEST, SIGNATURE, KEY])
def test_a_missing_added_or_renamed_file_is_found(bundles: Bundles, name: str) -> None:
    files = unpack(bundles.redacted)
    without = {each: data for each, data in files.items() if each != name}
    assert failed(pack(without)) == ["manifest"]
    assert failed(pack({**without, f"x-{name.partition('.')[0]}.json": files[name]}))
    assert failed(pack({**files, "more.txt": b""})) == ["manifest"]


def test_a_forger_with_a_key_of_their_own_is_not_the_shop(
    bundles: Bundles, forge: Forge, forger: EvidenceKey
) -> None:
    """Signed again by another key everything fits, but the key is not the one to trust."""
    own = read_public_key(unpack(bundles.redacted)[KEY].decode())
    forged = forge(bundles.redacted, lambda members: None)
    assert failed(bundles.redacted, trusted=own) == []
    assert failed(bundles.redacted, trusted=forger.public) == ["signature"]
    assert failed(forged, trusted=own) == ["signature"]
    assert failed(forged) == []


def _cheaper(members: Members, amount: str) -> None:
    """Change the price in the shop's record, and all that follows from it."""

    def change(history: Any) -> None:
        for each in history["records"]:
            if each["kind"] == "order_placed":
                each["money"]["amount"] = amount

    changed("history.json", change)(members)
    with suppress(ValueError):
        refolded(members)
        explained = json.loads(members["ledger.json"])["explanation"]
        members["explanation.txt"] = "".join(f"{each}\n" for each in explained).encode()


IN_NO_FORM = [
    "digests", "deliveries", "inclusion", "readings", "completeness", "ledger", "bodies",
    "provider_signatures", "rendered",
]  # fmt: skip


@pytest.mark.parametrize(
    ("amount", "steps"),
    [
        ("1000.00", ["inclusion"]),
        ("15000.0", IN_NO_FORM),
        ("0150000", IN_NO_FORM),
    ],
)
def test_another_price_is_found_without_the_key(
    bundles: Bundles, forge: Forge, amount: str, steps: list[str]
) -> None:
    """Everything follows from it, but the log has sealed what the shop said; that its digits are
    those of another amount helps nobody."""
    for archive in (bundles.redacted, bundles.full):
        assert failed(forge(archive, lambda members: _cheaper(members, amount))) == steps


@pytest.mark.parametrize("author", ["token:somebody", None])
def test_another_author_is_found_without_the_key(
    bundles: Bundles, forge: Forge, author: str | None
) -> None:
    """Who stated the price is sealed with it, and cannot be left out either."""

    def change(history: Any) -> None:
        (placed,) = [each for each in history["records"] if each["kind"] == "order_placed"]
        assert placed.pop("author") == "token:shop"
        placed.update({} if author is None else {"author": author})

    assert failed(forge(bundles.full, changed("history.json", change))) == ["inclusion"]


def test_another_answer_of_the_service_is_found_without_the_key(
    bundles: Bundles, forge: Forge
) -> None:
    """The log has sealed what was kept beside a record."""
    name = next(each for each in unpack(bundles.full) if each.endswith(".details"))

    def change(members: Members) -> None:
        members[name] = b'{"status":"refused"}'
        sessions = json.loads(members["sessions.json"])
        (each,) = [each for each in sessions if name == f"record-{each['record_id']}.details"]
        each["details"] = '{"status":"refused"}'
        members["sessions.json"] = rfc8785.dumps(sessions)

    assert failed(forge(bundles.full, change)) == ["inclusion"]


def _reordered(log: Any) -> None:
    proof = max((each["proof"] for each in log["leaves"]), key=len)
    proof[0], proof[1] = proof[1], proof[0]


def _changed_leaf(log: Any) -> None:
    leaf = next(each for each in log["leaves"] if '"kind":"delivery"' in each["leaf"])
    leaf["leaf"] = leaf["leaf"].replace('"shop"', '"other"')


def _resalted(log: Any) -> None:
    leaf = json.loads(log["leaves"][3]["leaf"]) | {"salt": "00" * 16}
    log["leaves"][3]["leaf"] = json.dumps(leaf, sort_keys=True, separators=(",", ":"))


def _richer(history: Any) -> None:
    for each in history["deliveries"]:
        if "money" in each["event"]:
            each["event"]["money"]["amount"] = "1600.00"


FORGERIES: dict[str, tuple[str, Callable[[Any], object], set[str]]] = {
    "a proof in another order": ("log.json", _reordered, {"inclusion"}),
    "leaves in another order": (
        "log.json", lambda log: log["leaves"].insert(0, log["leaves"].pop(1)), {"inclusion"},
    ),
    "a leaf that says otherwise": ("log.json", _changed_leaf, {"inclusion"}),
    "a leaf that was not hashed": ("log.json", _resalted, {"inclusion"}),
    "another digest": (
        "history.json",
        lambda history: history["deliveries"][5]["event"].update(digest="0" * 64),
        {"deliveries"},
    ),
    "a leaf whose text is left out": (
        "log.json", lambda log: log["leaves"][0].update(leaf=None), {"inclusion"},
    ),
    "a leaf left out": ("log.json", lambda log: log["leaves"].pop(2), {"inclusion"}),
    "another time of arrival": (
        "history.json",
        lambda history: history["deliveries"][5].update(received_at="2026-11-20T10:01:01Z"),
        {"deliveries", "ledger"},
    ),
    "other amounts": ("history.json", _richer, {"ledger", "bodies"}),
    "another conclusion": (
        "ledger.json", lambda ledger: ledger.update(fulfillable=True), {"ledger"},
    ),
    "another time of the order": (
        "history.json",
        lambda history: history["records"][0].update(at="2026-11-20T09:00:00Z"),
        {"inclusion"},
    ),
    "another revision": (
        "revisions.json", lambda listed: listed[-1].update(outcome="succeeded"), {"inclusion"},
    ),
    "another outcome before": (
        "revisions.json", lambda listed: listed[-1].update(before="succeeded"), {"inclusion"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGERIES)
def test_what_does_not_hang_together_is_found_without_the_key(
    bundles: Bundles, forge: Forge, what: str
) -> None:
    """A second signature with a trusted key does not hide a change."""
    name, change, steps = FORGERIES[what]
    assert steps <= set(failed(forge(bundles.full, changed(name, change)))), what


def test_a_checkpoint_that_is_not_signed_is_found(bundles: Bundles, forge: Forge) -> None:
    """The proofs lead to it, but no key of this log signed it."""

    def change(members: Members) -> None:
        body, _, line = members["checkpoint.txt"].decode().rpartition(" ")
        swapped = line[:20] + line[20:40][::-1] + line[40:]
        members["checkpoint.txt"] = f"{body} {swapped}".encode()

    assert failed(forge(bundles.full, change)) == ["checkpoint"]


def test_two_keys_that_differ_are_found(bundles: Bundles, forge: Forge) -> None:
    """Without the step minisign and openssl would be given different keys."""
    own = unpack(bundles.full)[KEY_PEM].decode()
    forged = forge(bundles.full, lambda members: None, pem=own)
    assert failed(forged) == ["signature", "checkpoint", "rendered"]


def test_another_body_is_found_without_the_key(bundles: Bundles, forge: Forge) -> None:
    """A body that was changed together with every digest of it is still not in the log."""
    name = next(each for each in unpack(bundles.full) if each.endswith(".body"))

    def change(members: Members) -> None:
        members[name] = members[name].replace(b"1500", b"1600")

    assert "deliveries" in failed(forge(bundles.full, change))


def test_hostile_json_is_not_in_form(bundles: Bundles, forge: Forge) -> None:
    """Whatever JSON a file is: a step fails with a sentence, and nothing is raised."""
    for name in ("history.json", "log.json", "sources.json", "ledger.json", "revisions.json"):
        for text in (b"[" * 100_000, b"null", b"[]", b"{}", b'"\\ud800"', b"[null]", b"1e999",
                     b'{"leaves": 1}', b"\xff"):  # fmt: skip
            found = verify_evidence(forge(bundles.full, lambda m, n=name, t=text: m.update({n: t})))
            assert not found.valid or (name == "sources.json" and len(text) == 2), (name, text)
    files = unpack(bundles.full)
    for text in (b"{}", b"[]", b'{"format": "tallyhook evidence 2", "files": "\\ud800"}'):
        assert failed(pack({**files, MANIFEST: text})) == ["manifest"]


# --- hostile archives ----------------------------------------------------------------------------


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], **words: Any) -> bytes:
    """Return a ZIP as a common tool writes it."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", **words) as archive:
        warnings.simplefilter("ignore")  # for a name that comes twice
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("README.txt", (1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def patched(archive: bytes, at: int, form: str, value: int) -> bytes:
    return archive[:at] + struct.pack(form, value) + archive[at + struct.calcsize(form) :]


GOOD = pack({"README.txt": b"x" * 9, "ledger.json": b"{}"})
BOMB = zipped(("README.txt", b"\0" * 5_000_000), compression=zipfile.ZIP_DEFLATED)
DIRECTORY = GOOD.index(b"PK\1\2")

HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no ZIP"),
    "no ZIP": (b"hello", "no ZIP"),
    "only an end": (zipped(), "no ZIP"),
    "dots": (zipped(("../x.txt", b"")), "name"),
    "absolute": (zipped(("/etc/x.txt", b"")), "name"),
    "a drive letter": (zipped(("C:x.txt", b"")), "name"),
    "a backslash": (zipped(("a\\x.txt", b"")), "name"),
    "a folder": (zipped(("a/", b"")), "name"),
    "no name": (pack({"": b""}), "name"),
    "another program": (zipped(("sitecustomize.py", b"")), "name"),
    "NUL in a name": (pack({"a\0.txt": b""}), "name"),
    "a link": (zipped((link(), b"/etc/passwd")), "not what its files make"),
    "a bomb by ratio": (BOMB, "compressed"),
    "a bomb by size": (patched(GOOD, 18, "<II"[:2], 0xFFFFFFFE), "compressed"),
    "two names": (zipped(("a.txt", b"1"), ("a.txt", b"2")), "twice"),
    "another order": (zipped(("b.txt", b""), ("a.txt", b"")), "out of order"),
    "many files": (pack({f"f{n:05}.txt": b"" for n in range(10_001)}), "more than 10000"),
    "claims more": (patched(patched(GOOD, 18, "<I", 9**9), 22, "<I", 9**9), "more bytes"),
    "overlapping": (patched(GOOD, len(GOOD) - 6, "<I", DIRECTORY - 40), "not what its files"),
    "encrypted": (patched(GOOD, 6, "<H", 1), "encrypted"),
    "streamed": (patched(GOOD, 6, "<H", 8), "streamed"),
    "zip64": (patched(patched(GOOD, 18, "<I", 2**32 - 1), 22, "<I", 2**32 - 1), "more bytes"),
    "an extra field": (patched(GOOD, 28, "<H", 4), "extra"),
    "another directory": (patched(GOOD, DIRECTORY + 46, "<B", ord("X")), "not what its files"),
    "a comment": (patched(GOOD, len(GOOD) - 2, "<H", 2) + b"hi", "not what its files"),
    "something after": (GOOD + b"\0", "not what its files"),
    "something before": (b"\0" + GOOD, "no ZIP"),
    "another date": (zipped(("README.txt", b"")), "not what its files"),
    "cut short": (GOOD[:-1], "not what its files"),
    "cut in a header": (GOOD[:20], "middle of a file's header"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_zip_is_refused_with_a_reason(what: str) -> None:
    """In memory that its own size bounds: nothing is decompressed."""
    archive, reason = HOSTILE[what]
    tracemalloc.start()
    (step,) = verify_evidence(archive).steps
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (step.name, step.passed) == ("archive", False)
    assert reason in step.sentence
    assert most < 6 * len(archive) + 4_000_000


def test_a_file_beyond_the_bound_is_not_looked_at() -> None:
    (step,) = verify_evidence(bytes(MAX_BYTES + 1)).steps
    assert "larger than" in step.sentence


def test_the_archive_is_a_zip_for_others_too(bundles: Bundles) -> None:
    """What we write, the standard library reads, and finds no fault."""
    with zipfile.ZipFile(io.BytesIO(bundles.full)) as archive:
        assert archive.testzip() is None
        read = {each: archive.read(each) for each in archive.namelist()}
    assert read == unpack(bundles.full)
    assert json.loads(read[MANIFEST])["redacted"] is False


def test_a_strangers_profile_is_not_read_for_long(bundles: Bundles, forge: Forge) -> None:
    """A parser of TOML takes a minute for a hundred thousand keys: no profile is so large."""

    def grow(members: Members) -> None:
        members["profile-1.toml"] += b"#" * MAX_FILE_BYTES

    step = steps(forge(bundles.full, grow))["bodies"]
    assert step.passed is False
    assert "is larger than" in step.sentence


def test_a_strangers_words_move_no_terminal(bundles: Bundles, forge: Forge) -> None:
    """The maker of a bundle chooses its names, so each step prints them escaped."""

    def rename(members: Members) -> None:
        members["history.json"] = members["history.json"].replace(
            b'"delivery_id":"', '"delivery_id":"\\u001b[2J\u009b\u202e'.encode(), 1
        )

    found = verify_evidence(forge(bundles.redacted, rename)).steps
    assert any("?[2J??" in each.sentence for each in found if each.passed is False)
    assert all(each.sentence.isprintable() for each in found)
