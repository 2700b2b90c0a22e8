"""Strict TOML file: lines of keys, mistakes between keys beside others, and sizes."""

import time
from collections.abc import Iterator
from typing import Literal

import pytest
from pydantic import Field

from app.core import toml_file
from app.core.errors import ConfigurationError
from app.core.toml_file import (
    EMPTY,
    MOST_LISTED,
    TomlMistake,
    TomlTable,
    Values,
    line_of_key,
    lines_of_keys,
    read_toml,
)

TEXT = """\
top = 1 # [not.a.header]
dotted.inner = 2
"quoted.name" = 3
[ first ] # a comment
long = '''
key = "in a text"
[neither]
'''
key = 4
[first."a.b"]
x = 5
[[many]]
x = 6
[[many]]
y.z = 7
[many.below]
w = 8
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("top", 1), ("dotted.inner", 2), ('"quoted.name"', 3), ("first", 4), ("first.long", 5),
        ("first.key", 9), ("first.missing", 4), ('first."a.b".x', 11), ("many.1", 12),
        ("many.1.x", 13), ("many.2", 14), ("many.2.y.z", 15), ("many.2.x", 14), ("nowhere", 0),
        ("neither", 0), ("not.a.header", 0),
    ],
)  # fmt: skip
def test_a_key_is_found_on_its_line_and_a_missing_one_on_its_tables(key: str, line: int) -> None:
    assert line_of_key(lines_of_keys(TEXT), key) == line


class Inner(TomlTable):
    needed: str
    word: Literal["a", "b"] = "a"


class File(TomlTable):
    inner: Inner = EMPTY
    several: list[Inner] = Field(default_factory=list)
    free: dict[str, str] = EMPTY


def mistakes(content: bytes | str, seen: list[Values] | None = None) -> list[str]:
    def together(values: Values) -> Iterator[TomlMistake]:
        if seen is not None:
            seen.append(values)
        yield TomlMistake("inner.word", "is judged as well")

    with pytest.raises(ConfigurationError) as caught:
        read_toml(content, File, name="a.toml", most_bytes=1000, together=together)
    return list(caught.value.problems)


def test_what_is_right_is_judged_together_beside_what_is_wrong() -> None:
    """All right values of a wrong file are there, and no other."""
    seen: list[Values] = []
    text = "[inner]\nword = 'b'\nneeded = 3\n[free]\nx = 'x'\ny = 1\n'[key]' = 2\n"
    text += "[[several]]\nword = 'c'\nneeded = 'n'\n"
    assert mistakes(text, seen) == [
        "a.toml:2: inner.word: is judged as well",
        "a.toml:3: inner.needed: must be a text",
        "a.toml:6: free.y: must be a text",
        'a.toml:7: free."[key]": must be a text',
        "a.toml:9: several.1.word: must be one of a, b",
    ]
    assert seen == [{"inner": {"word": "b"}, "free": {"x": "x"}, "several": [{"needed": "n"}]}]


def test_a_table_that_is_left_out_lacks_its_keys() -> None:
    assert mistakes("") == [
        "a.toml: inner.needed: is missing",
        "a.toml: inner.word: is judged as well",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "a.toml: is not UTF-8"),
        ("#" * 1001, "a.toml: is larger than 1,000 bytes"),
        ("é" * 501, "a.toml: is larger than 1,000 bytes"),
        ("x = " + "[" * 990, "a.toml:1: is not TOML"),
        ("\nx = ", "a.toml:2: is not TOML"),
        ("x = '\ud800'", "a.toml: is not UTF-8"),
    ],
)
def test_what_is_no_such_file_is_one_mistake(content: bytes | str, said: str) -> None:
    (message,) = mistakes(content)
    assert message.startswith(said)


def test_of_very_many_mistakes_some_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is searched once for all of them."""
    gone_through, entries = [], toml_file._entries

    def counted(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        gone_through.append(text)
        return entries(text)

    monkeypatch.setattr(toml_file, "_entries", counted)
    with pytest.raises(ConfigurationError) as caught:
        read_toml("[[several]]\n" * 1_000, File, name="a.toml", most_bytes=20_000)
    *messages, last = caught.value.problems
    assert len(messages) == MOST_LISTED
    assert [each.partition(" ")[0] for each in messages[:2]] == ["a.toml:1:", "a.toml:2:"]
    # Each table lacks its key; so does the one that is left out.
    assert last == f"a.toml: {1_001 - MOST_LISTED} more mistakes"
    assert len(gone_through) == 1


def test_a_number_of_thousands_of_digits_is_no_crash() -> None:
    with pytest.raises(ConfigurationError, match="is not TOML"):
        read_toml("x = " + "9" * 5000, File, name="a.toml", most_bytes=10_000)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("\n[inner]\nneeded = -1e99999999999999999999", "inner.needed"),
        ("\n\nx = 1e-99999999999999999999", "x"),
        ("\n[[several]]\n'a b' = [{y = 1e99999999999999999999}]", 'several.1."a b".1.y'),
    ],
)
def test_a_number_beyond_all_limits_is_a_mistake_with_line_and_key(text: str, key: str) -> None:
    assert mistakes(text) == [f"a.toml:3: {key}: is a number that is too large"]


@pytest.mark.parametrize(
    "line", ["a" * 60, "[" + " " * 6_000 + "x", '"""#\n[' + '"' + r"\"" * 30_000 + "]"]
)
def test_no_line_of_a_text_takes_long(line: str) -> None:
    """A text of sixty letters took centuries."""
    began = time.process_time()
    assert lines_of_keys(f'text = """\n{line}\n"""\nkey = 1\n')["text",] == 1
    assert time.process_time() - began < 1


def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed() -> None:
    began = time.thread_time()
    with pytest.raises(ConfigurationError) as caught:
        read_toml(f"#\na{'.a' * 10_000} = 1", Inner, name="a.toml", most_bytes=2**16)
    assert str(caught.value) == "a.toml:2: has more than 500 dots"
    assert time.thread_time() - began < 0.5
