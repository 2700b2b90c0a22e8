"""Commands on evidence bundles, and on the log that seals all stored data."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import operators, printing, running
from app.core.errors import UsageError
from app.core.text import LEAF, counted
from reconcile.instants import format_instant

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.evidence.bundle import Built

evidence_group = typer.Typer(
    help="Evidence bundles of orders, which a stranger can verify.", no_args_is_help=True
)

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The file to write, or - for standard output. An existing file is not replaced.",
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(help="Use what was known at this RFC 3339 time. Default: now. The same time "
    "gives the same file."),
]  # fmt: skip


@evidence_group.command("build", epilog="Example: tallyhook evidence build ORD-1042 -o dispute.zip")
def build(
    order: printing.OrderArgument,
    output: Output,
    as_of: AsOf = None,
    with_personal_data: Annotated[
        bool,
        typer.Option("--with-personal-data", help="Include bodies and headers unredacted."),
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="Why personal data are included, for the audit trail.")
    ] = None,
    attachments: Annotated[
        bool,
        typer.Option(
            "--attachments",
            help="Include attachments: the files in a full bundle, their digests in a redacted "
            "one.",
        ),
    ] = False,
    by: operators.ByOption = None,
) -> None:
    """Build an order's evidence bundle. Personal data is redacted unless you ask for it."""
    from app.evidence.bundle import BundleRequest, build_evidence
    from app.finance.read_lines import lines_naming

    asked = _reason(with_personal_data, reason)
    request = BundleRequest(
        order=order,
        as_of=printing.moment(as_of, "--as-of"),
        reason=asked,
        by=by,
        attachments=attachments,
    )
    refuse_existing(output, binary=True)

    built = running.writing(build_evidence, request, lines=lines_naming)
    write_private(output, built.archive)
    _say_built(built, output)


def _say_built(built: Built, output: Path) -> None:
    kind = "full" if built.full else "redacted"
    printing.note(
        f"{output}: {kind}, {counted(len(built.archive), 'byte')}, "
        f"{counted(built.deliveries, 'delivery', 'deliveries')}, as of "
        f"{format_instant(built.as_of)}."
    )
    if built.attachments is not None:
        what = "the files" if built.full else "only the digests (the bundle is redacted)"
        printing.note(f"The bundle contains {what} of {counted(built.attachments, 'attachment')}.")
    if built.due:
        printing.note(
            "The bundle lacks the order's next revision, which has not been computed yet."
        )
    if built.unsealed:
        unsealed = counted(built.unsealed, "entry", "entries")
        printing.note(
            f"{unsealed} of the bundle cannot be proved yet: the log has not sealed them."
        )
    if built.cosigned_by_too_few:
        printing.note(
            "Too few witnesses have cosigned the checkpoint yet: build the bundle again in a few "
            "minutes."
        )


WitnessOption = Annotated[
    list[str] | None,
    typer.Option(
        help="The key of a witness that must have cosigned the bundle's checkpoint. Repeat for "
        "several witnesses."
    ),
]
QuorumOption = Annotated[
    int | None,
    typer.Option(min=1, help="How many of these witnesses must have cosigned. Default: all."),
]


