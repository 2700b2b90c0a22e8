"""The signed content: which bytes each reference of a template stands for."""

import hashlib
import time
from pathlib import Path

import pytest

from app.providers.kit import form_fields
from app.providers.request import Refusal, Request
from app.providers.template import REFERENCES, compile_template
from tests.rows import for_each

BODY = (
    '{ "b" : {"y": 2.00, "x": "caf\\u00e9 \\/ \u00e9"},  "a":[1, {"n":"Amount","v":1e2}],\n'
    ' "big": 12345678901234567, "yes": true, "none": null }'
).encode()
URL = "https://shop.example/hooks/in?b=2&a=%20x&b=3&only=1"


def request(body: bytes = BODY, method: str = "POST", url: str = URL) -> Request:
    made = Request(
        [(b"x-id", b"evt_1"), (b"x-two", b"1"), (b"x-two", b"2"), (b"svix-id", b"s")],
        body,
        method=method,
        url=url,
    )
    made.timestamp, made.secret = b"0016", b"geheim"
    return made


def filled(template: str, made: Request | None = None) -> bytes | str:
    """Return the signed content, or the reason of the refusal."""
    content = compile_template(template).fill(made or request())
    return content.reason if isinstance(content, Refusal) else content


@for_each(
    ("template", "content"),
    [
        ("{body}", BODY),
        ("v0:{ts}:", b"v0:0016:"),
        ("{header:x-id}", b"evt_1"),
        ("{header:webhook-id,svix-id}", b"s"),
        ("{url}", URL.encode()),
        ("{path}", b"/hooks/in"),
        ("{query}", b"b=2&a=%20x&b=3&only=1"),
        ("{query:a}", b" x"),
        ("{method}", b"POST"),
        ("{body_or_query}", BODY),
        ("{json:b.y}|{json:big}|{json:yes}|{json:a[1].v}", b"2.00|12345678901234567|true|1e2"),
        ("{json:b.x}", "café / é".encode()),
        ("{json:a[n=Amount].v}", b"1e2"),
        ("{path|last_segment}{header:x-id|last_segment}", b"inevt_1"),
        ("{compact:b}", '{"y":2.00,"x":"café / é"}'.encode()),
        ("{canonical:b}", '{"x":"café / é","y":2.00}'.encode()),
        (
            "{canonical}",
            '{"a":[1,{"n":"Amount","v":1e2}],"b":{"x":"café / é","y":2.00},'
            '"big":12345678901234567,"none":null,"yes":true}'.encode(),
        ),
        ("{secret}", b"geheim"),
        ("{json:none?}:{json:gone?}:{header:gone?}:", b":::"),
        ("[id:{query:only};][gone:{query:gone};][{json:none}]end", b"id:1;end"),
        ("{header:x-id|upper}{method|lower}", b"EVT_1post"),
        ("{secret|sha256_hex}", hashlib.sha256(b"geheim").hexdigest().encode()),
        ("{secret|sha512_base64}", None),
        ("{query:a|urlencode}", b"+x"),
    ],
)
def test_each_reference_is_filled_as_received(template: str, content: bytes | None) -> None:
    if content is None:
        assert len(filled(template)) == 88
    else:
        assert filled(template) == content


@for_each(
    ("template", "reason"),
    [
        ("{header:gone}", "signature_missing"),
        ("{header:x-two}", "signature_mismatch"),
        ("[{header:x-two}]", "signature_mismatch"),
        ("{query:b}", "signature_mismatch"),
        ("{query:gone}", "signature_missing"),
        ("{form:gone}", "signature_missing"),
        ("{json:b}", "signature_missing"),
        ("{json:none}", "signature_missing"),
        ("{json:a.b}", "signature_missing"),
        ("{json:a[7]}", "signature_missing"),
    ],
)
def test_an_absent_or_repeated_reference_refuses(template: str, reason: str) -> None:
    assert filled(template) == reason


@for_each("body", [b"", b"{", b"\xff", b'{"a":1,"a":2}', b"[" * 99, b'{"a":NaN}'])
def test_a_body_that_is_no_json_has_no_members(body: bytes) -> None:
    for name in ("json:a", "compact", "canonical", "compact:a"):
        assert filled(f"{{{name}}}", request(body)) == "signature_missing"


FORM = b"b=x+y%2Bz~&a=%C3%A9&sig=0&a2=&b=2"


@for_each(
    ("template", "content"),
    [
        ("{form:a}", "é".encode()),
        ("{form_received:-sig}", b"b=x+y%2Bz%7E&a=%C3%A9&a2=&b=2"),
        ("{form_joined:-sig}", "aéa2b2bx y+z~".encode()),
        ("{form_joined}", "aéa2b2bx y+z~sig0".encode()),
    ],
)
def test_forms_are_decoded_and_written_as_php_writes_them(template: str, content: bytes) -> None:
    assert filled(template, request(FORM)) == content


def test_a_get_signs_its_query() -> None:
    assert filled("{body_or_query}", request(b"", "GET")) == b"?b=2&a=%20x&b=3&only=1"
    assert filled("{body_or_query}", request(b"{}", "GET")) == "signature_mismatch"


@for_each(
    "template",
    ["{nothing}", "{body:x}", "{json}", "{json:a..b}", "{json:a[}", "{json:a[*]}", "{body|rot13}",
     "{body", "body}", "[{body}", "{body}]", "[[{body}]]", "{form_joined:sig}", "{header:A}"],
)  # fmt: skip
def test_an_invalid_template_is_reported(template: str) -> None:
    with pytest.raises(ValueError, match=r"^(has|'A')"):
        compile_template(template)


def test_every_reference_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f"{{{name}" in text for name in REFERENCES)


@for_each("template", ["{json:a}", "{canonical}"])
@for_each(
    "body",
    [b'{"a":[' + b"0," * 500_000 + b"0]}", b"[]" * 500_000],
)
def test_a_body_of_half_a_million_values_is_not_parsed(template: str, body: bytes) -> None:
    began = time.process_time()
    assert filled(template, request(body)) == "signature_missing"
    assert time.process_time() - began < 0.05
    assert filled("{json:a}", request(b'{"a":"%b"}' % (b"," * 9_999))) == b"," * 9_999


def test_a_form_of_a_megabyte_is_not_decoded() -> None:
    long = b"a=1&b=" + b"%41" * 349_000
    began = time.process_time()
    assert filled("{form:a}", request(long)) == "signature_missing"
    with pytest.raises(ValueError, match="the form is larger than"):
        form_fields(long)
    assert time.process_time() - began < 0.05
    assert filled("{form:a}", request(long[: 256 * 1024])) == b"1"
