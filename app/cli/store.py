"""Commands on the store: upgrade, check and restore the database, reindex, refold and prove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import operators, printing, privacy, running
from app.core.clock import SystemClock
from app.core.errors import UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.orders.prove import Proof
    from app.privacy.check import CheckReport

group = typer.Typer(help="The database: upgrade, check or shrink it.", no_args_is_help=True)


PREVIEW = ("what", "name", "before", "after", "orders")


def register(application: typer.Typer) -> None:
    """Add the commands `reindex`, `refold` and `prove`, which have no group."""
    application.command()(reindex)
    application.command()(refold)
    application.command()(prove)


def _brought(before: str | None, after: str) -> str:
    if before is None:
        return f"The database was empty. Its tables were created at version {after}."
    if before == after:
        return f"The database is up to date: it is at version {after} already."
    return f"The database was upgraded from version {before} to {after}."


@group.command("upgrade", epilog="Example: tallyhook db upgrade --dry-run")
def upgrade(
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Change nothing. Show the due migrations, the number of orders whose outcome "
            "would change, and the orders that the upgrade would hold. The upgrade holds orders "
            "that only the new rules make fulfillable.",
        ),
    ] = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Upgrade the database to this version. `serve` does this automatically on SQLite."""
    from app.config.load import load_settings
    from app.wiring.opening import preview_upgrade, upgrade_database

    settings = load_settings(serving=True)
    if not dry_run:
        before, after = running.run_loop(upgrade_database(settings))
        printing.note(_brought(before, after))
        return
    with printing.measure("folding") as show:
        preview = running.run_loop(preview_upgrade(settings, progress=show))
    if form is printing.Format.json:
        printing.document(preview.document(), form)
    else:
        printing.emit(preview.rows(), columns=PREVIEW, form=form)
    printing.note(preview.sentence())


@group.command("check")
def check(
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read every stored body and fold every order again, and compare the results with "
            "the stored ones. Takes about ten times as long as the default check, which compares "
            "only a sample of deliveries.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=64,
            help="With --deep: number of processes. Default: one per core, at most 8. "
            "With 1, the command itself does the work.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Without --deep: the seed of an earlier check, to take the same sample again.",
        ),
    ] = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Check that every layer of the store agrees with the layer below it, from people's decisions
    down to the database file. The command names the first rows that do not agree. Two million
    deliveries take a minute if the file fits into memory, else two."""
    from app.config.load import load_settings
    from app.context.configured import compile_sources
    from app.database.engine import is_sqlite, read_ahead, sqlite_path
    from app.privacy.check import check_database

    if deep and seed is not None:
        raise UsageError(
            "--seed selects a sample, and --deep checks everything: leave one of them out"
        )
    settings, chosen = load_settings(), None
    if deep:
        compile_sources(settings)  # report mistakes in a source before the check
        chosen = running.processes(jobs, most=8)
    if is_sqlite(settings.database_url) and (file := sqlite_path(settings.database_url)).is_file():
        with printing.measure("reading the file") as show:
            read_ahead(file, progress=show)
    with printing.progress_ahead("checking") as (ahead, advance):
        report = running.reading(
            check_database, deep=chosen, seed=seed, progress=advance, ahead=ahead
        )
    _conclude(report, report.problems, form)


@group.command("create")
def create(
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Create the database even if an earlier one is missing. The data of the earlier "
            "database is lost.",
        ),
    ] = False,
) -> None:
    """Create an SQLite database where there is none, as `serve` does the first time. If an earlier
    database is missing, `serve` refuses: put the file back, restore a backup, or confirm here that
    the earlier data is not needed."""
    from app.config.load import load_settings
    from app.wiring.opening import create_database

    path = running.run_loop(create_database(load_settings(serving=True), anew=new))
    printing.note(f"Created a new, empty database at {path}.")


@group.command("distribute")
def distribute() -> None:
    """Distribute deliveries and events, the largest tables, over the nodes of a Citus cluster.
    First install the Citus extension, add the cluster's nodes, and stop the services."""
    from app.config.load import load_settings
    from app.wiring.opening import distribute_database

    done = running.run_loop(distribute_database(load_settings()))
    for name in done:
        printing.note(f"Rows of {name} are now distributed over the nodes of the cluster.")
    if not done:
        printing.note("The rows are distributed over the nodes of the cluster already.")


@group.command("adopt-inbox")
def adopt_the_inbox(accept_gap: privacy.AcceptGap = False, reason: privacy.WhyGap = "") -> None:
    """Let an SQLite database continue with the inbox file now beside it, after the earlier file was
    lost or replaced. Its deliveries count as unread; those that the database already has are
    skipped. Acknowledged but unread deliveries of the earlier file may be lost: the command
    describes the loss, and you must accept it. The service must be stopped."""
    from app.config.load import load_settings
    from app.privacy.backup import adopt_inbox

    accepts = privacy.stated_gap(accept_gap, reason=reason)
    records, found = running.run_loop(
        adopt_inbox(load_settings(), clock=SystemClock(), accepts=accepts)
    )
    privacy.tell_gap(found)
    printing.note(f"The inbox is adopted. `serve` will read its {counted(records, 'record')}.")