@evidence_group.command("verify")
def check_bundle(
    file: Annotated[Path, typer.Argument(help="The bundle.")],
    key: Annotated[
        str | None,
        typer.Option(help="The evidence key to trust: its minisign line, or a file with it."),
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="A checkpoint of the shop's log that you kept earlier. Checks that the "
            "bundle comes from the same log.",
        ),
    ] = None,
    consistency: Annotated[
        Path | None,
        typer.Option(
            help="The proof that the bundle's log continues the log of --checkpoint. Needed if "
            "the two checkpoints differ in size. `log consistency` prints the proof, and the "
            "shop publishes it under /.well-known/tallyhook/."
        ),
    ] = None,
    witness: WitnessOption = None,
    quorum: QuorumOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Verify an evidence bundle step by step. This needs no database and no configuration.

    The exit code is 1 if a step fails.
    """
    from app.evidence import verify, verify_evidence

    if consistency is not None and kept is None:
        raise UsageError("--consistency works with --checkpoint only: give --checkpoint, too")
    trusted = None if key is None else verify_evidence.trusted_key(key)
    checkpoint = None if kept is None else verify_evidence.read_kept(kept, consistency)
    others = verify_evidence.named_witnesses(witness or (), quorum)
    found = verify_evidence.verify_evidence(
        verify_evidence.read_bundle(file), trusted=trusted, kept=checkpoint, witnesses=others
    )
    if form is printing.Format.table:
        print("\n".join(verify.report_lines(list(found.steps), found.not_proven)))
    else:
        printing.document(found.document(), form)
    if not found.valid:
        raise typer.Exit(1)


@evidence_group.command(
    "scenario", epilog="Example: tallyhook evidence scenario ORD-1042 -o incident.json"
)
def scenario(
    order: printing.OrderArgument,
    output: Output,
    as_of: AsOf = None,
    by: operators.ByOption = None,
) -> None:
    """Write an order's evidence as a scenario for bug reports. `tallyhook sandbox --play` can play
    it.

    The scenario has amounts, dates and references, but no secrets, phone numbers or names.
    """
    from app.evidence.tell_scenario import tell_scenario
    from app.finance.read_lines import lines_naming

    instant = printing.moment(as_of, "--as-of")
    refuse_existing(output)
    scenario = running.writing(tell_scenario, order, as_of=instant, by=by, lines=lines_naming)
    write_private(
        output, (json.dumps(scenario.document, ensure_ascii=False, indent=1) + "\n").encode()
    )
    steps = counted(len(scenario.document["steps"]), "step")
    printing.note(f"{output}: {steps}. Read the file before you hand it out.")
    for each in scenario.left_out:
        printing.note(f"Left out: {each}.")


def _reason(with_personal_data: bool, reason: str | None) -> str | None:
    if with_personal_data and reason is None:
        raise UsageError('--with-personal-data needs a reason: add --reason "WHY"')
    if reason is not None and not with_personal_data:
        raise UsageError(
            "--reason works with --with-personal-data only: leave it out for a redacted bundle"
        )
    return reason


def refuse_existing(path: Path, *, binary: bool = False) -> None:
    """Raise UsageError if the file exists, its folder is missing, or binary content would go to a
    terminal."""
    if path == printing.STANDARD:
        return printing.check_output(path, binary=binary, what="a bundle")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists; name another file, or remove it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent}")


def write_private(path: Path, content: bytes) -> None:
    """Write the content to standard output, or to a new file that only its owner can read."""
    if path == printing.STANDARD:
        with printing.whole_file(path) as output:
            output.write(content)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


log_group = typer.Typer(
    help="The log that seals all stored data, so that every later change can be detected.",
    no_args_is_help=True,
)


@log_group.command("key")
def key(
    rotate: Annotated[
        bool,
        typer.Option(
            "--rotate", help="From now on, sign with a new key. The old key's file stays."
        ),
    ] = False,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show the public key that verifies the evidence, in several formats."""
    from app.evidence.seal import open_signer, rotate_key, shown_key

    async def look(context: AppContext) -> dict[str, Any]:
        if rotate:
            await rotate_key(context, by=by)
        path = context.settings.evidence_key_path
        return shown_key(await open_signer(context)) | {"file": str(path)}

    shown = running.writing(look)
    if printing.printed(shown, form):
        return
    for name, value in shown.items():
        print(f"{name:<12} {value}")
    printing.note(
        "Give this public key to everyone who checks evidence, separately from the evidence. Never "
        "give away the key file."
    )


