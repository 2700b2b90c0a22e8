"""Known answers for each shipped profile: tests/vectors/<profile>.jsonl, one request a line.

A line has the form that `signature check` takes. It also has `valid`, the `reason` where it is not
valid, and the `source` of its numbers. None of them was computed by this project.
"""

import json
from pathlib import Path
from typing import Any

from app.providers.check_signatures import check_lines
from app.providers.profile import load_profile, shipped_profiles
from reconcile.instants import EARLIEST
from tests.rows import for_each, row

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS: dict[str, list[dict[str, Any]]] = {
    path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted(FOLDER.glob("*.jsonl"))
}
SHIPPED = shipped_profiles()
ANSWER = ("valid", "reason", "source")
LEAST = 5


@for_each("profile", SHIPPED)
def test_each_published_request_has_its_published_verdict(profile: str) -> None:
    for vector in VECTORS.get(profile, []):
        request = {key: value for key, value in vector.items() if key not in ANSWER}
        (line,) = check_lines([json.dumps(request).encode()], profile=profile, now=EARLIEST)
        verdict = json.loads(line)
        found = (verdict["valid"], verdict.get("reason"))
        with row(vector["name"]):
            assert found == (vector["valid"], vector.get("reason")), verdict.get("sentence")


@for_each("profile", SHIPPED)
def test_each_shipped_profile_has_five_known_answers_of_both_kinds(profile: str) -> None:
    """An unsigned profile refuses nothing: its events count only once the provider was asked."""
    vectors = VECTORS.get(profile, [])
    assert len(vectors) >= LEAST
    assert len({vector["name"] for vector in vectors}) == len(vectors)
    assert all(vector["source"] and vector.get("profile", profile) == profile for vector in vectors)
    unsigned = load_profile(profile).signature.mac == "none"
    assert {vector["valid"] for vector in vectors} == ({True} if unsigned else {True, False})


def test_each_file_of_known_answers_has_its_profile() -> None:
    assert set(VECTORS) <= {*SHIPPED}
