"""The evidence key's file: who may read it, what it may hold, and that it is never shown."""

import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.core.errors import ConfigurationError
from app.evidence.keys import EvidenceKey, PublicKey, load_key, write_key
from tests.providers.samples import private_key
from tests.rows import for_each

SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
    "d25bf5f0595bbe24655141438e7a100b"
)
"""RFC 8032, 7.1, TEST 1: the signature of the empty message."""


def test_the_key_is_kept_for_its_owner_alone_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "evidence.key"
    assert load_key(path) is None
    made = write_key(path, secret=SEED)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    found = load_key(path)
    assert found is not None
    assert found.public == made.public
    assert (len(found.sign(b"x")), found.public.verifies(found.sign(b"x"), b"x")) == (64, True)


def test_it_signs_as_the_rfc_says() -> None:
    key = EvidenceKey(Ed25519PrivateKey.from_private_bytes(SEED))
    assert (key.public, key.sign(b"")) == (PublicKey(PUBLIC), SIGNATURE)
    assert key.public.verifies(SIGNATURE, b"")
    assert not key.public.verifies(SIGNATURE, b"x")
    assert not key.public.verifies(SIGNATURE[:-1], b"")


def test_a_key_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "evidence.key"
    first = write_key(path, secret=SEED)
    with pytest.raises(FileExistsError):
        write_key(path, secret=bytes(32))
    found = load_key(path)
    assert found is not None
    assert found.public == first.public
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o777])
def test_a_key_that_everyone_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "evidence.key"
    write_key(path, secret=SEED)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"mode {mode:o}.; chmod 600"):
        load_key(path)


@for_each(
    "content", [b"", b"x" * 9_000, b"-----BEGIN PRIVATE KEY-----\n", private_key("rsa").encode()]
)
def test_another_content_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "evidence.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="ed25519") as refused:
        load_key(path)
    assert "BEGIN" not in str(refused.value)


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_key(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_key(tmp_path / "file" / "evidence.key", secret=SEED)


def test_no_text_of_a_key_holds_its_private_half() -> None:
    key = EvidenceKey(Ed25519PrivateKey.from_private_bytes(SEED))
    shown = f"{key!r} {key} {vars(key)!r} {key.public!r}"
    assert SEED.hex() not in shown
    assert repr(SEED)[2:-1] not in shown


def test_openssl_reads_the_public_key(tmp_path: Path) -> None:
    key = EvidenceKey(Ed25519PrivateKey.from_private_bytes(SEED))
    for name, content in (("k", key.public.pem().encode()), ("m", b"hi"), ("s", key.sign(b"hi"))):
        (tmp_path / name).write_bytes(content)
    words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "k", "-rawin", "-in", "m"]
    words += ["-sigfile", "s"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verified Successfully" in done.stdout
