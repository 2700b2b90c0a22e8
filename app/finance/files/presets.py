"""Define presets, and choose how to read a file."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import AfterValidator

from app.core.errors import ConfigurationError, NotFoundError, TallyhookError, UsageError
from app.core.toml_file import EMPTY, TomlTable, parsed_toml
from app.finance.files import (
    amounts,
    bank,
    books,
    line_forms,
    opening,
    statements,
    tables,
    workbooks,
)
from app.finance.files.mapping import (
    MAX_BYTES,
    NONE,
    STAR,
    Fields,
    FileMapping,
    MappingFile,
    mapping_of,
    mapping_values,
    one_or_more,
    read_mapping,
    words_of_columns,
)
from app.finance.files.preset_rows import ROW_FUNCTIONS

SHIPPED: Final = Path(__file__).parents[1] / "presets"

NO_PRESET: Final = "none"
"""Preset name for reading the file without a preset."""

PresetKind = Literal["book", "statement", "bank"]

KINDS: Final[Mapping[PresetKind, Fields]] = {
    "book": books.BookForm.FIELDS,
    "statement": statements.StatementForm.FIELDS,
    "bank": bank.BankForm.FIELDS,
}

KIND_NAMES: Final[Mapping[PresetKind, str]] = {
    "book": "an order book",
    "statement": "a statement",
    "bank": "a bank's file",
}
COMMANDS: Final[Mapping[PresetKind, str]] = {
    "book": "tallyhook records import",
    "statement": "tallyhook statement import",
    "bank": "tallyhook bank import",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportColumns:
    """Columns by which an export is recognized. Names are compared without case, blanks and
    underscores."""

    names: Mapping[str, str]
    needed: Sequence[Sequence[str]]
    without: frozenset[str] = frozenset()

    def missing(self, heading: Collection[str]) -> list[str]:
        """Return the required columns that the heading lacks."""
        return [
            " or ".join(self.names[name] for name in either)
            for either in self.needed
            if not any(name in heading for name in either)
        ]

    def found(self, heading: Collection[str]) -> list[str]:
        return [written for name, written in self.names.items() if name in heading]


def export_columns(values: Mapping[str, Any]) -> ExportColumns:
    """Return the columns that identify an export."""
    if values.get("heading_row") == 0:
        return ExportColumns(names={}, needed=())
    optional, recognize = values.get("optional", ()), values.get("recognize", {})
    groups: list[tuple[str, Sequence[str]]] = []
    for name, names in values.get("columns", {}).items():
        either = [names] if isinstance(names, str) else names
        groups.append((name, [each for each in either if each]))
    for name, names in values.get("joined", {}).items():
        groups += [(name, [each]) for each in names]
    for name, parts in values.get("amounts", {}).items():
        sign = [parts["sign"]] if "sign" in parts else []
        added_up = (*parts.get("add", ()), *parts.get("subtract", ()), *sign)
        groups += [(name, [each]) for each in added_up]
    fold = values.get("fold", {})
    rest = [values.get("zone_column", ""), fold.get("by", ""), *fold.get("sum", ())]
    rest += [*values.get("keep", {}), *values.get("ignore", {}), *recognize.get("columns", ())]
    function, may_read = ROW_FUNCTIONS.get(values.get("rows", "")), list[str]()
    if function is not None:
        rest += function.reads
        may_read += function.may_read
        groups = [each for each in groups if {*each[1]}.isdisjoint(function.adds)]
    groups += [("", [name]) for name in rest if name]
    plain = [(name, tuple(map(tables.plain_name, names))) for name, names in groups]
    read = [*(name for _, names in groups for name in names), *may_read]
    return ExportColumns(
        names={tables.plain_name(name): name for name in read},
        needed=list(
            dict.fromkeys(names for name, names in plain if names and name not in optional)
        ),
        without=frozenset(map(tables.plain_name, recognize.get("without", ()))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Export that can be recognized by its columns."""

    name: str
    kind: PresetKind
    title: str
    columns: ExportColumns
    profiles: Sequence[str] = ()
    account: Mapping[str, str] = field(default_factory=dict)
    sheet: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(Export):
    """Shipped or custom mapping of one export."""

    source: Sequence[str]
    mapping: FileMapping

    def check(self, table: tables.SourceTable) -> None:
        """Raise RefusedTable if the table comes from another export."""
        if missing := self.columns.missing({tables.plain_name(name) for name in table.heading}):
            raise tables.RefusedTable(
                table.heading_row,
                f"this is not the file that the preset {self.name} reads ({self.title}): there is "
                f"no column {', '.join(map(repr, missing))}"
                f"{tables.found_instead(missing, table.heading)}",
            )


