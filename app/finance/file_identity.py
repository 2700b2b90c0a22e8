"""Identify a file by its content: the kind, the export format, and a statement's source.

1 format   BAI2, CAMT, MT940, MT942 and OFX come from banks
2 mapping  a saved mapping fits if the file has all its columns
3 preset   if no mapping fits, a preset that fits the heading
4 columns  if no preset fits, kinds whose required columns are in the heading
5 source   the provider's source; if there are several, the one whose account the file names

Nothing is guessed: if several kinds or sources remain, a person must choose.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from app.config.settings import SourceSettings
from app.core.errors import UsageError
from app.finance.files import (
    bank,
    bank_formats,
    books,
    mapping,
    opening,
    presets,
    statements,
    tables,
)
from app.finance.import_store import ImportKind, NamedMapping
from app.providers.profile import shipped_profiles

ROW_FORMS: Final[Mapping[ImportKind, Any]] = {
    "book": books.BookForm,
    "statement": lambda mapped: statements.StatementForm(mapped, source=""),
    "bank": bank.BankForm,
}

ANY_PROVIDER: Final = frozenset({"checkout", "convoy", "rfc9421", "standard_webhooks", "svix"})
"""Profiles of signature schemes that several providers share."""


Request = TypeVar("Request", bound=presets.ReadingRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """Kind, source and export format of a file."""

    kinds: Sequence[ImportKind] = ()
    sources: Sequence[str] = ()
    unsure: bool = False
    preset: presets.Recognized | None = None
    mapping: str | None = None
    because: Sequence[str] = ()
    nearly: Sequence[str] = ()

    @property
    def kind(self) -> ImportKind | None:
        return self.kinds[0] if len(self.kinds) == 1 else None

    @property
    def source(self) -> str | None:
        """Return a statement's source; None if uncertain, and empty for other kinds of files."""
        if self.kind != "statement":
            return ""
        return self.sources[0] if len(self.sources) == 1 and not self.unsure else None

    def reading(self, request: Request) -> Request:
        """Return the request, completed with the fitting mapping or preset."""
        if self.mapping is not None:
            return replace(request, mapping=Path(self.mapping))
        if self.preset is not None and request.preset is None:
            return replace(request, preset=self.preset.export.name)
        return request

    def settled(self) -> tuple[ImportKind, str]:
        """Return the file's kind and source. Raise UsageError if a person must choose."""
        why = " ".join(self.because)
        if not self.kinds:
            raise UsageError(
                "the file is not recognized as an order book, a statement or a bank's file: name "
                f"its columns with --mapping FILE. {why}"
            )
        if self.kind is None:
            names = " or ".join(presets.KIND_NAMES[each] for each in self.kinds)
            choices = " or ".join(f"--kind {each}" for each in self.kinds)
            raise UsageError(f"the file may be {names}: give {choices}")
        if self.source is None:
            raise UsageError(
                "give --source, the source that this statement comes from. Possible: "
                f"{', '.join(self.sources)}. "
                f"{why}".rstrip(". ")
            )
        return self.kind, self.source


def identify_file(
    request: presets.ReadingRequest,
    *,
    sources: Mapping[str, SourceSettings],
    kind: ImportKind | None = None,
    source: str | None = None,
    account: str = "",
    saved: Sequence[NamedMapping] = (),
) -> FileIdentity:
    """Identify a file by its content. Raise NotFoundError or UsageError for an unreadable file or
    an impossible source."""
    try:
        found = _kinds_of(request, kind, account, saved)
    except tables.RefusedTable as refused:
        if kind is None:
            return FileIdentity(because=[f"It cannot be read: {refused.problem.sentence}."])
        found = FileIdentity(kinds=[kind])  # reading it says why
    except OSError as error:
        raise UsageError(f"{request.path.name} cannot be read: {error.strerror}") from None
    if found.kind != "statement":
        return found
    profiles = () if found.preset is None else found.preset.export.profiles
    if source is not None:
        check_source(sources, source, profiles, known=found.because)
        return replace(found, sources=[source])
    return _of_source(found, sources)


def check_source(
    sources: Mapping[str, SourceSettings],
    source: str,
    profiles: Collection[str],
    *,
    known: Sequence[str] = (),
) -> None:
    """Raise UsageError if the source's provider is not one of `profiles`."""
    settings = sources.get(source)
    if settings is None or not profiles or settings.profile in (*profiles, *ANY_PROVIDER):
        return
    if settings.profile in shipped_profiles():
        theirs = _of_profiles(sources, profiles)
        instead = (
            f"give --source {' or '.join(theirs)}" if theirs else "connect that provider first"
        )
        raise UsageError(
            f"the file is not a statement of {source}, whose profile is {settings.profile}: it "
            f"comes from {' or '.join(profiles)}; {instead}. {' '.join(known)}".rstrip()
        )


def _of_profiles(sources: Mapping[str, SourceSettings], profiles: Collection[str]) -> list[str]:
    return sorted(name for name, each in sources.items() if each.profile in profiles)


