"""An order's evidence through the API: built in a separate process, for permitted roles."""

import tempfile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import fail_after

from app.access.operators import register_operator
from app.access.tokens import TOKEN_SCOPES, issue_own_token, issue_token
from app.api import evidence_routes
from app.core.clock import SystemClock
from app.core.errors import NotFoundError, UsageError
from app.evidence.bundle import BundleRequest
from app.evidence.verify_evidence import read_bundle, verify_evidence
from tests.api.described import not_as_described
from tests.api.driving import Driver, driving, event
from tests.contexts import stand_in

BUILT = "SELECT who, subject FROM audit WHERE action = 'evidence_built'"


async def own_token(driver: Driver, role: str) -> str:
    """Return the token of an operator with this role and name."""
    await register_operator(driver.context, name=role, role=role, by="admin")  # type: ignore[arg-type]
    return (await issue_own_token(driver.context, operator=role, until="30d", by="admin"))[0]


def left_in(folder: Path) -> list[str]:
    """Return the names of the files in the folder."""
    return [path.name for path in folder.iterdir()]


async def asked(driver: Driver, token: str, order: str, **words: Any) -> httpx2.Response:
    """Return an answer after checking it against the description."""
    answer = await driver.client.get(
        f"/api/v1/evidence/{order}", headers={"Authorization": f"Bearer {token}"}, params=words
    )
    assert not_as_described(answer) == [], answer.text
    return answer


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that holds bundles while they are sent."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_a_bundle_verifies_and_the_trail_says_who_built_it(
    driver: Driver, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child process builds it in the operator's name and leaves no file behind."""
    driver.clock.put(SystemClock().now())  # as the other process has it
    await driver.send(event("evt_1"))
    program = await issue_token(driver.context, name="desk", scopes=["evidence"])
    await own_token(driver, "admin")
    token = await own_token(driver, "support")
    answer = await asked(driver, token, "ORD-1")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="evidence-ORD-1.zip"'
    file = tmp_path / "bundle.zip"
    file.write_bytes(answer.content)
    found = verify_evidence(read_bundle(file))
    assert found.valid, found
    assert driver.rows(BUILT) == [("support", "ORD-1")]
    assert left_in(scratch) == []
    await check_letters(driver, program)
    monkeypatch.setattr("app.wiring.work.fail_after", lambda most_s: fail_after(0.01))
    assert (await asked(driver, token, "ORD-1")).status_code == 503
    assert left_in(scratch) == []


async def check_letters(driver: Driver, token: str) -> None:
    """Check that the process writes letters for a program that may read evidence, with the
    checklist."""

    async def letter_of(order: str, **words: str) -> httpx2.Response:
        answer = await driver.client.get(
            f"/api/v1/letters/{order}", headers={"Authorization": f"Bearer {token}"}, params=words
        )
        assert not_as_described(answer) == [], answer.text
        return answer

    letter = (await letter_of("ORD-1", family="not_received")).json()
    assert letter["title"] == "Statement on the payment of order ORD-1"
    assert letter["checklist"]["family"] == "not_received"
    assert (await letter_of("nobody")).status_code == 404
    late = await letter_of("ORD-1", as_of="2999-01-01T00:00:00Z")
    assert (late.status_code, late.json()["code"]) == (409, "letter_not_possible")


async def test_who_may_not_and_what_cannot_be_built(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs and viewers are refused before anything is built; a bundle that is too large, after
    it."""
    orders = []

    async def build(asked: BundleRequest, file: Path) -> None:
        orders.append(order := asked.order)
        if order == "nobody":
            raise NotFoundError(order)
        if order == "late":
            raise UsageError("something should have been sealed")
        file.write_bytes(b"abc")  # noqa: ASYNC240

    stand_in(monkeypatch, evidence_routes._build, build)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        program = await issue_token(driver.context, name="any", scopes=TOKEN_SCOPES)
        tokens = {role: await own_token(driver, role) for role in ("admin", "viewer", "finance")}
        for token, code in ((program, "scope_missing"), (tokens["viewer"], "role_missing")):
            answer = await asked(driver, token, "ORD-1")
            assert (answer.status_code, answer.json()["code"]) == (403, code)
        assert orders == []
        for order, status in (("ORD-1", 200), ("nobody", 404), ("late", 409), ("%00", 422)):
            assert (await asked(driver, tokens["finance"], order)).status_code == status
        assert (await asked(driver, tokens["finance"], "a/b")).content == b"abc"
        assert orders == ["ORD-1", "nobody", "late", "a/b"]
        assert (await asked(driver, tokens["finance"], "ORD-1", as_of="x")).status_code == 422
        monkeypatch.setattr(evidence_routes, "MAX_BUNDLE_BYTES", 2)
        large = await asked(driver, tokens["finance"], "ORD-1")
        assert (large.status_code, large.json()["code"]) == (409, "evidence_refused")
    assert left_in(scratch) == []
