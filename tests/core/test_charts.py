"""Charts: the numbers in them, the words around them, and nothing that a page could run."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from app.core.pages.charts import Series, bars, stacked

SVG = "{http://www.w3.org/2000/svg}"


def drawn(made: str, tag: str) -> list[Any]:
    """Return the elements of a kind, outside the definitions."""
    root = ET.fromstring(made)
    root.remove(root.find(f"{SVG}defs"))  # type: ignore[arg-type]
    return list(root.iter(f"{SVG}{tag}"))


def test_bars_are_as_high_as_their_values() -> None:
    made = bars("b", title="T", about="A", labels=["x", "y", "z"], values=[40, 0, 10])
    heights = [float(bar.get("height")) for bar in drawn(made, "rect")]
    assert heights == [168, 42]
    texts = [text.text for text in drawn(made, "text")]
    assert texts == ["0", "10", "20", "30", "40", "x", "y", "z", "40", "0", "10"]


def test_parts_stand_on_each_other_in_their_own_patterns() -> None:
    series = [Series("one", [10, 5]), Series("two", [30, 0])]
    made = stacked("s", title="T", about="A", labels=["x", "y"], series=series)
    parts = drawn(made, "rect")
    assert [(p.get("y"), p.get("height"), p.get("fill")) for p in parts[:3]] == [
        ("154", "42", "#2f4b6e"),
        ("175", "21", "#2f4b6e"),
        ("28", "126", "url(#s-hatched)"),
    ]
    assert made.count("<pattern ") == 1


def test_words_are_escaped_and_the_same_numbers_give_the_same_text() -> None:
    words = {"title": "<b>", "about": '"&', "labels": ["<script>"], "values": [1]}
    made = bars("b", **words)  # type: ignore[arg-type]
    assert "<script" not in made
    assert "<b>" not in made
    assert made == bars("b", **words)  # type: ignore[arg-type]
    assert 'aria-labelledby="b-title b-about"' in made


def test_labels_are_thinned_where_they_would_run_together() -> None:
    made = bars("b", title="T", about="A", labels=[str(n) for n in range(90)], values=[1] * 90)
    assert len(drawn(made, "text")) == 5 + 12


def test_a_chart_of_nothing_is_an_empty_axis() -> None:
    assert not drawn(bars("b", title="T", about="A", labels=[], values=[]), "rect")


@pytest.mark.parametrize("highest", [0, 1, 4, 5, 6, 11, 21, 99, 1_234, 60_000, 999_999])
def test_ticks_are_round_and_stand_at_their_own_height(highest: int) -> None:
    svg = bars("some", title="t", about="a", labels=["one"], values=[highest])
    found = re.findall(r'y="([0-9.]+)" dy="4" text-anchor="end">([0-9,]+)</text>', str(svg))
    ticks = [(float(y), int(label.replace(",", ""))) for y, label in found]
    values = [value for _, value in ticks]
    step = values[1]
    assert values == list(range(0, values[-1] + 1, step))
    assert str(step).rstrip("0") in ("1", "2", "5")
    assert 2 <= len(values) <= 6
    assert values[-1] - step < max(highest, 4) <= values[-1]
    heights = [(ticks[0][0] - y) / value for y, value in ticks[1:]]
    assert max(heights) - min(heights) < 0.1 * max(heights)


def test_series_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a value for every label"):
        stacked("s", title="", about="", labels=["x"], series=[Series("one", [1, 2])])
    with pytest.raises(ValueError, match="at most 4"):
        stacked("s", title="", about="", labels=[], series=[Series("", [])] * 5)
