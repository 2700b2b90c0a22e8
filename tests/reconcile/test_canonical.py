"""Canonical JSON: one form for one value, and a refusal of what has several."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.canonical import canonical_json, fingerprint
from tests.rows import for_each

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abcxyz_"), inner),
    max_leaves=20,
)


@given(values)
def test_bytes_say_what_the_value_says(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


@pytest.mark.slow
@given(st.dictionaries(st.text("abcxyz_"), values), st.randoms())
def test_the_order_of_keys_does_not_matter(value: dict[str, Any], chance: Any) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)
    assert fingerprint(dict(items)) == fingerprint(value)


def test_the_form_is_that_of_rfc_8785() -> None:
    """Sorted keys, no blanks, UTF-8 unescaped, control characters in lower-case hex."""
    value = {"b": [1, True, None], "a": 'é€\n\x1f"', "é": {}}
    expected = '{"a":"é€\\n\\u001f\\"","b":[1,true,null],"é":{}}'
    assert canonical_json(value) == expected.encode()


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    assert canonical_json("\ud800") == b'"\\ud800"'
    assert canonical_json("\\ud800") == b'"\\\\ud800"'


@for_each("value", [1.0, [1.5], {"a": {"b": 0.1}}, b"x", {1: "a"}, {None: 1}, {1, 2}])
def test_what_has_no_single_form_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no canonical written form"):
        canonical_json(value)


def test_a_fingerprint_is_sha_256_of_the_bytes() -> None:
    digest = hashlib.sha256(b'{"a":1}').hexdigest()
    assert fingerprint({"a": 1}) == "sha256:" + digest
