"""Make PDF files from templates with Typst.

Typst's own fonts have Latin, Greek and Cyrillic letters; the machine's fonts serve other
characters. All text is passed as JSON, never as markup. Typst is optional (extra `pdf`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from unicodedata import category, name

_SURE: Final = "\u024f"
"""Last character for which no font search is needed. The fonts that come with Typst contain all
characters up to this one."""

_NAMED: Final = 6

_PROBE: Final = b'#set text(font: "Libertinus Serif")\n#sys.inputs.characters.clusters().join(" ")'

_SCRIPTS: Final[Mapping[str, str]] = {
    "CJK": "Chinese or Japanese", "HANGUL": "Korean", "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese", "other": "others",
}  # fmt: skip

_LACKS: Final = re.compile(r'the text `"(.+?)"` could not be displayed')
"""Pattern of Typst's error about a character that no font contains."""


def typeset(template: Path, *, root: Path, given: str, values: Mapping[str, Any]) -> bytes:
    """Return the PDF file that a template makes of these values. Raise ImportError without Typst.

    given   name of the template's input that holds the values as JSON
    values  the values, to which `unshown` is added
    """
    import typst

    rare = _lacking(_rare_in(values), own=True)
    written: bytes = typst.compile(
        template,
        root=root,
        ignore_system_fonts=not rare,
        sys_inputs={given: json.dumps({**values, "unshown": _sentence(rare)})},
    )
    return written


def pages_of(root: Path, name: str, most: int) -> int:
    """Return the number of pages of a file in `root`; 1 for a picture.

    Return 0 if Typst cannot typeset it, or if it has more than `most`.
    """
    import typst

    lay_out: Any = typst.compile  # typed as if source and root had to be of one type

    def has(page: int) -> bool:
        image = f'#image("/{name}", page: {page}, width: 1cm)'
        probe = f"#set page(width: 1cm, height: 1cm)\n{image}".encode()
        try:
            lay_out(probe, root=root, ignore_system_fonts=True)
        except typst.TypstError:
            return False
        return True

    if not name.endswith(".pdf"):
        return int(has(1))
    low, high = 0, most + 1
    while low < high:
        middle = (low + high + 1) // 2
        if has(middle):
            low = middle
        else:
            high = middle - 1
    return 0 if low > most else low


def scaled(root: Path, name: str, ppi: int) -> bytes:
    """Return a picture in `root` as a PNG of `ppi` pixels per inch, as wide as the text column."""
    import typst

    source = f'#set page(width: auto, height: auto, margin: 0pt)\n#image("/{name}", width: 170mm)'
    lay_out: Any = typst.compile
    made: bytes = lay_out(
        source.encode(), root=root, format="png", ppi=ppi, ignore_system_fonts=True
    )
    return made


def unshown_in(values: Mapping[str, Any]) -> str:
    """Return a sentence on the characters that no font of this machine contains, or "".

    Raise ImportError without Typst.
    """
    return _sentence(_lacking(_rare_in(values), own=True))


def _sentence(rare: list[str]) -> str:
    lacking = _lacking(rare, own=False)
    if not lacking:
        return ""
    scripts: dict[str, list[str]] = {}
    for each in lacking:
        scripts.setdefault(_script(each), []).append(each)
    named = ", ".join(f"{script} ({' '.join(of[:_NAMED])})" for script, of in scripts.items())
    codes = ", ".join(f"U+{ord(each):04X}" for each in lacking[:_NAMED])
    return (
        f"Empty boxes replace characters that no font has: {named}, such as {codes}. Install a "
        "font that has them where Tallyhook runs (the packages fonts-noto-core and "
        "fonts-noto-cjk of Debian and Ubuntu contain most characters), or use the HTML form, for "
        "which the browser has fonts."
    )


def _rare_in(values: Mapping[str, Any]) -> list[str]:
    text = json.dumps(values, ensure_ascii=False)
    return sorted({each for each in text if each > _SURE and category(each)[0] in "LNS"})


def _lacking(characters: Iterable[str], *, own: bool) -> list[str]:
    """Return the characters that cannot be shown, because their script has no font.

    own  whether to search only the fonts that come with Typst
    """
    import typst

    left, lacking = list(characters), list[str]()
    while left:
        try:
            typst.compile(
                _PROBE,
                ignore_system_fonts=own,
                pdf_standards=["a-2u"],
                sys_inputs={"characters": "".join(left)},
            )
        except typst.TypstError as error:
            found = _LACKS.search(str(error))
            script = None if found is None else _script(found[1][0])
            lacking += [each for each in left if script in (None, _script(each))]
            left = [each for each in left if script not in (None, _script(each))]
        else:
            break
    return lacking


def _script(character: str) -> str:
    word = name(character, "other").partition(" ")[0]
    return _SCRIPTS.get(word, word.capitalize())