@group.command("vacuum")
def vacuum() -> None:
    """Rewrite an SQLite database without its deleted rows, to shrink it. Stop the service first."""
    from app.privacy.backup import rewrite

    running.with_context(rewrite, purpose="alone")
    printing.note("The database was rewritten. It contains no deleted data any more.")


@group.command("restored")
def restored(
    without_erasures: privacy.WithoutErasures = False,
    accept_gap: privacy.AcceptGap = False,
    reason: privacy.WhyWithout = "",
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Finish a restore that was made with pg_restore or a base backup, or a takeover that may have
    lost data. Run this before you start the service. New revisions get higher numbers than all
    earlier ones, and erasures are repeated from their journal."""
    from app.config.load import load_settings
    from app.privacy.backup import after_restore
    from app.privacy.gap import accept_found
    from app.privacy.replay_erasures import ErasureReplay

    without, accepts = privacy.stated_losses(without_erasures, accept_gap, reason=reason, by=by)
    settings = load_settings()
    if accepts is not None:
        accepting = accept_found(settings, reason=accepts, clock=SystemClock(), follow=False)
        privacy.tell_gap(running.run_loop(accepting))
    with printing.progress("erasing again", None) as advance:
        followed, erased = running.with_context(
            lambda context: after_restore(
                ErasureReplay(context, progress=advance, restored=True), without=without
            ),
            purpose="alone",
            loaded=settings,
        )
    privacy.tell_erased(erased)
    if form is not printing.Format.table:
        erasures = {"erasures": erased.document()}
        printing.document({"last_revision": followed.head, **followed.document(), **erasures}, form)
        return
    print(f"Recorded as restored. The last revision in the database is {followed.head}.")
    for sentence in followed.sentences():
        printing.note(sentence)
    printing.note("Now run `tallyhook db check`, then start the services.")


def reindex() -> None:
    """Read every stored body again, after a profile was corrected."""
    from app.config.load import load_settings
    from app.context.configured import compile_sources
    from app.orders.reindex import reindex as run_reindex

    settings = load_settings()
    compile_sources(settings)  # before the database is opened: an error creates none
    with printing.progress("reading", None) as advance:
        done = running.with_context(
            partial(run_reindex, progress=advance), purpose="alone", loaded=settings
        )
    printing.note(
        f"Read {counted(done.read, 'delivery', 'deliveries')}: {counted(done.events, 'event')}, "
        f"{done.unreadable:,} unreadable. `serve` will compute the orders again. To do so now, "
        "run `tallyhook refold --all`."
    )


def refold(
    everything: Annotated[
        bool, typer.Option("--all", help="Fold every order, not only due ones.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=64,
            help="With --all: processes that fold. Default: one per core, at most 8. With 1, the "
            "command itself does the work.",
        ),
    ] = None,
) -> None:
    """Fold due orders, or rebuild every ledger, and publish what changed."""
    from app.orders.rebuild import refold_all
    from app.orders.refold import refold_until_quiet

    chosen = running.processes(jobs, most=8)
    with printing.progress("folding", None) as advance:
        if everything:
            refolding = partial(refold_all, progress=advance, jobs=chosen)
            folded = running.with_context(refolding, purpose="alone")
        else:
            folded = running.with_context(
                lambda context: refold_until_quiet(
                    context, limit=context.settings.worker_batch, progress=advance
                ),
                purpose="writing",
            )
    printing.note(f"Folded {counted(folded, 'order')}.")


def prove(
    references: printing.OrderArguments = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every stored order.")] = False,
    shuffles: Annotated[
        int,
        typer.Option(
            min=1,
            max=100_000,
            help="Trials per order. Orders with more than 500 events get fewer trials.",
        ),
    ] = 100,
    seed: Annotated[int, typer.Option(help="Random seed for shuffling.")] = 0,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Prove that the order and repetition of deliveries do not change a ledger. The command folds
    shuffled, duplicated and split histories, and compares the ledgers."""
    from app.orders.prove import prove_orders

    if bool(references) == everything:
        raise UsageError("give either the orders to prove or --all, not both")
    with printing.progress("trials", None) as advance:
        proof = running.reading(
            prove_orders, references or None, shuffles=shuffles, seed=seed, progress=advance
        )
    _conclude(proof, proof.counter_examples, form)


def _conclude(
    examined: Proof | CheckReport, found: Sequence[object], form: printing.Format
) -> None:
    if form is printing.Format.table:
        print(examined.sentence())
        for each in found:
            print(f"  {each}")
    else:
        printing.document(asdict(examined), form)
    if found:
        raise typer.Exit(1)
