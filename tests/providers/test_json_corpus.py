"""Hostile JSON through the strict parser: read as Python reads it, or refused with its reason."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from random import Random

import pytest

from app.core.reading import Unreadable
from app.core.strict_json import parse, parse_written
from app.providers.paths import compact
from tests.providers.fuzzing import worse
from tests.providers.json_corpus import POWER, READ, REFUSED, STRICTER

LENIENT = (ValueError, RecursionError, InvalidOperation)
"""Exceptions with which Python's own parser refuses. The last is Decimal's."""


def test_the_corpus_has_four_hundred_different_documents() -> None:
    documents = [*READ.values(), *(document for document, _ in REFUSED.values())]
    assert len(documents) >= 400
    assert [each for each, count in Counter(documents).items() if count > 1] == []


def as_python_reads(document: bytes) -> str:
    return repr(json.loads(document.decode("utf-8"), parse_float=Decimal))


def test_readable_documents_are_read_as_python_reads_them() -> None:
    for name, document in READ.items():
        assert repr(parse(document)) == as_python_reads(document), name
        written = compact(parse_written(document))
        assert repr(json.loads(written, parse_float=Decimal)) == as_python_reads(document), name


def why(document: bytes) -> str:
    """Return the sentence of the refusal, or "" where the document is read."""
    try:
        parse(document)
    except Unreadable as refused:
        return str(refused)
    return ""


def test_refused_documents_have_their_reason() -> None:
    """Python refuses them too, unless the reason is one where we are stricter."""
    for name, (document, reason) in REFUSED.items():
        assert reason in why(document), name
        with suppress(Unreadable):  # what is signed as text may be a long integer
            parse_written(document)
        if reason not in STRICTER:
            with pytest.raises(LENIENT):
                as_python_reads(document)


def test_python_reads_the_documents_where_we_are_stricter() -> None:
    read = Counter[str]()
    for document, reason in REFUSED.values():
        if reason in STRICTER:
            with suppress(*LENIENT):
                as_python_reads(document)
                read[reason] += 1
    assert all(read[reason] for reason in STRICTER if reason != POWER), read


def cut(document: bytes, places: int) -> Iterator[bytes]:
    """Yield the document truncated at, and without, each of some bytes."""
    for place in range(0, len(document), max(1, len(document) // places)):
        yield document[:place]
        yield document[:place] + document[place + 1 :]


def test_truncated_documents_are_read_as_python_reads_them_or_refused() -> None:
    counts = Counter[bool]()
    for document in READ.values():
        for part in cut(document, 30) if len(document) < 5_000 else ():
            refused = why(part)
            counts[bool(refused)] += 1
            assert refused or repr(parse(part)) == as_python_reads(part), part
    assert min(counts.values()) > 100


@pytest.mark.soak
def test_a_million_mutated_documents_are_read_as_python_reads_them_or_refused() -> None:
    rng, counts = Random(1), Counter[bool]()
    seeds = [*READ.values(), *(document for document, _ in REFUSED.values())]
    short = [document for document in seeds if len(document) < 500]
    for _ in range(1_000_000):
        part = rng.choice(short)
        for _ in range(rng.randrange(1, 4)):
            part = worse(rng, part)
        refused = why(part)
        counts[bool(refused)] += 1
        assert refused or repr(parse(part)) == as_python_reads(part), part
    print(f"mutations of JSON: {counts[False]} were read, {counts[True]} refused")
    assert min(counts.values()) > 10_000
