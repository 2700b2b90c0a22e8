"""The figures that people are shown, or that others build on, as literal numbers: whoever changes
one changes what is promised, and does so on purpose."""

from typing import Any, Final

import pytest

from app.config.settings import Settings
from app.database import database
from app.receiving import (
    append_store,
    caught_up,
    claim_store,
    confirm,
    confirmation_store,
    connection_limits,
    correlation_store,
    endpoint,
    guard,
    inbox,
    inbox_file_store,
    inbox_loss_store,
    inbox_queue,
    inbox_store,
    inbox_writer_store,
    other_shop_store,
    pace,
    reader,
    receive,
    refusals,
    reverify,
    source_state,
    source_state_store,
    unread,
    unread_values,
    unsigned,
)
from reconcile.instants import DAY, HOUR, MINUTE, SECOND

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

FIGURES: Final[list[tuple[Any, str, Any]]] = [
    (append_store, "ARRIVALS_KEPT", 90 * DAY // MINUTE),
    (caught_up, "READ_WITHIN_S", 2),
    (caught_up, "FAR_BEHIND", SECOND // 5),
    (caught_up, "SOON_S", 0.1),
    (caught_up, "COPY_LATE", 10 * SECOND),
    (claim_store, "MOST_SEEN", 1_000),
    (claim_store, "MOST_CLAIMS", 2),
    (claim_store, "HEADS", 512),
    (confirm, "AT_ONCE", 8),
    (confirm, "MAX_WAITING", 10_000),
    (confirm, "LEASE", 2 * MINUTE),
    (confirm, "FIRST_PAUSE", 5 * SECOND),
    (confirm, "LONGEST_PAUSE", HOUR),
    (confirm, "ASK_FOR", 65 * DAY),
    (confirm, "SURE_NOT_FOUND", 5),
    (confirm, "ASK_AGAIN", (10 * SECOND, MINUTE, 10 * MINUTE, HOUR)),
    (confirm, "MOST_ASKED_BEFORE", 200),
    (confirmation_store, "MOST_PUT_FIRST", 10),
    (connection_limits, "SWEEP_S", 1),
    (correlation_store, "LINKS_REMEMBERED", 20_000),
    (endpoint, "FREE_BYTES", 64 * KIB),
    (endpoint, "TOO_MANY_RETRY_S", 60),
    (guard, "UNREAD_BYTES", 16 * KIB),
    (guard, "LINGER_S", 2),
    (guard, "LINGER_BYTES", 12 * MIB),
    (guard, "KERNEL_BYTES", 64 * KIB),
    (guard, "LAST_S", 1),
    (guard, "MAX_PIPELINED", 2),
    (inbox_file_store, "CHECKPOINT_PAGES", 1_000),
    (inbox_file_store, "CHECKED_BEFORE_SERVING", 64 * MIB),
    (inbox_file_store, "READERS", 2),
    (inbox_loss_store, "AT_ONCE", 8),
    (inbox_loss_store, "NOTE_BYTES", 256),
    (inbox_loss_store, "LAST_NUMBER", 2**63 - 1),
    (inbox_queue, "PATIENCE_S", 2.5),
    (inbox_queue, "FAULTS", 3),
    (inbox_queue, "ROW_BYTES", 8 * MIB),
    (inbox_store, "MOST_TRIES", 3),
    (inbox_store, "EVERYTHING", (2**63 - 1, 2**63 - 1)),
    (inbox_writer_store, "ROOM_TIMES", 3),
    (inbox_writer_store, "ROOM_FLOOR", 4 * KIB),
    (inbox_writer_store, "DELETED_BYTES", 256 * KIB),
    (inbox_writer_store, "DELETED_IDLE_BYTES", 4 * MIB),
    (other_shop_store, "LOOKED_AT", 20_000),
    (pace, "SHORT_S", 0.025),
    (pace, "_GROWTH", 2),
    (reader, "AT_ONCE", 512),
    (reader, "AT_ONCE_SHARED", 1_024),
    (reader, "AT_ONCE_BYTES", 4 * MIB),
    (receive, "MAX_UNSIGNED_BYTES", 64 * KIB),
    (receive, "MAX_UNSIGNED_VALUES", 2_000),
    (receive, "RETRY_AFTER_S", 5),
    (receive, "LEAST_SECRET_END", 16),
    (refusals, "MAX_ADDRESSES", 4_096),
    (refusals, "WINDOW", 15 * MINUTE),
    (refusals, "REFUSALS", 3),
    (refusals, "BODIES", 2),
    (source_state_store, "REFUSALS_KEPT", 90 * DAY // HOUR),
    (refusals, "KEPT", 100),
    (reverify, "AT_ONCE", 100),
    (reverify, "FIRST_ACCEPTED", 20),
    (source_state, "LOOKED_AT", 200),
    (source_state, "PAYMENTS", 20),
    (source_state, "EXPLAINED", 3),
    (database, "SERVER_S", 60),
    (inbox, "TIDY_S", 5),
    (database, "CHECKED_BEFORE_SERVING", 64 * MIB),
    (refusals, "LANES", 4_096),
    (unsigned, "MAX_BYTES_PER_MINUTE", 2 * MIB),
    (unsigned, "PER_REFERENCE", 10),
    (unsigned, "MAX_REFERENCES", 100_000),
    (unsigned, "MAX_NAMING_BYTES", 8 * KIB),
    (unsigned, "MAX_NAMING_VALUES", 200),
    (unsigned, "MAX_UNASKED", 100_000),
    (unsigned, "EVERY_S", 1),
    (unsigned, "NAMED_FOR", 65 * DAY),
    (unsigned, "LOOK_BACK", MINUTE),
    (unsigned, "LOOK_S", 1),
    (unread, "WINDOW", 7 * DAY),
    (unread, "DAYS", "7 days"),
    (unread, "ENOUGH", 1_000),
    (unread_values, "LEAST_LENGTH", 4),
    (unread_values, "MOST_VALUES", 2_000),
]


@pytest.mark.parametrize(
    ("module", "name", "figure"),
    FIGURES,
    ids=[f"{module.__name__.rpartition('.')[2]}.{name}" for module, name, _ in FIGURES],
)
def test_a_figure_is_what_is_promised(module: Any, name: str, figure: Any) -> None:
    assert getattr(module, name) == figure


def test_a_store_that_is_given_nothing_else() -> None:
    """What tools open it with, which read no settings."""
    settings = Settings()
    assert (settings.environment, settings.shop.url) == (None, None)
    assert (settings.inbox_queue, settings.inbox_batch) == (4_096, 512)
    assert (settings.inbox_max_bytes, settings.disk_low_water_mb) == (4 * GIB, 64)
    assert (settings.rejections_max_count, settings.rejections_max_bytes) == (10_000, 64 * MIB)


def test_a_trial_is_a_delivery_that_touches_every_table() -> None:
    """It names an order, a session and a payment of its own, and is read at no real time."""
    trial, found = append_store.TRIAL, append_store.TRIAL.event
    assert found is not None
    assert {found.order, found.session, found.payment, found.source} == {"trial"}
    assert trial.received_at == 0
