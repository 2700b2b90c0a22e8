"""Hostile JSON on which parsers disagree.

READ is accepted, and gives the same value as Python's own parser. REFUSED is refused, each document
for the given reason. A failed test shows a document's name.
"""

from typing import Final

from app.core.strict_json import MAX_DEPTH, MAX_NUMBER_LENGTH

NOT = "not JSON"
UTF = "not UTF-8"
TWICE = "same key twice"
NAN = "NaN or Infinity"
BITS = "64 bits"
DEEP = "nested deeper"
LONG = "a number of more than"
POWER = "an exponent that is too large"
EMPTY = "is empty"


def nested(depth: int, opening: bytes = b"[", inside: bytes = b"", closing: bytes = b"]") -> bytes:
    return opening * depth + inside + closing * depth


def numbered(documents: list[bytes]) -> dict[str, bytes]:
    """Name each document by its number and beginning."""
    return {f"{number} {document[:40]!r}": document for number, document in enumerate(documents)}


_NUMBERS_READ = [
    b"0", b"-0", b"1", b"-1", b"10", b"1234567890", b"9223372036854775807",
    b"-9223372036854775808", b"9223372036854775806", b"4503599627370497", b"9007199254740993",
    b"0.0", b"-0.0", b"0.1", b"-0.1", b"1.0", b"1.10", b"0.30000000000000004", b"1e0", b"1E0",
    b"1e+2", b"1E+2", b"1e-2", b"1e2", b"1.5e3", b"0e1", b"0e+1", b"0e-1", b"-0e0", b"1e400",
    b"1e-400", b"-1e400", b"1e99999", b"123456789012345678.25", b"1.7976931348623157e309",
    b"0." + b"1" * (MAX_NUMBER_LENGTH - 2), b"[1,2]", b"[1 ]", b"[ 1]", b"[1\n,\n2]",
    b"1e000000000000000000000001", b"100e-2", b"0.000000000000000000000000000000000001",
    b"1500.00", b"1e3",
]  # fmt: skip

_STRINGS_READ = [
    b'""', b'"a"', b'"\\""', b'"\\\\"', b'"\\/"', b'"\\b\\f\\n\\r\\t"', b'"\\u0061"', b'"\\u00e9"',
    b'"\\u0000"', b'"\\u0020"', b'"\\u001f"', b'"\\u007f"', b'"\x7f"', b'"\\u2028\\u2029"',
    b'"\xe2\x80\xa8"', b'"\xc2\x80"', b'"\xc3\xa9"', b'"e\xcc\x81"', b'"\xe2\x80\xae"',
    b'"\xef\xbb\xbf"', b'"\\uFEFF"', b'"\xef\xbf\xbe"', b'"\\uFFFE"', b'"\xef\xbf\xbf"',
    b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', b'"\\uD83D\\uDE00"', b'"\\udbff\\udfff"',
    b'"\xf4\x8f\xbf\xbf"', b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\ud800"', b'"\\ude00\\ud83d"',
    b'"\\ud800a"', b'"\\ud800\\n"', b'"\\ud800\\u0061"', b'"a\\\\u0000"', b'"\\\\\\""', b'"[{"',
    b'"}]"', b'"// no comment"', b'"/* nor this */"', b'"NaN"', b'"\'"', b'"\\u0022"',
    b'"\\u005c"', b'"' + b"\\u0041" * 2_000 + b'"', b'"' + b"[" * 5_000 + b'"',
    b'"' + b"\xf0\x9f\x98\x80" * 2_000 + b'"', b'"' + b"\\\\" * 3_000 + b'"', b'" "',
    b'"\xc2\xa0"', b'"\xe2\x80\x8b"',
]  # fmt: skip

_STRUCTURES_READ = [
    b"{}", b"[]", b"null", b"true", b"false", b" {} ", b"\t[]\r\n", b"[[]]", b"[{}]", b'{"":0}',
    b'{"a":{}}', b'{"a":[]}', b'{"a":null}', b"[null,null]", b'{"a":1,"b":1}', b'{"a":1,"A":2}',
    b'{"a":1,"a ":2}', b'{"\\u0000":1,"":2}', b'{"\xc3\xa9":1,"e\xcc\x81":2}', b'{"a":{"a":1}}',
    b'[{"a":1},{"a":1}]', b'{"__proto__":1}', b'{"constructor":{"prototype":1}}', b'{"$ref":"#"}',
    b'{"\\ud800":1}', b'{"\\ud800":1,"\\udc00":2}', b'{"null":null,"true":true}', b"[1,[2,[3]]]",
    nested(MAX_DEPTH), nested(MAX_DEPTH, b'{"a":', b"1", b"}"),
    b"[" + nested(MAX_DEPTH - 1) + b"," + nested(MAX_DEPTH - 1) + b"]",
    b"[" + b"0," * 9_999 + b"0]", b"[" + b"{}," * 2_000 + b"[]]", b" " * 50_000 + b"1",
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(3_000)) + b"}",
    b"[" + b" " * 20_000 + b"]", b'{"' + b"k" * 60_000 + b'":1}', b'"' + b"x" * 200_000 + b'"',
    b' [1, -2, true, null, "x"] \n', b'{"a": {"b": 1}, "b": {"a": 1}}', b'"' + b"[{" * 500 + b'"',
    b'"' + b'\\"[' * 500 + b'"', b"[" + b"[]," * 500 + b"[]]",
    nested(31, inside=b"[],[]", closing=b"]"),
]  # fmt: skip

