"""The contract on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.database.builders import opened
from tests.database.contract_breaks import BreakContract
from tests.database.contract_checking import CheckingContract
from tests.database.contract_closing import ClosingContract
from tests.database.contract_confirming import ConfirmingContract
from tests.database.contract_evidence import EvidenceContract
from tests.database.contract_hand_matches import HandMatchContract
from tests.database.contract_histories import HistoryContract
from tests.database.contract_holds import HoldContract
from tests.database.contract_imports import ImportContract
from tests.database.contract_keeping import KeepingContract
from tests.database.contract_ledger_lines import LedgerLinesContract
from tests.database.contract_ledgers import LedgerContract
from tests.database.contract_outbox import OutboxContract
from tests.database.contract_personal import PersonalContract
from tests.database.contract_policies import PolicyContract
from tests.database.contract_preview import PreviewContract
from tests.database.contract_reconciling import ReconcilingContract
from tests.database.contract_references import ReferenceContract
from tests.database.contract_reporting import ReportingContract
from tests.database.contract_restoring import RestoringContract
from tests.database.contract_retention import RetentionContract
from tests.database.contract_scheduling import SchedulingContract
from tests.database.contract_sealing import SealingContract
from tests.database.contract_trail import TrailContract
from tests.database.contract_upgrading import UpgradingContract
from tests.database.contract_verdicts import VerdictContract
from tests.database.contract_watching import WatchingContract
from tests.database.made import put_new


class TestSqlite(
    VerdictContract,
    HistoryContract,
    LedgerContract,
    KeepingContract,
    CheckingContract,
    ClosingContract,
    ConfirmingContract,
    EvidenceContract,
    PersonalContract,
    PolicyContract,
    ReferenceContract,
    PreviewContract,
    ReportingContract,
    RestoringContract,
    RetentionContract,
    OutboxContract,
    LedgerLinesContract,
    BreakContract,
    HandMatchContract,
    HoldContract,
    ReconcilingContract,
    WatchingContract,
    SchedulingContract,
    ImportContract,
    SealingContract,
    TrailContract,
    UpgradingContract,
):
    """Every property of the contract, on a database file."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        """A database of the newest version, without a row."""
        put_new(tmp_path / "t.db")
        return f"sqlite+aiosqlite:///{tmp_path}/t.db"

    @pytest.fixture
    def empty_url(self, tmp_path: Path) -> str:
        """A database that does not exist yet."""
        return f"sqlite+aiosqlite:///{tmp_path}/empty.db"


async def test_how_connections_are_opened(tmp_path: Path) -> None:
    """Those that read cannot write; the one that writes folds its log when we say so, not SQLite by
    itself, overwrites what it deletes, and syncs every commit."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        async with inbox.database.reading() as connection:
            with pytest.raises(OperationalError, match="readonly"):
                await connection.exec_driver_sql("DELETE FROM counters")
        async with inbox.database.writing() as connection:
            pragmas = {
                name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
                for name in ("wal_autocheckpoint", "secure_delete", "synchronous", "temp_store")
            }
        assert pragmas == {
            "wal_autocheckpoint": 0, "secure_delete": 1, "synchronous": 2, "temp_store": 2
        }  # fmt: skip
