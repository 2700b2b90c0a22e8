"""Presets: mappings of exports that many merchants have, each known by a name and by its heading;
and how a file is to be read: as a mapping or a preset says, or as the preset that it looks like.

A preset is a mapping with three things more: the kind of file, the columns by which a heading is
that of the export, and where its facts come from. `../presets/README.md` says how to write one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import AfterValidator

from app.core.errors import NotFoundError, TallyhookError, UsageError
from app.core.toml_file import TomlTable
from app.finance.files import amounts, books, opening, statements, tables
from app.finance.files.mapping import (
    MAX_BYTES,
    NONE,
    Fields,
    FileMapping,
    MappingFile,
    mapping_of,
    mapping_values,
    one_or_more,
    read_mapping,
)

SHIPPED: Final = Path(__file__).parents[1] / "presets"

NO_PRESET: Final = "none"
"""What is said where a file is to be read by the usual names of columns, whatever it looks like."""

PresetKind = Literal["book", "statement"]

KINDS: Final[Mapping[PresetKind, Fields]] = {
    "book": books.BookForm.FIELDS,
    "statement": statements.StatementForm.FIELDS,
}

KIND_NAMES: Final[Mapping[PresetKind, str]] = {"book": "an order book", "statement": "a statement"}
COMMANDS: Final[Mapping[PresetKind, str]] = {
    "book": "tallyhook records import",
    "statement": "tallyhook statement import",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """By what a heading is known: all of these columns, and none of the others."""

    columns: Sequence[str]
    without: Sequence[str] = ()

    def fits(self, heading: Sequence[str]) -> bool:
        """Whether this heading has it."""
        names = {tables.plain_name(name) for name in heading}
        return names.issuperset(map(tables.plain_name, self.columns)) and names.isdisjoint(
            map(tables.plain_name, self.without)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One export.

    title   what it is called by who makes it
    source  where the names of its columns are documented
    """

    name: str
    kind: PresetKind
    title: str
    mark: Mark
    source: Sequence[str]
    mapping: FileMapping

    def check(self, table: tables.SourceTable) -> None:
        """Raises RefusedTable for a table that is another one."""
        names = {tables.plain_name(name) for name in table.heading}
        missing = [name for name in self.mark.columns if tables.plain_name(name) not in names]
        if missing:
            raise tables.RefusedTable(
                table.heading_row,
                f"this is not the file that the preset {self.name} reads ({self.title}): there is "
                f"no column {', '.join(map(repr, missing))}"
                f"{tables.found_instead(missing, table.heading)}",
            )


class _Recognize(TomlTable):
    columns: Annotated[Any, AfterValidator(one_or_more)]
    without: Annotated[Any, AfterValidator(one_or_more)] = NONE


class _RestsOn(TomlTable):
    source: Annotated[Any, AfterValidator(one_or_more)]


class _PresetFile(MappingFile):
    kind: PresetKind
    title: str
    recognize: _Recognize
    rests_on: _RestsOn


