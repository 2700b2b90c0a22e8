"""Preview of an upgrade: its migrations, and how its rules change earlier orders.

    1 migrations   that are due
    2 outcomes     that would change for the evidence known at an order's last publication
    3 holds        of orders that only this version's rules would make fulfillable

Nothing is written.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.core.text import counted
from app.database import schema
from app.database.engine import Connection
from app.orders.history_store import scan, side_stream
from app.orders.holds import fulfillable, only_by_new_rules
from app.orders.ledger_store import ALL_PUBLISHED, LastPublished, last_published_in
from app.orders.policy_version_store import rules_of
from app.receiving.due_store import count_marks
from reconcile.instants import format_instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy, policy_text

_MAY = {True: ", fulfillable", False: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Effects that an upgrade would have."""

    before: str | None
    """Version of the database before the upgrade. None for an empty database."""
    after: str
    """Version of the database after the upgrade."""
    migrations: list[tuple[str, str]]
    """Version and title of each due migration."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of changed orders, by outcome before and after."""
    held: list[dict[str, Any]] = field(default_factory=list)
    """Each order that would be held, as JSON values."""
    seen: Counter[str] = field(default_factory=Counter)
    """Number of orders read, and of orders that cannot be folded."""

    def document(self) -> dict[str, Any]:
        """Return the preview as JSON values."""
        return {
            "version": self.before,
            "needed": self.after,
            "migrations": [{"version": v, "brings": brings} for v, brings in self.migrations],
            "orders": self.seen["orders"],
            "unfoldable": self.seen["unfoldable"],
            "outcomes": [
                {"before": before, "after": after, "orders": count}
                for (before, after), count in sorted(self.outcomes.items())
            ],
            "held": self.held,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the preview as table rows: first migrations, then outcomes, then orders that would
        be held."""
        migrations = [{"what": "migration", "name": f"{v} {b}"} for v, b in self.migrations]
        outcomes = [{"what": "outcome", **each} for each in self.document()["outcomes"]]
        held = [
            {
                "what": "held",
                "name": each["order"],
                "before": each["before"],
                "after": each["after"],
                "orders": 1,
            }
            for each in self.held
        ]
        return [*migrations, *outcomes, *held]

    def sentence(self) -> str:
        """Return a sentence for people that summarizes the preview."""
        changed = sum(self.outcomes.values())
        unfoldable = self.seen["unfoldable"]
        aside = f"; {counted(unfoldable, 'order')} cannot be folded" if unfoldable else ""
        return (
            f"Nothing was changed. Due: {counted(len(self.migrations), 'migration')}. Of "
            f"{counted(self.seen['orders'], 'order')} {changed:,} would be published "
            f"differently, and {len(self.held):,} would be held until `tallyhook orders "
            f"release`{aside}."
        )


async def previewed(
    connection: Connection,
    *,
    version: str | None,
    policy: Policy,
    progress: Callable[[int, int], None],
) -> Preview:
    """Return the preview of an upgrade; without orders while a migration is due.

    version   version of the database
    progress  called with the numbers of orders read so far, and of all orders
    """
    preview = Preview(
        before=version, after=schema.NEWEST, migrations=schema.versions_after(version)
    )
    if preview.migrations:
        return preview
    rules, total = rules_of(policy_text(policy)), await count_marks(connection)
    published = await side_stream(connection, ALL_PUBLISHED)
    async for histories in scan(connection):
        for history in histories:
            if published.upcoming is None or published.upcoming > history.order:
                continue
            rows = await published.take(history.order)
            if rows and (last := last_published_in(rows[-1])).rules != rules:
                _look(preview, history, last, policy=policy)
        preview.seen["orders"] += len(histories)
        progress(preview.seen["orders"], total)
    return preview


def _look(preview: Preview, history: History, last: LastPublished, *, policy: Policy) -> None:
    try:
        then = fold(history.known_at(last.as_of), policy=policy, as_of=last.as_of)
        held = (
            not last.fulfillable
            and then.fulfillable
            and only_by_new_rules(history, last, policy=policy)
            and fulfillable(history, policy=policy)
        )
    except Exception:
        preview.seen["unfoldable"] += 1  # the worker logs which order, and why
        return
    before = f"{last.outcome}{_MAY[last.fulfillable]}"
    after = f"{then.outcome}{', held' if held else _MAY[then.fulfillable]}"
    if before != after:
        preview.outcomes[before, after] += 1
    if held:
        preview.held.append(
            {
                "order": history.order,
                "before": before,
                "after": after,
                "published_as_of": format_instant(last.as_of),
            }
        )
