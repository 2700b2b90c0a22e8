"""How a file is to be read: as a mapping or a preset says, or as the preset that it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import Final, Protocol

from app.core.errors import NotFoundError, UsageError
from app.finance.files.amounts import read_currencies
from app.finance.files.books import Form
from app.finance.files.mapping import MAX_BYTES, Fields, FileMapping, read_mapping
from app.finance.files.opening import Check, open_table
from app.finance.files.presets import (
    COMMANDS,
    KIND_NAMES,
    KINDS,
    NO_PRESET,
    Preset,
    PresetKind,
    Recognized,
    load_preset,
    recognized,
)
from app.finance.files.tables import SourceTable, UnclearCell


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
        self, path: Path, mapping: FileMapping, fields: Fields, *, check: Check | None = None
    ) -> SourceTable: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How a file is to be read.

    preset  whose mapping it is; None: nobody's
    notes   why, and what else is known of the file, one sentence each
    """

    mapping: FileMapping
    preset: Preset | None = None
    notes: Sequence[str] = ()

    def open(self, path: Path, form: Form, *, opens: Open = open_table) -> SourceTable:
        """The file's table. Raises as `open_table` does, also for a file of another export."""
        check = None if self.preset is None else self.preset.check
        return opens(path, self.mapping, form.FIELDS, check=check)


def choose(request: Asked, kind: PresetKind, *, zone: tzinfo | None) -> Chosen:
    """The mapping or preset that is said, else the preset that the file looks like, else the usual
    names of columns. zone: of times without one, where none is declared; None: nobody has said.

    Raises UsageError or NotFoundError for one that is none, and where several presets fit.
    """
    return _in_zone(_chosen(request, kind), zone)


def choose_mapping(request: Asked, fields: Fields, *, zone: tzinfo | None) -> Chosen:
    """As `choose`, for a kind of file that has no presets: the mapping that is said, else the usual
    names of columns."""
    return _in_zone(Chosen(mapping=_mapping(request, fields)), zone)


def _in_zone(found: Chosen, zone: tzinfo | None) -> Chosen:
    if found.mapping.zone is not None:
        return found
    return replace(found, mapping=replace(found.mapping, zone=zone))


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
        told = " ".join(each.because for each in fitting)
        raise UsageError(f"the file looks like {len(fitting)} exports: say {names}. {told}")
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
    said = {key: getattr(request, key) for key in BESIDE}
    return {key: value for key, value in said.items() if value is not None}


def _in_currency(mapping: FileMapping, request: Asked) -> FileMapping:
    if request.currency is None:
        return mapping
    try:
        (code,) = read_currencies([request.currency])
    except UnclearCell as error:
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
