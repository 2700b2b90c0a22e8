"""Commands on presets: which exports are read without a mapping, and how."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.output import DocumentOption, Format, FormatOption, document, emit

presets_group = typer.Typer(
    help="Exports that are read without a mapping of your own.", no_args_is_help=True
)

COLUMNS = ("preset", "kind", "title", "recognized_by")

Name = Annotated[str, typer.Argument(help="A shipped preset's name, or the path of a file.")]


@presets_group.command("list")
def list_presets(form: FormatOption = Format.table) -> None:
    """List the presets that are shipped, and the columns by which their files are known."""
    from app.finance.files.presets import list_presets

    emit(list_presets(), columns=COLUMNS, form=form)


@presets_group.command("show")
def show_preset(name: Name, form: DocumentOption = Format.table) -> None:
    """Show a preset's file, which may be copied, changed, and said as --preset FILE."""
    from app.finance.files.presets import show_preset

    shown = show_preset(name)
    if form is Format.table:
        print(shown["file"], end="")
    else:
        document(shown, form)
