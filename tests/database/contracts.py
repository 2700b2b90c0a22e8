"""The contract that every database must keep: all of its parts, for one subclass a database."""

from tests.database.contract_breaks import BreakContract
from tests.database.contract_closing import ClosingContract
from tests.database.contract_confirming import ConfirmingContract
from tests.database.contract_coverage import CoverageContract
from tests.database.contract_evidence import EvidenceContract
from tests.database.contract_gaps import GapContract
from tests.database.contract_hand_matches import HandMatchContract
from tests.database.contract_histories import HistoryContract
from tests.database.contract_holds import HoldContract
from tests.database.contract_imports import ImportContract
from tests.database.contract_keeping import KeepingContract
from tests.database.contract_ledger_lines import LedgerLinesContract
from tests.database.contract_ledgers import LedgerContract
from tests.database.contract_outbox import OutboxContract
from tests.database.contract_personal import PersonalContract
from tests.database.contract_placing import PlacingContract
from tests.database.contract_policies import PolicyContract
from tests.database.contract_reconciling import ReconcilingContract
from tests.database.contract_redating import RedatingContract
from tests.database.contract_references import ReferenceContract
from tests.database.contract_reporting import ReportingContract
from tests.database.contract_restoring import RestoringContract
from tests.database.contract_retention import RetentionContract
from tests.database.contract_scheduling import SchedulingContract
from tests.database.contract_sealing import SealingContract
from tests.database.contract_searching import SearchContract
from tests.database.contract_shop_facts import ShopFactsContract
from tests.database.contract_suspense import SuspenseContract
from tests.database.contract_trail import TrailContract
from tests.database.contract_upgrading import PreviewContract, UpgradingContract
from tests.database.contract_verdicts import VerdictContract
from tests.database.contract_watching import WatchingContract


class OtherContract(
    VerdictContract,
    HistoryContract,
    LedgerContract,
    KeepingContract,
    ClosingContract,
    ConfirmingContract,
    CoverageContract,
    EvidenceContract,
    GapContract,
    PlacingContract,
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
    RedatingContract,
    WatchingContract,
    SchedulingContract,
    ImportContract,
    SealingContract,
    SearchContract,
    ShopFactsContract,
    SuspenseContract,
    TrailContract,
    UpgradingContract,
):
    """Every property but those of personal data. A subclass gives `url`, and `empty_url`, a
    database without any table."""


class Contract(OtherContract, PersonalContract):
    """Every property."""
