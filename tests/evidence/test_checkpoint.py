"""Checkpoints as signed notes: a published note verifies, ours have the form, changes are found."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.core.errors import UsageError
from app.evidence.keys import EvidenceKey, PublicKey
from app.evidence.seal import (
    Checkpoint,
    NotACheckpoint,
    note_holds,
    read_checkpoint,
    signed_checkpoint,
    signed_note,
    verifier_key,
)
from app.evidence.verify import Wrong
from app.evidence.verify_entries import checkpoint_of
from app.evidence.verify_evidence import read_kept
from tests.rows import for_each

PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpR"
    "Zb6KE6RyyBwJnAM=\n"
)
"""The example of golang.org/x/mod/sumdb/note, whose form C2SP's signed-note keeps."""

KEY = EvidenceKey(Ed25519PrivateKey.from_private_bytes(b"only for these tests, 32 bytes!!"))
OTHER = EvidenceKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
ORIGIN = "tallyhook.sandbox/0123456789ab"
POINT = Checkpoint(origin=ORIGIN, size=20_852_163, head=bytes(range(32)))
SIGNED = signed_checkpoint(KEY, POINT)


def verified(note: str) -> Checkpoint:
    """Return the checkpoint that our key signed for our log. Raises NotACheckpoint for another."""
    found = read_checkpoint(note)
    if found.origin != ORIGIN or not note_holds(note, name=ORIGIN, public=KEY.public):
        raise NotACheckpoint
    return found


def test_the_published_note_verifies_with_its_published_key() -> None:
    name, _, encoded = PETER.split("+", 2)
    public = PublicKey(base64.b64decode(encoded)[1:])
    assert verifier_key(name, public) == PETER
    assert note_holds(NOTE, name=name, public=public)
    assert not note_holds(NOTE.replace("answer", "Answer"), name=name, public=public)


def test_a_checkpoint_has_the_form_that_other_tools_read() -> None:
    lines = SIGNED.split("\n")
    assert lines[:4] == [ORIGIN, "20852163", base64.b64encode(POINT.head).decode(), ""]
    assert lines[4].startswith(f"— {ORIGIN} ")
    assert lines[5:] == [""]
    assert verified(SIGNED) == POINT


def test_signatures_of_others_and_further_lines_are_passed_over() -> None:
    body = POINT.body() + "an extension\n"
    note = signed_note(OTHER, name="witness", body=body)
    note += signed_note(KEY, name=ORIGIN, body=body).split("\n\n")[1]
    assert verified(note) == POINT
    assert note_holds(note, name="witness", public=OTHER.public)


def test_a_wrong_signature_in_the_keys_name_spoils_the_note() -> None:
    """As signed-note says: whoever takes the first line, and whoever takes the last, agree."""
    wrong = signed_note(KEY, name=ORIGIN, body="another\n").split("\n\n")[1]
    body, _, right = SIGNED.partition("\n\n")
    for note in (f"{body}\n\n{wrong}{right}", f"{body}\n\n{right}{wrong}"):
        assert not note_holds(note, name=ORIGIN, public=KEY.public)


@for_each("line", ["\nCertified by a court\n", "\n\n", "bell \x07\n", "\ttab\n"])
def test_what_may_not_stand_in_a_checkpoint(line: str) -> None:
    """An empty line, behind which a reader of three lines and one of notes see other texts."""
    note = signed_note(KEY, name=ORIGIN, body=POINT.body() + line)
    with pytest.raises(NotACheckpoint, match="an empty line or a control character"):
        read_checkpoint(note)


@for_each("number", ["+5", " 5", "0_5", "05", "\u0665", "5.0", ""])
def test_any_python_reads_a_size_in_one_form_alone(number: str) -> None:
    """What verify.py takes for a checkpoint, other tools take for the same one."""
    head = base64.b64encode(bytes(32)).decode()
    assert checkpoint_of(f"o\n5\n{head}\n\n".encode()) == (5, bytes(32))
    with pytest.raises(Wrong):
        checkpoint_of(f"o\n{number}\n{head}\n\n".encode())


def test_every_single_byte_that_is_changed_is_found() -> None:
    for place in range(len(SIGNED)):
        for other in (chr(ord(SIGNED[place]) ^ 1), ""):
            with pytest.raises(NotACheckpoint):
                verified(SIGNED[:place] + other + SIGNED[place + 1 :])


def test_another_key_another_log_and_another_body_do_not_hold() -> None:
    assert not note_holds(SIGNED, name=ORIGIN, public=OTHER.public)
    assert not note_holds(SIGNED, name="elsewhere", public=KEY.public)
    other = signed_checkpoint(KEY, replace(POINT, size=3))
    swapped = POINT.body() + "\n" + other.split("\n\n")[1]
    assert not note_holds(swapped, name=ORIGIN, public=KEY.public)


@for_each(
    "text",
    ["", "a\n", "a\n1\n", "a b\n1\nAAAA\n", "a\n01\nAAAA\n", "a\n-1\nAAAA\n", "a\n1\nAAAA\n",
     "a\n1\n!\n", "a+b\n1\n" + "A" * 43 + "=\n", "a\n" + "9" * 20 + "\n" + "A" * 43 + "=\n",
     SIGNED + "x" * 70_000],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NotACheckpoint):
        read_checkpoint(text)


@for_each("proof", ["[" * 60_000, "[]", "{}", '{"path": [1]}', '{"path": "z"}', "\0"])
def test_a_proof_that_is_none_is_a_mistake_of_whoever_names_it(tmp_path: Path, proof: str) -> None:
    """Whoever is to be caught may have sent it: one nested deeply was called a fault of ours."""
    (tmp_path / "kept").write_text(SIGNED)
    (tmp_path / "proof").write_text(proof)
    with pytest.raises(UsageError):
        read_kept(tmp_path / "kept", tmp_path / "proof")
