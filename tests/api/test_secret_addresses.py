"""A source with a secret address takes deliveries only there, and nothing reveals the address."""

import io
import json
from pathlib import Path
from typing import Any

from reconcile.instants import DAY, format_instant
from tests.api.driving import driving
from tests.reconcile.build import T
from tests.security.test_unsigned import callback

NEWEST, OLD, RETIRED = "Kq7wZt2mXc9LbR4vN8sD", "Hj3pYf6gQa1TuE5rW0oS", "Vb8nMz4xCk2LwP9dJ6hG"
SOURCES: dict[str, Any] = {
    "SOURCES__MPESA__PROFILE": "mpesa_stk",
    "SOURCES__MPESA__CREDENTIALS": json.dumps(
        {"consumer": "k:s", "shortcode": "1", "timestamp": "20261120100000", "password": "cA=="}
    ),
    "SOURCES__MPESA__ADDRESS": json.dumps(
        [NEWEST, f"{OLD} until {format_instant(T + DAY)}", f"{RETIRED} until {format_instant(T)}"]
    ),
}


def files_in(folder: Path) -> list[str]:
    """Return the contents of all files in a folder."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each.read_bytes().decode("latin-1") for each in files]


async def test_only_its_addresses_reach_a_source_and_nothing_shows_them(
    tmp_path: Path, log: io.StringIO
) -> None:
    """Not even one that was mistyped, or is no longer valid: neither in the log nor in a file."""
    mistyped = NEWEST[:-1]
    async with driving(tmp_path, **SOURCES) as driver:
        found = {}
        for number, end in enumerate((NEWEST, OLD, RETIRED, mistyped, "mpesa")):
            content = json.dumps(callback(f"ws_{number}")).encode()
            answer = await driver.client.post(f"/webhooks/{end}", content=content)
            found[end] = answer.status_code
        assert found == {NEWEST: 200, OLD: 200, RETIRED: 404, mistyped: 404, "mpesa": 404}
        listed = await driver.api("GET", "/api/v1/deliveries?limit=50")
        metrics = (await driver.client.get("/metrics")).text
        kept = driver.rows("SELECT source, verdict FROM rejections ORDER BY size, source")
        assert kept == [
            ("(secret)", "source_unknown"),
            ("(secret)", "source_unknown"),
            ("(secret)", "source_unknown"),
        ]
    everything = [listed.text, metrics, log.getvalue()]
    everything += files_in(tmp_path)
    assert "ws_0" in "".join(everything)
    for end in (NEWEST, OLD, RETIRED, mistyped):
        assert not [text for text in everything if end in text]
