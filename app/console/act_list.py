"""List of every action. Each stands in ACTS of its file, below its two functions."""

from typing import Final

from app.console import (
    account_pages,
    breaks_pages,
    case_pages,
    coverage_pages,
    finance_pages,
    imports_pages,
    mapping_pages,
    order_acts,
    privacy_pages,
    proposals_pages,
    rules_pages,
    service_pages,
    setup_pages,
    unallocated_pages,
    upload_acts,
)

ACTS: Final = (
    *order_acts.ACTS,
    *case_pages.ACTS,
    *privacy_pages.ACTS,
    *setup_pages.ACTS,
    *breaks_pages.ACTS,
    *unallocated_pages.ACTS,
    *proposals_pages.ACTS,
    *finance_pages.ACTS,
    *rules_pages.ACTS,
    *coverage_pages.ACTS,
    *upload_acts.ACTS,
    *mapping_pages.ACTS,
    *imports_pages.ACTS,
    *service_pages.ACTS,
    *account_pages.ACTS,
)
