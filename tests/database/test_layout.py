"""Statements as they are rewritten for a cluster."""

from app.database.layout import in_rounds


def test_rows_that_are_selected_for_an_insert_follow_its_columns() -> None:
    """Citus inserts no row where WITH comes before INSERT, without an error."""
    kept = "SELECT events.event_id FROM events JOIN links ON links.reference = events.payment"
    sql = in_rounds(f"INSERT INTO kept (id) {kept}")
    assert sql.startswith("INSERT INTO kept (id) WITH events AS MATERIALIZED (")
    assert sql.endswith(kept)