@log_group.command("rename")
def rename(
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")],
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Continue the log under a new name, its origin. Use this after a restore, if others have
    checkpoints that the restored log does not contain.

    Stop all services first. Signed checkpoints stay valid under their old origin. Notify witnesses
    and partners.
    """
    from app.evidence.seal import rename_log

    known = running.with_context(partial(rename_log, by=by, reason=reason), purpose="alone")
    before = known.earlier[-1]
    if form is not printing.Format.table:
        renamed = {"log": known.origin, "before": before.origin, "leaves": before.size}
        printing.document(renamed, form)
        return
    print(known.origin)
    printing.note(
        f"Checkpoints of at most {counted(before.size, *LEAF)} keep the origin "
        f"{before.origin}. Give the output of `tallyhook log key` to the witnesses' operators."
    )


@log_group.command("seal")
def seal() -> None:
    """Seal all unsealed rows now, as `serve` does automatically."""
    from app.evidence.seal import open_signer, seal_all

    async def work(context: AppContext) -> int:
        with printing.progress("sealing", None) as advance:
            return await seal_all(context, await open_signer(context), sweep=True, progress=advance)

    printing.note(f"Sealed {running.writing(work)}.")


@log_group.command("checkpoint")
def checkpoint() -> None:
    """Print the log's newest signed checkpoint. Store it on another machine, to detect removed
    entries later."""
    from app.evidence.prove_sealed import newest_checkpoint

    found = running.reading(newest_checkpoint)
    printing.print_file(found.note)
    printing.note(f"{counted(found.size, 'leaf', 'leaves')}, signed {format_instant(found.at)}.")


@log_group.command("prove")
def prove(
    subject: Annotated[
        str,
        typer.Argument(
            help="The id of a delivery or record, or revision:N, deed:N or orders:N. N is the "
            "number of a revision, an audit entry or a tree of orders.",
            metavar="ID",
        ),
    ],
    form: printing.JsonOption = printing.Format.json,
) -> None:
    """Print a proof, as JSON, that the newest checkpoint's log contains an entry."""
    from app.evidence.prove_sealed import prove_sealed

    printing.document(running.reading(prove_sealed, subject), form)


@log_group.command("consistency")
def consistency(
    old: Annotated[
        int,
        typer.Argument(
            min=1, max=printing.MAX_NUMBER, help="Number of leaves of the earlier checkpoint."
        ),
    ],
    new: Annotated[
        int,
        typer.Argument(
            min=1, max=printing.MAX_NUMBER, help="Number of leaves of the later checkpoint."
        ),
    ],
    form: printing.JsonOption = printing.Format.json,
) -> None:
    """Print a proof, as JSON, that the later checkpoint contains all entries of the earlier one."""
    from app.evidence.prove_sealed import prove_growth

    printing.document(
        running.reading(prove_growth, old=old, new=new),
        form,
    )


@log_group.command("witnesses")
def list_witnesses(form: printing.DocumentOption = printing.Format.table) -> None:
    """Show the log's witnesses, and the last checkpoint that was published to each place."""
    from app.evidence.witnesses import witness_document

    shown = running.reading(witness_document)
    if printing.printed(shown, form):
        return
    printing.emit(shown["witnesses"], columns=WITNESS_COLUMNS, form=form)
    for each in shown["witnesses"]:
        if each["sentence"]:
            printing.note(f"{each['witness']}: {each['sentence']}.")
    if not shown["witnesses"]:
        printing.note(
            "No witness is configured: add TALLYHOOK_EVIDENCE__WITNESSES as "
            "config.example.env shows."
        )
    else:
        leaves = counted(shown["cosigned"], *LEAF)
        have = f"{shown['quorum']} of {counted(len(shown['witnesses']), 'witness', 'witnesses')}"
        printing.note(
            f"A checkpoint needs cosignatures from {have}. The newest checkpoint with enough "
            f"cosignatures covers {leaves}."
        )
    for left in shown["left"]:
        printing.note(
            f"A checkpoint of {counted(left['leaves'], *LEAF)} was published at {left['at']} "
            f"({left['way']})."
        )


WITNESS_COLUMNS = ("witness", "leaves", "cosigned_at", "state", "since", "problem")


@log_group.command("verify")
def check_log(
    against: Annotated[
        Path | None,
        typer.Option(
            help="A checkpoint that was kept elsewhere. Detects entries removed since then."
        ),
    ] = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Recompute the whole log from the stored rows, and check its signatures.

    The exit code is 1 if an entry does not match. The output names the first such entry.
    """
    from app.evidence.keys import own_key
    from app.evidence.verify_log import VerifiedLog, verify_log

    async def look(context: AppContext) -> VerifiedLog:
        own = own_key(context.settings)
        if own is None:
            printing.note(
                f"There is no evidence key in {context.settings.evidence_key_path}, so the log is "
                f"checked with the keys in the database."
            )
        return await verify_log(context, against=kept, own=own, progress=show)

    kept = None
    if against is not None:
        try:
            kept = against.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{against} is not text: name the file of a checkpoint") from error
    with printing.measure("verifying") as show:
        found = running.reading(look)
    if form is printing.Format.table:
        print(found.sentence())
        for problem in found.problems:
            print(f"  {problem}")
    else:
        printing.document(found.document(), form)
    if found.found:
        raise typer.Exit(1)
