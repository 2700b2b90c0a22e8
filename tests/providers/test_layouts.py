"""Layouts of a signature in a request: every place, format and encoding."""

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from app.providers.encodings import FORMATS
from app.providers.paths import PLACES
from app.providers.request import Incoming
from tests.providers.builders import NOW, made

SECRET = "k" * 24
MAC = hmac.digest(SECRET.encode(), b"{}", "sha256")
HEX = MAC.hex().encode()
OTHER = hashlib.sha256(b"other").hexdigest().encode()

WORDS: dict[str, dict[str, str]] = {
    "plain": {},
    "prefix": {"prefix": "sha256="},
    "optional_prefix": {"prefix": "sha256="},
    "scheme": {"prefix": "Bearer"},
    "kv": {"label": "v1", "separator": ","},
    "list": {"label": "v1"},
    "optional_list": {"label": "v1"},
}


def verdict(folder: Path, value: bytes | list[bytes], **signature: Any) -> str | None:
    """Return the reason of refusal of `{}` with this signature header."""
    source = made(folder, signature=signature)
    values = value if isinstance(value, list) else [value]
    refusal = source.verify(Incoming([(b"x-signature", each) for each in values], b"{}"), now=NOW)
    return None if refusal is None else refusal.reason


GOOD = [
    ("plain", HEX),
    ("plain", b"  " + HEX.upper() + b"\t"),
    ("prefix", b"sha256=" + HEX),
    ("optional_prefix", HEX),
    ("optional_prefix", b"sha256=" + HEX),
    ("scheme", b"Bearer " + HEX),
    ("scheme", b"bEARER   " + HEX),
    ("kv", b"t=1,v1=" + HEX),
    ("kv", b"v1=" + OTHER + b", v1 = " + HEX + b",v0=x"),
    ("list", b"v1," + OTHER + b"\tv1," + HEX),
    ("optional_list", HEX),
    ("optional_list", OTHER + b"  v1," + HEX),
]
BAD = [
    ("plain", b"sha256=" + HEX),
    ("plain", HEX[:-2]),
    ("plain", HEX + HEX),
    ("plain", HEX[:-1]),
    ("prefix", HEX),
    ("prefix", b"SHA256=" + HEX),
    ("prefix", b"sha1=" + HEX),
    ("optional_prefix", b"sha1=" + HEX),
    ("scheme", HEX),
    ("scheme", b"Basic " + HEX),
    ("kv", b"v0=" + HEX),
    ("kv", b"v1=" + HEX + b"x"),
    ("kv", b"V1=" + HEX),
    ("list", HEX),
    ("list", b"v2," + HEX),
    ("list", b"v1," + HEX + b",v1"),
    ("optional_list", b"v2," + HEX),
    ("optional_list", b"v1,v2," + HEX),
]


@pytest.mark.parametrize(("form", "value"), GOOD)
def test_a_signature_is_found_in_its_format(form: str, value: bytes, tmp_path: Path) -> None:
    assert verdict(tmp_path, value, format=form, **WORDS[form]) is None
    assert verdict(tmp_path, [b"\xff,=", value, OTHER], format=form, **WORDS[form]) is None


@pytest.mark.parametrize(("form", "value"), BAD)
def test_a_signature_in_another_format_is_refused(form: str, value: bytes, tmp_path: Path) -> None:
    assert verdict(tmp_path, value, format=form, **WORDS[form]) == "signature_mismatch"


def test_every_format_is_tested_here() -> None:
    assert set(FORMATS) == set(WORDS) == {form for form, _ in GOOD} == {form for form, _ in BAD}


URL_SAFE = base64.urlsafe_b64encode(MAC)


@pytest.mark.parametrize(
    ("encoding", "good", "bad"),
    [
        ("hex", [HEX, HEX.upper()], [HEX + b"0", b"0x" + HEX, URL_SAFE]),
        ("base64", [base64.b64encode(MAC)], [base64.b64encode(MAC)[:-1], b"=" * 44, HEX]),
    ],
)
def test_each_encoding_accepts_its_own_spellings_only(
    encoding: str, good: list[bytes], bad: list[bytes], tmp_path: Path
) -> None:
    assert [verdict(tmp_path, each, encoding=encoding) for each in good] == [None] * len(good)
    assert all(verdict(tmp_path, each, encoding=encoding) == "signature_mismatch" for each in bad)


def at_place(folder: Path, where: str, body: bytes, url: str) -> str | None:
    """Return the verdict where only the query field `q` is signed, with the signature at this
    place."""
    source = made(
        folder,
        top="verifies_only = true\n",
        signature={"where": where, "signed": "{query:q}"},
        event={"order": "query:q"},
        claims=...,
    )
    refusal = source.verify(Incoming([(b"x-sig", HEX)], body, url=url), now=NOW)
    return None if refusal is None else refusal.reason


@pytest.mark.parametrize("where", ["header:x-sig", "query:sig", "form:sig", "json:a.sig"])
def test_a_signature_is_found_at_its_place_only(where: str, tmp_path: Path) -> None:
    body = b"sig=" + HEX if where.startswith("form") else b'{"a": {"sig": "%b"}}' % HEX
    url = f"/hooks?q=%7B%7D&sig={HEX.decode()}"
    assert at_place(tmp_path, where, body, url) is None
    assert at_place(tmp_path, where, body, url.replace("7D", "7E")) == "signature_mismatch"
    if not where.startswith("header"):
        gone = at_place(tmp_path, where, b'{"a": {}}', "/hooks?q=%7B%7D")
        assert gone == "signature_missing"


def test_every_place_is_tested_here() -> None:
    assert set(PLACES) == {"header", "query", "form", "json"}