def shipped_presets() -> list[str]:
    """Names that `load_preset` knows without a path, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def preset_text(name_or_path: str) -> str:
    """The file of a preset: of a shipped name, or of a path (it has a `/` or ends in `.toml`).

    Raises NotFoundError where there is none, UsageError where it cannot be read.
    """
    path = _path_of(name_or_path)
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"there is no preset file {path.name}") from None
    except (OSError, UnicodeError) as error:
        raise UsageError(f"the preset {path.name} cannot be read: {_why(error)}") from None


def _why(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeError) else getattr(error, "strerror", "")


def _path_of(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in shipped_presets():
        near = get_close_matches(name_or_path.lower(), shipped_presets(), n=1, cutoff=0.4)
        nearest = f"; the nearest one is {near[0]}" if near else ""
        raise NotFoundError(
            f"there is no preset {name_or_path[:40]!r}{nearest}: name one of "
            f"{', '.join(shipped_presets())}, or a path to a file"
        )
    return SHIPPED / f"{name_or_path}.toml"


def load_preset(name_or_path: str, *, beside: Mapping[str, Any] | None = None) -> Preset:
    """The preset of a name or path, as `preset_text` takes. beside: keys that go before its own.

    Raises UsageError with all that is wrong with it, and as `preset_text` does.
    """
    text = preset_text(name_or_path)
    path = _path_of(name_or_path)
    return read_preset(path.stem, text, file=path.name, beside=beside)


def read_preset(
    name: str, text: str, *, file: str, beside: Mapping[str, Any] | None = None
) -> Preset:
    """The preset in a text. Raises UsageError with all that is wrong with it."""
    fields = KINDS.get(_kind_in(text), books.BookForm.FIELDS)
    values = mapping_values(text.encode(), fields, name=file, beside=beside, base=_PresetFile)
    return Preset(
        name=name,
        kind=values["kind"],
        title=values["title"],
        mark=Mark(**values["recognize"]),
        source=values["rests_on"]["source"],
        mapping=mapping_of(values, only_named=fields.names),
    )


def _kind_in(text: str) -> Any:
    """What it says it is; anything where it says none: reading it then reports that."""
    if len(text) > MAX_BYTES:
        return None
    try:
        kind = tomllib.loads(text).get("kind")
    except ValueError:
        return None
    return kind if isinstance(kind, str) else None


# --- presets as people look at them ---------------------------------------------------------------


def list_presets() -> list[dict[str, Any]]:
    """Every shipped preset."""
    return [
        {
            "preset": preset.name,
            "kind": preset.kind,
            "title": preset.title,
            "recognized_by": ", ".join(preset.mark.columns),
        }
        for preset in map(load_preset, shipped_presets())
    ]


def show_preset(name_or_path: str) -> dict[str, Any]:
    """A preset and its file, which may be copied and changed. Raises as `load_preset` does."""
    preset = load_preset(name_or_path)
    return {
        "preset": preset.name,
        "kind": preset.kind,
        "title": preset.title,
        "recognized_by": list(preset.mark.columns),
        "not_with": list(preset.mark.without),
        "source": list(preset.source),
        "file": preset_text(name_or_path),
    }


# --- recognized by the heading --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognized:
    """A shipped preset that a file looks like, and the row that is its heading."""

    name: str
    kind: PresetKind
    title: str
    columns: Sequence[str]
    row: int

    @property
    def because(self) -> str:
        """Why, in a sentence."""
        return (
            f"Read with the preset {self.name} ({self.title}), for row {self.row:,} has its "
            f"columns: {', '.join(self.columns)}."
        )


def recognized(path: Path, *, encoding: str | None = None) -> list[Recognized]:
    """The shipped presets that a file looks like, by name; none for what cannot be read, for
    reading it reports why."""
    try:
        headings = list(_headings(path, encoding))
    except (tables.RefusedTable, TallyhookError, OSError):
        return []
    return [
        Recognized(name=name, kind=kind, title=title, columns=mark.columns, row=row)
        for name, kind, title, mark in _marks()
        if (row := next((row for row, heading in headings if mark.fits(heading)), 0))
    ]


def known_exports() -> list[tuple[str, PresetKind, str]]:
    """(name, kind, title) of every shipped preset, by name."""
    return [(name, kind, title) for name, kind, title, _ in _marks()]


@cache
def _marks() -> Sequence[tuple[str, PresetKind, str, Mark]]:
    """Of every shipped preset what it is known by: without reading all of them as mappings, which
    takes a second."""
    found = []
    for name in shipped_presets():
        values = tomllib.loads(preset_text(name))
        found.append((name, values["kind"], values["title"], Mark(**values["recognize"])))
    return found


def _headings(path: Path, encoding: str | None) -> Iterator[tuple[int, Sequence[str]]]:
    """What may be the heading: the first rows, under every delimiter."""
    form = opening.format_of(path)
    if form == "workbook":
        yield from opening.XlsxTable(path, sheet=None, recognize=len).first_rows()
    if form != "text":
        return
    rows = 0
    for number, line in enumerate(tables.lines(path, tables.encoding_of(path, encoding)), 1):
        if line.strip():
            rows += 1
            yield from ((number, tables.cells_of_line(line, mark)) for mark in tables.DELIMITERS)
        if rows == tables.SEARCHED_ROWS:
            return


# --- how a file is to be read ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which file, and what is said of it. What is declared beside the mapping goes before it.

    preset    whose mapping it is: a name, a path, or NO_PRESET; None: which one the file looks like
    currency  of rows that name none
    """

    path: Path
    mapping: Path | None = None
    preset: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    dates: str | None = None
    zone: str | None = None
    currency: str | None = None