class _Recognize(TomlTable):
    columns: Annotated[Any, AfterValidator(one_or_more)] = NONE
    without: Annotated[Any, AfterValidator(one_or_more)] = NONE


class _RestsOn(TomlTable):
    source: Annotated[Any, AfterValidator(one_or_more)]


class _Account(TomlTable):
    label: str | None = None
    column: str | None = None


def _listed(value: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    for column, words in value.items():
        if starred := next((word for word in words if "*" in word), None):
            raise ValueError(f"{column}: {starred!r} {STAR}")
    return value


class _PresetFile(MappingFile):
    kind: PresetKind
    keep: Annotated[Any, AfterValidator(words_of_columns), AfterValidator(_listed)] = EMPTY
    ignore: Annotated[Any, AfterValidator(words_of_columns), AfterValidator(_listed)] = EMPTY
    title: str
    profiles: Annotated[Any, AfterValidator(one_or_more)] = NONE
    account: _Account = EMPTY
    rows: Literal[tuple(ROW_FUNCTIONS)] | None = None  # type: ignore[valid-type]
    recognize: _Recognize = EMPTY
    rests_on: _RestsOn


def shipped_presets() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def preset_text(name_or_path: str) -> str:
    """Return the text of a preset's file, by name or path. Raise NotFoundError for a missing file,
    and UsageError for an unreadable file."""
    path = _path_of(name_or_path)
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"there is no preset file {path.name}") from None
    except (OSError, UnicodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeError) else error.strerror
        raise UsageError(f"the preset {path.name} cannot be read: {why}") from None


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
    """Return a preset by its name or path. Raise UsageError that lists all mistakes."""
    path = _path_of(name_or_path)
    return read_preset(path.stem, preset_text(name_or_path), file=path.name, beside=beside)


def read_preset(
    name: str, text: str, *, file: str, beside: Mapping[str, Any] | None = None
) -> Preset:
    """Parse the text of a preset. Raise UsageError that lists all mistakes."""
    kind = _key_of(text, "kind")
    fields = next((known for each, known in KINDS.items() if each == kind), books.BookForm.FIELDS)
    values = mapping_values(text.encode(), fields, name=file, beside=beside, base=_PresetFile)
    return Preset(
        name=name,
        kind=values["kind"],
        title=values["title"],
        columns=export_columns(tomllib.loads(text)),
        profiles=values["profiles"],
        source=values["rests_on"]["source"],
        mapping=replace(mapping_of(values, only_named=fields.names), rows=values["rows"]),
    )


def _key_of(text: str, key: str) -> Any:
    with suppress(ConfigurationError):  # reading the values reports it
        return parsed_toml(text, name="").get(key) if len(text) <= MAX_BYTES else None
    return None


# --- presets for people ---------------------------------------------------------------------------


def list_presets() -> list[dict[str, Any]]:
    return [
        {
            "preset": preset.name,
            "kind": preset.kind,
            "title": preset.title,
            "recognized_by": ", ".join(preset.columns.missing(())),
        }
        for preset in map(load_preset, shipped_presets())
    ]


def show_preset(name_or_path: str) -> dict[str, Any]:
    """Return a preset with the text of its file."""
    preset = load_preset(name_or_path)
    return {
        "preset": preset.name,
        "kind": preset.kind,
        "title": preset.title,
        "recognized_by": preset.columns.missing(()),
        "not_with": sorted(preset.columns.without),
        "source": list(preset.source),
        "file": preset_text(name_or_path),
    }