READ: Final[dict[str, bytes]] = numbered([*_NUMBERS_READ, *_STRINGS_READ, *_STRUCTURES_READ])

_WORDS = [
    b"nul", b"nulll", b"Null", b"NULL", b"tru", b"True", b"TRUE", b"fals", b"False", b"None",
    b"undefined", b"nan", b"inf", b"infinity", b"-", b"+", b"--1", b"+1", b"- 1", b"-foo", b"01",
    b"00", b"-01", b"-00", b"0x1", b"0b1", b"0o7", b"1_000", b"1,000", b"1.", b"-1.", b".1", b"-.1",
    b"1.e1", b".e1", b"1e", b"1e+", b"1e-", b"1E", b"1e1.5", b"1ee1", b"1e1e1", b"1.2.3", b"1..2",
    b"0.1.", b"0e", b"1a", b"1n", b"1L", b"1f", b"1/2", b"1+1", b"12 34", b"\xef\xbc\x91",
    b"\xd9\xa1", b"1\x00", b"\xc2\xb9", b"-Inf", b"+Infinity", b"1\xc2\xa0", b"0x", b"++1",
]  # fmt: skip

_STRINGS = [
    b'"', b'"a', b'a"', b"'a'", b"`a`", b'"\\"', b'"\\x41"', b'"\\a"', b'"\\v"', b'"\\0"',
    b'"\\\'"', b'"\\u"', b'"\\u1"', b'"\\u12"', b'"\\u123"', b'"\\u12g4"', b'"\\U0041"',
    b'"\\u{41}"', b'"\\u+041"', b'"\\u 041"', b'"\\u0x41"', b'"\\ud83d\\u"', b'"\\ud83d\\u12"',
    b'"\\ "', b'"\\\n"', b'"\n"', b'"\r"', b'"\t"', b'"\x00"', b'"\x01"', b'"\x1f"', b'"a\x00b"',
    b'"a""b"', b'"a" "b"', b'"""', b'""""', b"\xe2\x80\x9ca\xe2\x80\x9d", b'\\"a\\"', b'u"a"',
    b'b"a"', b"\\u0022a\\u0022", b'"\\\xc3\xa9"',
]  # fmt: skip

_STRUCTURES = [
    b"[", b"]", b"{", b"}", b"[}", b"{]", b"[[]", b"[]]", b"{}}", b"[1", b"[1,", b"[,", b"[,1]",
    b"[1,]", b"[1,,2]", b"[1 2]", b"[1;2]", b"[1:2]", b"[1}", b'{"a"', b'{"a":', b'{"a":1',
    b'{"a":1,', b'{"a":1,}', b'{"a":1,,"b":2}', b'{"a" 1}', b'{"a"=1}', b'{"a"=>1}', b'{"a"::1}',
    b'{"a":1:2}', b'{"a","b"}', b"{,}", b"{:}", b'{:"a"}', b"{1:1}", b"{a:1}", b"{null:1}",
    b"{'a':1}", b"{[]:1}",
    b'{"a":1 "b":2}', b'{"a":1;"b":2}', b'{"a":}', b'{"a":1}}', b"[]{}", b"{}{}", b"[][]", b"1 1",
    b"[] // c", b"/**/[]", b"[/* c */]", b"# c\n[]", b"[1]#", b"-- []", b"()", b"<a/>", b"a=1&b=2",
    b"[...]", b'{..."a"}', b'{"a":(1)}', b"[1]\x00", b"\x00[1]", b"[\x0c]", b"[\x0b1]",
    b"[\xc2\xa01]", b"[\xe2\x81\xa01]", b"\xe2\x80\x8b[]", b"\xef\xbb\xbf", b"\xef\xbb\xbf[]",
    b"\xef\xbb\xbf\xef\xbb\xbf{}", b"[]\xef\xbb\xbf", b")]}',\n[]", b"while(1);[]", b"cb([])",
    b"\x1e[]\n", b"[]\n[]", b"*", b"&a []", b"!!int 1", b"---\n[]", b"a: 1",
    b"[" * MAX_DEPTH, b'{"a":' * MAX_DEPTH, b"," * 5_000, b":" * 5_000, b'"a":1',
    b'{"a": 1} x', b"{'a': 1}", b'{"a": 1,}', b'{"a": 01}', b'{"a": .5}', b'{"a": +5}',
    b'{"a": 0x1}', b'{"a": "\n"}', b'{"a": "\x00"}', b'{"a": "\\x41"}', b"\xef\xbb\xbf{}",
    b"<xml/>", "{}".encode("utf-16-le"),
]  # fmt: skip