class Open(Protocol):
    """Opens a file as a table; as `open_table` does, or so that it knows more formats."""

    def __call__(
        self,
        path: Path,
        mapping: FileMapping,
        fields: Fields,
        *,
        check: opening.Check | None = None,
    ) -> tables.SourceTable: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How a file is to be read.

    preset  whose mapping it is; None: of no preset
    notes   why, and what else is known of the file, one sentence each
    """

    mapping: FileMapping
    preset: Preset | None = None
    notes: Sequence[str] = ()

    def open(
        self, path: Path, form: books.Form, *, opens: Open = opening.open_table
    ) -> tables.SourceTable:
        """The file's table. Raises as `open_table` does, also for a file of another export."""
        check = None if self.preset is None else self.preset.check
        return opens(path, self.mapping, form.FIELDS, check=check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstated:
    """What counts where a file's mapping does not say it; None: unknown.

    zone           of times without one
    phone_country  the calling code of phone numbers without one
    """

    zone: tzinfo | None
    phone_country: str | None = None

    def beside(self, found: Chosen) -> Chosen:
        """The same, with this where it says nothing."""
        mapping = replace(
            found.mapping,
            zone=self.zone if found.mapping.zone is None else found.mapping.zone,
            phone_country=found.mapping.phone_country or self.phone_country,
        )
        return replace(found, mapping=mapping)


def choose(request: Asked, kind: PresetKind, *, unstated: Unstated) -> Chosen:
    """The mapping or preset that is said, else the preset that the file looks like, else the usual
    names of columns.

    Raises UsageError or NotFoundError for one that is none, and where several presets fit.
    """
    return unstated.beside(_chosen(request, kind))


def choose_mapping(request: Asked, fields: Fields, *, unstated: Unstated) -> Chosen:
    """As `choose`, for a kind of file that has no presets: the mapping that is said, else the usual
    names of columns."""
    return unstated.beside(Chosen(mapping=_mapping(request, fields)))


def _chosen(request: Asked, kind: PresetKind) -> Chosen:
    if request.mapping is not None and request.preset is not None:
        raise UsageError(
            "say --preset or --mapping: a preset is a mapping. `tallyhook presets show NAME` "
            "prints it, to be copied, changed, and said as --preset FILE"
        )
    if request.mapping is None and request.preset is None:
        return _looks_like(request, kind)
    if request.preset in (None, NO_PRESET):
        return Chosen(mapping=_mapping(request, KINDS[kind]))
    return _with_preset(request, str(request.preset), kind)


def _looks_like(request: Asked, kind: PresetKind) -> Chosen:
    found = recognized(request.path, encoding=request.encoding)
    fitting = [each for each in found if each.kind == kind]
    if len(fitting) > 1:
        names = " or ".join(f"--preset {each.name}" for each in fitting)
        reasons = " ".join(each.because for each in fitting)
        raise UsageError(f"the file looks like {len(fitting)} exports: say {names}. {reasons}")
    if not fitting:
        notes = [_of_another_kind(each) for each in found]
        return Chosen(mapping=_mapping(request, KINDS[kind]), notes=notes)
    (one,) = fitting
    return replace(_with_preset(request, one.name, kind), notes=[one.because])


def _of_another_kind(found: Recognized) -> str:
    return (
        f"The file looks like {found.name} ({found.title}), which is {KIND_NAMES[found.kind]}: "
        f"import it with `{COMMANDS[found.kind]}`."
    )


def _with_preset(request: Asked, name: str, kind: PresetKind) -> Chosen:
    preset = load_preset(name, beside=_beside(request))
    if preset.kind != kind:
        raise UsageError(
            f"the preset {preset.name} reads {KIND_NAMES[preset.kind]} ({preset.title}): say "
            f"`{COMMANDS[preset.kind]}`"
        )
    mapping = replace(_in_currency(preset.mapping, request), signed=True)
    return Chosen(mapping=mapping, preset=preset)


BESIDE: Final = ("delimiter", "encoding", "dates", "zone")
"""Keys of a mapping that may be said beside it."""


def _beside(request: Asked) -> dict[str, str]:
    """What was said beside the mapping, as keys of it."""
    stated = {key: getattr(request, key) for key in BESIDE}
    return {key: value for key, value in stated.items() if value is not None}


def _in_currency(mapping: FileMapping, request: Asked) -> FileMapping:
    if request.currency is None:
        return mapping
    try:
        (code,) = amounts.read_currencies([request.currency])
    except tables.UnclearCell as error:
        raise UsageError(f"--currency {error}") from None
    return replace(mapping, defaults={**mapping.defaults, "currency": code})


def _mapping(request: Asked, fields: Fields) -> FileMapping:
    content = b""
    if request.mapping is not None:
        try:
            with request.mapping.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise NotFoundError(f"there is no mapping {request.mapping.name}") from None
        except OSError as error:
            raise UsageError(f"the mapping cannot be read: {error.strerror}") from None
    name = "the mapping" if request.mapping is None else request.mapping.name
    mapping = read_mapping(content, fields, name=name, beside=_beside(request))
    return _in_currency(mapping, request)
