"""Tampering with a bundle is found, and a hostile ZIP is refused before it costs much."""

import io
import json
import random
import struct
import tracemalloc
import warnings
import zipfile
from itertools import pairwise
from typing import Any

import pytest

from app.evidence.bundle import KEY
from app.evidence.keys import EvidenceKey, read_public_key
from app.evidence.verify import MANIFEST, MAX_BYTES, SIGNATURE, pack, unpack
from app.evidence.verify_evidence import verify_evidence
from app.providers.profile import MAX_FILE_BYTES
from reconcile.instants import SECOND, Instant
from tests.evidence.conftest import Bundles, Forge, Members, failed, steps
from tests.evidence.world import LATER
from tests.rows import for_each


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


@for_each("name", ["ledger.json", "verify.py", MANIFEST, SIGNATURE, KEY])
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
    "nothing": (b"", "not a ZIP"),
    "not a ZIP": (b"hello", "not a ZIP"),
    "only an end": (zipped(), "not a ZIP"),
    "dots": (zipped(("../x.txt", b"")), "name"),
    "absolute": (zipped(("/etc/x.txt", b"")), "name"),
    "a drive letter": (zipped(("C:x.txt", b"")), "name"),
    "a backslash": (zipped(("a\\x.txt", b"")), "name"),
    "a folder": (zipped(("a/", b"")), "name"),
    "no name": (pack({"": b""}), "name"),
    "another version": (zipped(("sitecustomize.py", b"")), "name"),
    "NUL in a name": (pack({"a\0.txt": b""}), "name"),
    "a link": (zipped((link(), b"/etc/passwd")), "not match its files"),
    "a bomb by ratio": (BOMB, "compressed"),
    "a bomb by size": (patched(GOOD, 18, "<II"[:2], 0xFFFFFFFE), "compressed"),
    "two names": (zipped(("a.txt", b"1"), ("a.txt", b"2")), "is duplicated"),
    "another order": (zipped(("b.txt", b""), ("a.txt", b"")), "out of order"),
    "many files": (pack({f"f{n:05}.txt": b"" for n in range(60_001)}), "more than 60000"),
    "states more": (patched(patched(GOOD, 18, "<I", 9**9), 22, "<I", 9**9), "more bytes"),
    "overlapping": (patched(GOOD, len(GOOD) - 6, "<I", DIRECTORY - 40), "not match its files"),
    "encrypted": (patched(GOOD, 6, "<H", 1), "encrypted"),
    "streamed": (patched(GOOD, 6, "<H", 8), "streamed"),
    "zip64": (patched(patched(GOOD, 18, "<I", 2**32 - 1), 22, "<I", 2**32 - 1), "more bytes"),
    "an extra field": (patched(GOOD, 28, "<H", 4), "extra"),
    "another directory": (patched(GOOD, DIRECTORY + 46, "<B", ord("X")), "not match its files"),
    "a comment": (patched(GOOD, len(GOOD) - 2, "<H", 2) + b"hi", "not match its files"),
    "something after": (GOOD + b"\0", "not match its files"),
    "something before": (b"\0" + GOOD, "not a ZIP"),
    "another date": (zipped(("README.txt", b"")), "not match its files"),
    "cut short": (GOOD[:-1], "not match its files"),
    "cut in a header": (GOOD[:20], "header of a file is cut off"),
}


@for_each("what", HOSTILE)
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
    assert "the maximum for a bundle" in step.sentence


def test_the_archive_is_a_zip_for_others_too(bundles: Bundles) -> None:
    """What we write, the standard library reads, and finds no fault."""
    with zipfile.ZipFile(io.BytesIO(bundles.full)) as archive:
        assert archive.testzip() is None
        read = {each: archive.read(each) for each in archive.namelist()}
        attributes = {
            (each.date_time, each.create_system, each.create_version, each.external_attr >> 16)
            for each in archive.infolist()
        }
    assert attributes == {((1980, 1, 1, 0, 0, 0), 3, 20, 0o100644)}
    assert read == unpack(bundles.full)
    assert json.loads(read[MANIFEST])["redacted"] is False


def test_the_archive_is_what_another_writer_makes_of_the_same_files() -> None:
    files = {"b.txt": b"second" * 9, "README.txt": b"first", "c.json": b""}
    members = []
    for name in sorted(files):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.create_system, info.external_attr = 3, 0o100644 << 16
        members.append((info, files[name]))
    assert pack(files) == zipped(*members)


def test_a_bundle_may_be_ahead_of_the_verifiers_clock_by_five_minutes(bundles: Bundles) -> None:
    ahead = Instant(LATER - 300 * SECOND)
    assert failed(bundles.redacted, now=ahead) == []
    assert failed(bundles.redacted, now=Instant(ahead - 1)) == ["manifest"]


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