_ENCODED = [
    "{}".encode("utf-16"), "{}".encode("utf-32"), b"\xff\xfe", b"\xfe\xff", b"\xff", b"[\xff]",
    b'"\xff"', b'"\x80"', b'"\xbf"', b'"\xc0\x80"', b'"\xc0\xaf"', b'"\xc1\xbf"', b'"\xc3"',
    b'"\xc3("', b'"\xe0\x80\x80"', b'"\xe0\x9f\xbf"', b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"',
    b'"\xed\xa0\xbd\xed\xb8\x80"', b'"\xe2\x82"', b'"\xe2("', b'"\xf0\x80\x80\x80"',
    b'"\xf0\x8f\xbf\xbf"', b'"\xf4\x90\x80\x80"', b'"\xf5\x80\x80\x80"', b'"\xf8\x88\x80\x80\x80"',
    b'"\xfc\x84\x80\x80\x80\x80"', b'"\xfe"', b'"\xf0\x9f\x98"', b"\xe9", b'{"\xff":1}',
    '"é"'.encode("latin-1"), b"\x81",
    b"\x1f\x8b\x08\x00", b"[1]\x80",
    b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc0\x80"}',
]  # fmt: skip

_TWICE = [
    b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'{"a":1,"b":2,"a":3}', b'{"a":1,"\\u0061":1}',
    b'{"":1,"":1}', b'[{"a":1,"a":1}]', b'{"x":{"a":1,"a":1}}', b'{"a":{},"a":{}}',
    b'{"\\/":1,"/":2}', b'{"\xc3\xa9":1,"\\u00e9":2}', b'{"\\ud800":1,"\\ud800":2}',
    b'{"\\u0000":1,"\\u0000":1}', b'{"\xf0\x9f\x98\x80":1,"\\ud83d\\ude00":2}',
    b'{"a": 1, "a": 1}', b'{"a": 1, "\\u0061": 2}', b'{"x": [{"a": 1, "b": 2, "a": 3}]}',
]  # fmt: skip

_NAN = [b"NaN", b"-Infinity", b"Infinity", b"[NaN]", b'{"a":NaN}', b"[1,-Infinity]",
        b'{"a": NaN}', b"[Infinity]", b'{"a": -Infinity}']  # fmt: skip

_BITS = [
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" * 20, b"1" * 21,
    b"-" + b"9" * 4_300, b"1" * 5_000, b"9" * 100_000, b"[" + b"1" * 400 + b"]",
    b"100000000000000000000000",
    b'{"a": 9223372036854775808}', b'{"a": -9223372036854775809}', b"1" * 100_000,
]  # fmt: skip

_DEEP = [
    nested(MAX_DEPTH + 1), nested(MAX_DEPTH + 1, b'{"a":', b"1", b"}"), nested(500),
    nested(100_000), b"[" * 100_000, b'{"a":' * 100_000, b'[{"":' * 50_000,
    nested(MAX_DEPTH + 1, b"[", b'"]]]"'), b'"[" ' + b"[" * 40,
    b"[" * MAX_DEPTH + b"]" * 2 + b"[[[",
    b"[" * 1_000_000, b'{"a":' * 1_000_000, b'"' + b"[" * 40 + b'" ' + b"[" * 33,
]  # fmt: skip

_LONG = [
    b"0." + b"1" * (MAX_NUMBER_LENGTH - 1), b"1." + b"0" * 5_000, b"1e" + b"0" * 200 + b"1",
    b"1" * 200 + b".5", b"-0." + b"0" * 100_000 + b"1",
]  # fmt: skip

_POWER = [b"1e9999999999999999999", b"1e-9999999999999999999", b"0.1E+99999999999999999999",
          b'{"a": 1e99999999999999999999}']  # fmt: skip

_EMPTY = [b"", b" ", b" \r\n\t", b"\n", b"\t\r\n ", b" " * 10_000]

REFUSED: Final[dict[str, tuple[bytes, str]]] = {
    f"{reason}: {name}": (document, reason)
    for documents, reason in (
        ([*_WORDS, *_STRINGS, *_STRUCTURES], NOT),
        (_ENCODED, UTF),
        (_TWICE, TWICE),
        (_NAN, NAN),
        (_BITS, BITS),
        (_DEEP, DEEP),
        (_LONG, LONG),
        (_POWER, POWER),
        (_EMPTY, EMPTY),
    )
    for name, document in numbered(documents).items()
}
STRICTER: Final = (TWICE, NAN, BITS, DEEP, LONG, POWER)
"""Reasons to refuse documents that some or all parsers accept as well-formed."""
