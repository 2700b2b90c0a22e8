"""Commands on evidence: build, verify and scenario."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, document, note
from app.core.text import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(
    help="What a stranger can check: bundles of an order's evidence.", no_args_is_help=True
)

Order = Annotated[str, typer.Argument(help="The order's reference.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write; not replaced.")]
AsOf = Annotated[
    str | None,
    typer.Option(help="As it could be known at this RFC 3339 moment; else now. Say it again for "
                 "the same bytes again."),
]  # fmt: skip


@group.command("build", epilog="Such as: tallyhook evidence build ORD-1042 -o dispute.zip")
def build(
    order: Order,
    output: Output,
    as_of: AsOf = None,
    with_personal_data: Annotated[
        bool,
        typer.Option("--with-personal-data", help="Put in bodies and headers as they came."),
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="Why personal data go in; the audit trail keeps it.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Build an order's evidence bundle: redacted, unless personal data are asked for."""
    from app.bootstrap_evidence import evidence_providers, signer_of
    from app.cli.running import with_context
    from app.evidence.bundle import Built, Request, build_evidence
    from reconcile.instants import format_instant

    asked = _reason(with_personal_data, reason)
    request = Request(order=order, as_of=_instant(as_of), reason=asked, by=by)
    _refuse_existing(output)

    async def build(context: AppContext, settings: Settings) -> Built:
        return await build_evidence(
            context,
            request,
            providers=evidence_providers(settings),
            signer=await signer_of(context, settings),
        )

    built = with_context(build, purpose="writing")
    _write(output, built.archive)
    kind = "full" if built.full else "redacted"
    note(
        f"{output}: {kind}, {counted(len(built.archive), 'byte')}, "
        f"{counted(built.deliveries, 'delivery', 'deliveries')}, as of "
        f"{format_instant(built.as_of)}."
    )
    if built.due:
        note("The order is still to be folded: what its systems are told next is not in it.")
    if built.unsealed:
        note(f"{built.unsealed} of what is in it are not sealed in the log yet.")


@group.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="The bundle.")],
    key: Annotated[
        str | None,
        typer.Option(help="The evidence key to trust: its minisign line, or a file with it."),
    ] = None,
    form: DocumentOption = Format.table,
) -> None:
    """Verify a bundle step by step. Needs no database and no configuration.

    Exit code 1 where a step fails.
    """
    from app.evidence.verify import lines_of
    from app.evidence.verify_evidence import read_bundle, trusted_key, verify_evidence

    trusted = None if key is None else trusted_key(key)
    found = verify_evidence(read_bundle(file), trusted=trusted)
    if form is Format.table:
        print("\n".join(lines_of(list(found.steps))))
    else:
        document(found.document(), form)
    if not found.valid:
        raise typer.Exit(1)


@group.command("scenario", epilog="Such as: tallyhook evidence scenario ORD-1042 -o incident.json")
def scenario(
    order: Order,
    output: Output,
    as_of: AsOf = None,
    by: ByOption = None,
) -> None:
    """Tell an order's evidence as a scenario for `tallyhook sandbox --play`: for bug reports.

    Without secrets, phone numbers and names; amounts, dates and references stay.
    """
    from app.bootstrap_evidence import evidence_providers
    from app.cli.running import with_context
    from app.evidence.tell_scenario import tell_scenario

    instant = _instant(as_of)
    _refuse_existing(output)
    told = with_context(
        lambda context, settings: tell_scenario(
            context, order, as_of=instant, by=by, providers=evidence_providers(settings)
        ),
        purpose="writing",
    )
    _write(output, (json.dumps(told.document, ensure_ascii=False, indent=1) + "\n").encode())
    steps = counted(len(told.document["steps"]), "step")
    note(f"{output}: {steps}. Read it before you hand it out.")
    for each in told.left_out:
        note(f"Left out: {each}.")


def _reason(with_personal_data: bool, reason: str | None) -> str | None:
    from app.core.errors import UsageError

    if with_personal_data and reason is None:
        raise UsageError('say --reason "why personal data go in" beside --with-personal-data')
    if reason is not None and not with_personal_data:
        raise UsageError("--reason is for --with-personal-data; a redacted bundle needs none")
    return reason


def _instant(as_of: str | None) -> int | None:
    from app.core.errors import UsageError
    from reconcile.instants import parse_instant

    try:
        return None if as_of is None else parse_instant(as_of)
    except ValueError as error:
        raise UsageError(f"--as-of: {error}") from None


def _refuse_existing(path: Path) -> None:
    from app.core.errors import UsageError

    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists; name another file, or remove it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent}")


def _write(path: Path, content: bytes) -> None:
    """For its owner alone: it may hold personal data."""
    from app.core.errors import UsageError

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
