"""A PDF names the characters that no font of the machine has, instead of showing boxes alone."""

import io
from pathlib import Path
from typing import Any

import pytest
import typst
from pypdf import PdfReader

from app.core.pages.paper import typeset, unshown_in

TEMPLATE = """#set document(date: none)
#let data = json(bytes(sys.inputs.given))
#data.name

#data.unshown"""
TANGUT = "\U00017000"
"""A character that none of Typst's own fonts has."""


@pytest.fixture
def no_other_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the fonts of this machine from Typst."""
    lay_out: Any = typst.compile

    def without(*words: Any, **given: Any) -> Any:
        return lay_out(*words, **{**given, "ignore_system_fonts": True})

    monkeypatch.setattr(typst, "compile", without)


def paper(folder: Path, name: str) -> tuple[str, bytes]:
    """Lay out a name; return the text, as a reader copies it, and the bytes."""
    (folder / "t.typ").write_text(TEMPLATE)
    made = typeset(folder / "t.typ", root=folder, given="given", values={"name": name})
    text = " ".join(PdfReader(io.BytesIO(made)).pages[0].extract_text().split())
    return text, made


@pytest.mark.parametrize("name", ["Café Ørsted & Şahin", "Ωμέγα Дуня", "€ 5 → ₦ 6 “so”"])
def test_letters_of_its_own_fonts_make_the_same_bytes_everywhere(tmp_path: Path, name: str) -> None:
    text, made = paper(tmp_path, name)
    assert (text, unshown_in({"name": name})) == (name, "")
    assert made == paper(tmp_path, name)[1]


@pytest.mark.usefixtures("no_other_fonts")
def test_characters_that_no_font_has_are_named_on_the_paper_with_what_helps(tmp_path: Path) -> None:
    told = unshown_in({"rows": [{"name": f"Duka {TANGUT}"}]})
    assert f"others ({TANGUT}), such as U+17000. Install a font" in told
    assert "use the HTML form" in told
    text, _ = paper(tmp_path, f"Duka {TANGUT}")
    assert "Empty boxes replace characters that no font has" in text


@pytest.mark.usefixtures("no_other_fonts")
def test_a_script_is_named_once_with_some_of_its_characters() -> None:
    told = unshown_in({"name": "東京 서울 ไทย東"})
    for named in ("Chinese or Japanese (京 東)", "Korean (서 울)", "Thai (ท ย ไ)", "U+4EAC"):
        assert named in told