# --- recognized by the heading --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognized:
    """Export that fits the heading of a file."""

    export: Export
    columns: Sequence[str]
    row: int
    accounts: frozenset[str] = frozenset()

    @property
    def because(self) -> str:
        return (
            f"Read with the preset {self.export.name} ({self.export.title}), because "
            f"row {self.row:,} has its columns: {', '.join(self.columns)}."
        )


FirstRow = tuple[int, Sequence[str]]
"""Row that may be the heading: (row number, cells)."""


def recognized(
    path: Path,
    *,
    kind: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> list[Recognized]:
    """Return the shipped presets that fit a file."""
    try:
        return recognized_in(first_rows(path, encoding=encoding, sheet=sheet), kind=kind)
    except (tables.RefusedTable, TallyhookError, OSError):
        return []


def recognized_in(
    rows: Sequence[FirstRow], among: Sequence[Export] | None = None, *, kind: str | None = None
) -> list[Recognized]:
    """Return the exports that fit one of the first rows."""
    best: dict[int, list[Recognized]] = {}
    fitted = set[str]()
    for number, row, plain in _plain_rows(rows):
        for export in shipped_exports() if among is None else among:
            columns = export.columns
            if export.name in fitted or kind not in (None, export.kind):
                continue
            if columns.missing(plain) or not plain.isdisjoint(columns.without):
                continue
            fitted.add(export.name)
            accounts = _accounts(export.account, rows, number, row)
            found = Recognized(
                export=export, columns=columns.found(plain), row=number, accounts=accounts
            )
            rivals = best.setdefault(number, [found])
            if len(found.columns) > len(rivals[0].columns):
                best[number] = [found]
            elif found is not rivals[0] and len(found.columns) == len(rivals[0].columns):
                rivals.append(found)
    return [each for fitting in best.values() for each in fitting]


def _plain_rows(rows: Sequence[FirstRow]) -> Iterator[tuple[int, Sequence[str], set[str]]]:
    for number, row in rows:
        plain = {tables.plain_name(cell) for cell in row} - {""}
        if len(plain) > 1:
            yield number, row, plain


NEARLY: Final = 3


def nearly_recognized(rows: Sequence[FirstRow], *, kind: str | None = None) -> list[str]:
    """Return a sentence on each preset that nearly fits."""
    near: dict[tuple[int, int], dict[str, str]] = {}
    for _, _, plain in _plain_rows(rows):
        for export in shipped_exports():
            missing = export.columns.missing(plain)
            if not missing or len(missing) * NEARLY >= len(export.columns.needed):
                continue
            if kind in (None, export.kind) and plain.isdisjoint(export.columns.without):
                at = len(missing), -len(export.columns.found(plain))
                near.setdefault(at, {})[export.name] = (
                    f"Nearly {export.name} ({export.title}): {' and '.join(map(repr, missing))} "
                    f"{'is' if len(missing) == 1 else 'are'} missing. Export the file with all "
                    "its columns, or change a copy of the preset (`tallyhook presets show "
                    f"{export.name}`)."
                )
    return list(near[min(near)].values()) if near else []


@cache
def shipped_exports() -> Sequence[Export]:
    """Return all shipped presets, unchecked and sorted by name."""
    return [export_in(name, preset_text(name)) for name in shipped_presets()]


def export_in(name: str, text: str, *, kind: Any = None) -> Export:
    """Return the export that a valid preset or mapping describes."""
    values = tomllib.loads(text)
    return Export(
        name=name,
        kind=values.get("kind", kind),
        title=values.get("title", ""),
        columns=export_columns(values),
        profiles=values.get("profiles", ()),
        account=values.get("account", {}),
        sheet=values.get("sheet"),
    )


_ACCOUNT: Final = re.compile(r"\w[\w.-]*")


def _accounts(
    where: Mapping[str, str], rows: Sequence[FirstRow], heading_row: int, heading: Sequence[str]
) -> frozenset[str]:
    found = set()
    label, column = (tables.plain_name(where.get(key, "")) for key in ("label", "column"))
    place = [*map(tables.plain_name, heading), column].index(column)
    for number, row in rows:
        if label and number < heading_row:
            name, _, stated = " ".join(cell.strip() for cell in row).partition(":")
            if tables.plain_name(name) == label and (account := _ACCOUNT.search(stated)):
                found.add(account[0])
        elif column and number > heading_row and len(row) == len(heading) and row[place].strip():
            found.add(row[place].strip())
    return frozenset(found)


def first_rows(
    path: Path, *, encoding: str | None = None, sheet: str | None = None
) -> list[FirstRow]:
    """Return the first rows of a file, split by every delimiter."""
    return list(_first_rows(path, encoding, sheet))


def _first_rows(path: Path, encoding: str | None, sheet: str | None) -> Iterator[FirstRow]:
    form = opening.format_of(path)
    if form == "workbook":
        most = tables.SEARCHED_ROWS
        yield from workbooks.XlsxTable(path, sheet=sheet, recognize=len, most=most).first_rows()
    if form == "json_lines":
        names = [name for fields in KINDS.values() for name in fields.names]
        yield 1, opening.JsonLines(path, encoding=encoding, names=names).heading
    if form != "text":
        return
    rows = 0
    for number, line in enumerate(tables.lines(path, tables.encoding_of(path, encoding)), 1):
        if line.strip():
            rows += 1
            yield from ((number, tables.cells_of_line(line, mark)) for mark in tables.DELIMITERS)
        if rows == tables.SEARCHED_ROWS:
            return


# --- choosing how to read a file ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRequest:
    """File to read, with declarations that replace keys of a mapping. `preset` is None for the
    fitting preset."""

    path: Path
    inside: Path | None = None
    mapping: Path | None = None
    content: str = ""
    preset: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    dates: str | None = None
    zone: str | None = None
    currency: str | None = None

    @property
    def table_path(self) -> Path:
        return self.inside or self.path

    @property
    def mapped(self) -> bool:
        return self.mapping is not None or bool(self.content)


class OpenTable(Protocol):
    """Function that opens a file as a table."""

    def __call__(
        self,
        path: Path,
        mapping: FileMapping,
        fields: Fields,
        *,
        check: opening.Check | None = None,
    ) -> tables.SourceTable: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenReading:
    """Chosen way to read a file."""

    mapping: FileMapping
    preset: Preset | None = None
    notes: Sequence[str] = ()

    def open(
        self, path: Path, form: line_forms.LineForm, *, opens: OpenTable = opening.open_table
    ) -> tables.SourceTable:
        """Open the file's table. Raise RefusedTable if the file does not come from the preset's
        export."""
        check = None if self.preset is None else self.preset.check
        return opens(path, self.mapping, form.FIELDS, check=check)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingDefaults:
    """Default settings for what a mapping does not state."""

    zone: tzinfo | None
    phone_country: str | None = None

    def beside(self, found: ChosenReading) -> ChosenReading:
        """Return the reading with these defaults for missing values."""
        mapping = replace(
            found.mapping,
            zone=self.zone if found.mapping.zone is None else found.mapping.zone,
            phone_country=found.mapping.phone_country or self.phone_country,
        )
        return replace(found, mapping=mapping)


def choose(
    request: ReadingRequest, kind: PresetKind, *, unstated: ReadingDefaults
) -> ChosenReading:
    """Choose how to read a file: by the request, a fitting preset, or usual column names. Raise
    UsageError if several presets fit."""
    if request.mapped and request.preset is not None:
        raise UsageError(
            "give --preset or --mapping, not both. To change a preset, save what `tallyhook "
            "presets show NAME` prints, and give that file with --preset FILE"
        )
    if not request.mapped and request.preset is None:
        chosen = _by_heading(request, kind)
    elif request.preset in (None, NO_PRESET):
        chosen = requested_reading(request, KINDS[kind])
    else:
        chosen = _with_preset(request, str(request.preset), kind)
    return unstated.beside(replace(chosen, mapping=_as_stated_above(chosen.mapping, request)))


def _by_heading(request: ReadingRequest, kind: PresetKind) -> ChosenReading:
    fitting = recognized(
        request.table_path, kind=kind, encoding=request.encoding, sheet=request.sheet
    )
    if len(fitting) > 1:
        names = " or ".join(f"--preset {each.export.name}" for each in fitting)
        reasons = " ".join(each.because for each in fitting)
        raise UsageError(f"the file fits {len(fitting)} presets: give {names}. {reasons}")
    if fitting:
        chosen = _with_preset(request, fitting[0].export.name, kind)
        return replace(chosen, notes=[fitting[0].because])
    return requested_reading(request, KINDS[kind])


def _with_preset(request: ReadingRequest, name: str, kind: PresetKind) -> ChosenReading:
    preset = load_preset(name, beside=_beside(request))
    if preset.kind != kind:
        raise UsageError(
            f"the preset {preset.name} reads {KIND_NAMES[preset.kind]} ({preset.title}): use "
            f"`{COMMANDS[preset.kind]}`"
        )
    shipped = preset.name if name in shipped_presets() else ""
    mapping = replace(_in_currency(preset.mapping, request), preset=shipped)
    return ChosenReading(mapping=mapping, preset=preset)


def _as_stated_above(mapping: FileMapping, request: ReadingRequest) -> FileMapping:
    if not mapping.above:
        return mapping
    stated: dict[str, str] = {}
    labels = {tables.plain_name(label): name for name, label in mapping.above.items()}
    with suppress(tables.RefusedTable, TallyhookError, OSError):  # reading the file reports it
        rows = first_rows(
            request.table_path,
            encoding=request.encoding,
            sheet=request.sheet or mapping.sheet,
        )
        for _, row in rows:
            label, colon, text = " ".join(cell.strip() for cell in row).partition(":")
            if not colon:  # the label is a cell of its own
                label, text = row[0], " ".join(row[1:])
            name, text = labels.get(tables.plain_name(label)), text.strip(" ,;|\t")
            if name is not None and text:
                stated.setdefault(name, text)
    return replace(mapping, defaults={**mapping.defaults, **stated})


BESIDE: Final = ("delimiter", "encoding", "sheet", "dates", "zone")


def _beside(request: ReadingRequest) -> dict[str, str]:
    given = {key: getattr(request, key) for key in BESIDE}
    return {key: value for key, value in given.items() if value is not None}


def _in_currency(mapping: FileMapping, request: ReadingRequest) -> FileMapping:
    if request.currency is None:
        return mapping
    try:
        (code,) = amounts.read_currencies([request.currency])
    except tables.UnclearCell as error:
        raise UsageError(f"--currency {error}") from None
    return replace(mapping, defaults={**mapping.defaults, "currency": code})


def requested_reading(request: ReadingRequest, fields: Fields) -> ChosenReading:
    """Return the requested mapping, or the usual column names."""
    content = request.content.encode()
    if request.mapping is not None and not content:
        try:
            with request.mapping.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise NotFoundError(f"there is no mapping {request.mapping.name}") from None
        except OSError as error:
            raise UsageError(f"the mapping cannot be read: {error.strerror}") from None
    name = "the mapping" if request.mapping is None else request.mapping.name
    found = reading_in(content, fields, name=name, beside=_beside(request))
    return replace(found, mapping=_in_currency(found.mapping, request))


def reading_in(
    content: bytes, fields: Fields, *, name: str, beside: Mapping[str, Any] | None = None
) -> ChosenReading:
    """Parse a mapping or a preset. Raise UsageError that lists all mistakes."""
    known = next(each for each, theirs in KINDS.items() if theirs is fields)
    text = content.decode(errors="replace")
    if (kind := _key_of(text, "kind")) not in (None, known):
        raise UsageError(f"{name} is a mapping for another kind of file: {kind}")
    if _key_of(text, "rests_on") is None:
        return ChosenReading(mapping=read_mapping(content, fields, name=name, beside=beside))
    preset = read_preset(name.removesuffix(".toml"), text, file=name, beside=beside)
    return ChosenReading(mapping=replace(preset.mapping, preset=""), preset=preset)
