"""Signatures in minisign's format: its own tool takes them, and no change goes through."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.evidence.keys import (
    EvidenceKey,
    NotSigned,
    PublicKey,
    key_name,
    minisign_signature,
    public_key_line,
    public_key_text,
    read_public_key,
    trusted_comment,
)
from tests.rows import for_each
from tests.waiting import PATIENCE_S

KEY = EvidenceKey(Ed25519PrivateKey.from_private_bytes(b"only for these tests, 32 bytes!!"))
OTHER = EvidenceKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
DATA = b'{"order":"ORD-1042"}'
COMMENT = "order ORD-1042 as of 2026-11-20T10:00:00Z"
SIGNED = minisign_signature(KEY, DATA, comment=COMMENT)


def test_what_was_signed_is_verified() -> None:
    assert trusted_comment(KEY.public, DATA, SIGNED) == COMMENT
    assert read_public_key(public_key_text(KEY.public)) == KEY.public
    assert read_public_key(public_key_line(KEY.public)) == KEY.public


def test_equal_bytes_give_equal_signatures() -> None:
    assert minisign_signature(KEY, DATA, comment=COMMENT) == SIGNED


def test_the_tool_takes_the_signature_and_refuses_a_change(tmp_path: Path) -> None:
    tool = shutil.which("minisign")
    if tool is None:
        pytest.skip("minisign is not installed")
    (tmp_path / "m").write_bytes(DATA)
    (tmp_path / "m.minisig").write_text(SIGNED)
    (tmp_path / "k").write_text(public_key_text(KEY.public))

    def verify(*key: str) -> tuple[int, str]:
        words = [tool, "-V", "-m", str(tmp_path / "m"), *key]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return done.returncode, done.stdout

    code, said = verify("-p", str(tmp_path / "k"))
    assert code == 0
    assert f"Trusted comment: {COMMENT}" in said
    assert verify("-P", public_key_line(KEY.public))[0] == 0
    assert verify("-P", public_key_line(OTHER.public))[0] != 0
    (tmp_path / "m").write_bytes(DATA + b" ")
    assert verify("-p", str(tmp_path / "k"))[0] != 0


def test_the_key_is_named_as_the_tool_names_it(tmp_path: Path) -> None:
    tool = shutil.which("minisign")
    if tool is None:
        pytest.skip("minisign is not installed")
    (tmp_path / "m").write_bytes(DATA)
    (tmp_path / "m.minisig").write_text(SIGNED)
    words = [tool, "-V", "-m", str(tmp_path / "m"), "-P", public_key_line(OTHER.public)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert key_name(KEY.public) in done.stdout + done.stderr


def test_every_single_byte_that_is_changed_is_found() -> None:
    """In the data and in the three signed lines; the untrusted comment is nobody's word."""
    first_signed = SIGNED.index("\n") + 1
    for place in range(len(DATA)):
        changed = DATA[:place] + bytes([DATA[place] ^ 1]) + DATA[place + 1 :]
        with pytest.raises(NotSigned):
            trusted_comment(KEY.public, changed, SIGNED)
    for place in range(first_signed, len(SIGNED)):
        for other in (chr(ord(SIGNED[place]) ^ 1), "", SIGNED[place] * 2):
            changed_text = SIGNED[:place] + other + SIGNED[place + 1 :]
            with pytest.raises(NotSigned):
                trusted_comment(KEY.public, DATA, changed_text)


def test_bits_that_decode_to_nothing_cannot_be_changed() -> None:
    """A last character before the padding has bits that no byte takes: they must be zero."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    lines = SIGNED.split("\n")
    for place in (1, 3):
        last = len(lines[place].rstrip("=")) - 1
        line = lines[place]
        other = alphabet[alphabet.index(line[last]) + 1]
        changed = line[:last] + other + line[last + 1 :]
        assert base64.b64decode(changed) == base64.b64decode(line)
        with pytest.raises(NotSigned):
            trusted_comment(
                KEY.public, DATA, "\n".join([*lines[:place], changed, *lines[place + 1 :]])
            )


def _with_algorithm(name: bytes) -> str:
    lines = SIGNED.split("\n")
    lines[1] = base64.b64encode(name + base64.b64decode(lines[1])[2:]).decode()
    return "\n".join(lines)


@for_each(
    ("public", "text", "reason"),
    [
        (OTHER.public, SIGNED, "another key"),
        (KEY.public, "", "four lines"),
        (KEY.public, SIGNED + "\n", "four lines"),
        (KEY.public, _with_algorithm(b"Ed"), "does not use BLAKE2b"),
        (KEY.public, SIGNED.replace("trusted comment: order", "x: order"), "comment is missing"),
    ],
)
def test_what_is_no_signature_is_refused_with_its_reason(
    public: PublicKey, text: str, reason: str
) -> None:
    with pytest.raises(NotSigned, match=reason):
        trusted_comment(public, DATA, text)


@for_each("text", ["", "x", "RWQ=", public_key_line(KEY.public)[:-4], SIGNED])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(NotSigned):
        read_public_key(text)


@for_each("comment", ["two\nlines", "x" * 1_025, "\x00"])
def test_a_comment_is_one_line(comment: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        minisign_signature(KEY, DATA, comment=comment)
