"""Commands on the log in which evidence is sealed: key, seal, checkpoint, prove, consistency,
verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import (
    MAX_NUMBER,
    DocumentOption,
    Format,
    JsonOption,
    document,
    measure,
    note,
    progress,
)
from app.core.text import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.evidence.seal import Signer
    from app.receiving.context import AppContext

group = typer.Typer(
    help="The log in which everything that is kept is sealed, so that no later change goes unseen.",
    no_args_is_help=True,
)


@group.command("key")
def key(
    rotate: Annotated[
        bool,
        typer.Option("--rotate", help="Sign with a new key from now on, and keep the old file."),
    ] = False,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Show the public key with which evidence is signed, in the forms that others need."""
    from app.cli.running import with_context
    from app.evidence.evidence_key import rotate_key, shown_key

    async def look(context: AppContext, settings: Settings) -> dict[str, Any]:
        from app.bootstrap_evidence import key_path, signer_of

        if rotate:
            await rotate_key(context, key_path(settings), by=by)
        return shown_key(await signer_of(context, settings)) | {"file": str(key_path(settings))}

    shown = with_context(look, purpose="writing")
    if form is not Format.table:
        document(shown, form)
        return
    for name, value in shown.items():
        print(f"{name:<12} {value}")
    note("Give the key to those who shall check evidence, by a way of its own; never the file.")


@group.command("seal")
def seal() -> None:
    """Seal what waits now, and look for rows that nothing has marked; `serve` does it by itself."""
    from app.cli.running import with_context
    from app.evidence.seal import seal_all

    async def work(context: AppContext, settings: Settings) -> int:
        with progress("sealing", None) as advance:
            return await seal_all(
                context, await _signer(context, settings), sweep=True, progress=advance
            )

    note(f"Sealed {with_context(work, purpose='writing')}.")


async def _signer(context: AppContext, settings: Settings) -> Signer:
    from app.bootstrap_evidence import signer_of

    return await signer_of(context, settings)


@group.command("checkpoint")
def checkpoint() -> None:
    """Print the newest signed checkpoint. Kept elsewhere, it shows later that nothing was cut."""
    from app.cli.running import with_context
    from app.evidence.prove_sealed import newest_checkpoint
    from reconcile.instants import format_instant

    found = with_context(lambda context, settings: newest_checkpoint(context))
    print(found.note, end="")
    note(f"{counted(found.size, 'leaf', 'leaves')}, signed {format_instant(found.at)}.")


@group.command("prove")
def prove(
    subject: Annotated[
        str,
        typer.Argument(
            help="The id of a delivery or record; or revision:N, or deed:N.", metavar="ID"
        ),
    ],
    form: JsonOption = Format.json,
) -> None:
    """Prove by the newest checkpoint that something is in the log, as JSON."""
    from app.cli.running import with_context
    from app.evidence.prove_sealed import prove_sealed

    document(with_context(lambda context, settings: prove_sealed(context, subject)), form)


@group.command("consistency")
def consistency(
    old: Annotated[
        int, typer.Argument(min=1, max=MAX_NUMBER, help="Leaves of the earlier checkpoint.")
    ],
    new: Annotated[int, typer.Argument(min=1, max=MAX_NUMBER, help="Leaves of the later one.")],
    form: JsonOption = Format.json,
) -> None:
    """Prove that the later of two checkpoints holds all that the earlier one held, as JSON."""
    from app.cli.running import with_context
    from app.evidence.prove_sealed import prove_growth

    document(with_context(lambda context, settings: prove_growth(context, old=old, new=new)), form)


@group.command("verify")
def verify(
    against: Annotated[
        Path | None,
        typer.Option(help="A checkpoint that was kept elsewhere: finds what was cut off since."),
    ] = None,
    form: DocumentOption = Format.table,
) -> None:
    """Recompute leaves from rows, hashes from leaves and heads from hashes, and check signatures.

    Exit code 1 where something does not fit; the first leaf that does not is named.
    """
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from app.evidence.verify_log import verify_log

    kept = None
    if against is not None:
        try:
            kept = against.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{against} cannot be read as text; name a checkpoint") from error
    with measure("verifying") as show:
        found = with_context(
            lambda context, settings: verify_log(context, against=kept, progress=show)
        )
    if form is Format.table:
        print(found.sentence())
        for problem in found.problems:
            print(f"  {problem}")
    else:
        document(found.document(), form)
    if found.found:
        raise typer.Exit(1)