def _of_source(found: FileIdentity, sources: Mapping[str, SourceSettings]) -> FileIdentity:
    because = list(found.because)
    possible = sorted(sources)
    profiles = () if found.preset is None else found.preset.export.profiles
    if found.preset is not None and found.preset.export.title:  # its maker is known
        theirs = _of_profiles(sources, profiles)
        shipped = {*shipped_profiles()} - ANY_PROVIDER
        possible = theirs or [name for name in possible if sources[name].profile not in shipped]
        if not possible and profiles and sources:
            raise UsageError(
                f"this is a statement of {' or '.join(profiles)}, but no source has this profile: "
                f"connect the provider first. {' '.join(because)}"
            )
        if not possible and sources:
            because.append("No source belongs to the provider that made the file.")
            return replace(found, sources=sorted(sources), because=because, unsure=True)
    accounts = frozenset() if found.preset is None else found.preset.accounts
    stated = {name: _accounts_of(sources[name]) for name in possible}
    if accounts and any(stated.values()):
        named = [name for name in possible if stated[name] & accounts]
        account = " and ".join(sorted(accounts))
        if len(named) == 1:
            possible = named
            because.append(
                f"It belongs to the source {named[0]}, because it names that source's account "
                f"{account}."
            )
        else:
            whose = "several sources have" if named else "no source has"
            because.append(f"The account in the file is {account}, which {whose}.")
            return replace(found, sources=possible, because=because, unsure=True)
    elif len(possible) == 1 < len(sources):
        because.append(f"It belongs to the source {possible[0]}, the only one that fits.")
    return replace(found, sources=possible or [""], because=because)


def _accounts_of(settings: SourceSettings) -> set[str]:
    code = settings.credentials.get("shortcode")
    return {*settings.account} | ({code.get_secret_value()} if code is not None else set())


def _kinds_of(
    request: presets.ReadingRequest,
    kind: ImportKind | None,
    account: str,
    saved: Sequence[NamedMapping],
) -> FileIdentity:
    form = bank_formats.bank_format(request.table_path)
    if form is not None and kind in (None, "bank"):
        return FileIdentity(kinds=["bank"], because=[f"It is a bank's file, in {form}."])
    if request.preset not in (None, presets.NO_PRESET):
        preset = presets.load_preset(str(request.preset))
        shown = presets.Recognized(export=preset, columns=(), row=0)
        return FileIdentity(kinds=[kind or preset.kind], preset=shown)
    if kind is not None and (request.mapped or request.preset is not None):
        return FileIdentity(kinds=[kind])
    rows = presets.first_rows(request.table_path, encoding=request.encoding, sheet=request.sheet)
    if not request.mapped and request.preset is None:
        own = [presets.export_in(each.name, each.toml, kind=each.kind) for each in saved]
        several = [each for each in own if len(each.columns.needed) > 1]
        of_first = [each for each in several if request.sheet or not each.sheet]
        fits = presets.recognized_in(rows, of_first, kind=kind)
        if opening.format_of(request.table_path) == "workbook":
            for each in several:
                if each not in of_first:
                    with suppress(tables.RefusedTable):  # there is no such sheet
                        of_sheet = presets.first_rows(request.table_path, sheet=each.sheet)
                        fits += presets.recognized_in(of_sheet, [each], kind=kind)
        if fits:
            if len(fits) > 1:
                names = " or ".join(f"--mapping {each.export.name!r}" for each in fits)
                raise UsageError(f"several saved mappings fit the file: give {names}")
            (fit,) = fits
            why = f"Read with the mapping {fit.export.name}: the file has all of its columns."
            return FileIdentity(
                kinds=[fit.export.kind], preset=fit, mapping=fit.export.name, because=[why]
            )
        if fits := presets.recognized_in(rows, kind=kind):
            return FileIdentity(
                kinds=list(dict.fromkeys(each.export.kind for each in fits)),
                preset=fits[0] if len(fits) == 1 else None,
                because=[each.because for each in fits],
            )
    return FileIdentity(kinds=[kind]) if kind is not None else _by_columns(request, account, rows)


def _by_columns(
    request: presets.ReadingRequest, account: str, rows: Sequence[presets.FirstRow]
) -> FileIdentity:
    read: dict[ImportKind, set[str]] = {}
    mistakes = []
    for kind, fields in presets.KINDS.items():
        try:
            mapped = presets.requested_reading(request, fields).mapping
        except UsageError as error:
            mistakes.append(error)
            continue
        if account and kind == "bank":
            mapped = replace(mapped, defaults={**mapped.defaults, "account": account})
        form = ROW_FORMS[kind](mapped)
        for _, row in rows:
            plain = {tables.plain_name(name) for name in row}
            named = {
                name: {tables.plain_name(each) for each in _columns_of(name, mapped)} & plain
                for name in fields.names
            }
            places = {name: 0 for name, found in named.items() if found} | {"currency": 0}
            if not any(form.missing(places)):
                read.setdefault(kind, set()).update(*named.values())
                break
    if len(mistakes) == len(presets.KINDS):
        raise mistakes[0]
    kinds = [kind for kind in read if not any(read[kind] < other for other in read.values())]
    if not kinds:
        nearly = presets.nearly_recognized(rows)
        why = (
            "None of the file's first rows has the columns of any of these kinds, or of a known "
            "export."
        )
        return FileIdentity(because=[why, *nearly], nearly=nearly)
    return FileIdentity(kinds=kinds)


def _columns_of(name: str, mapped: mapping.FileMapping) -> Sequence[str]:
    made = mapped.made.get(name)
    return [mapped.columns.get(name, name)] if made is None else made.names
