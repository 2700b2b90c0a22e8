"""The merchant's names for the accounts of a journal, from a TOML file or as they are by default.

[accounts]
clearing = "Assets:Clearing:Provider"
fees = "Expenses:Fees"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Final

from app.core.errors import ConfigurationError
from reconcile.reporting.journal import ROLES, Role

DEFAULTS: Final[Mapping[Role, str]] = {
    "clearing": "Assets:Clearing:Provider",
    "bank": "Assets:Bank",
    "sales": "Income:Sales",
    "refunds": "Income:Refunds",
    "disputes": "Expenses:Disputes",
    "fees": "Expenses:Fees:Payments",
    "write_offs": "Expenses:WriteOffs",
}

_NAME = re.compile(r"(Assets|Liabilities|Equity|Income|Expenses)(:[A-Z0-9][A-Za-z0-9-]*)+")
"""What beancount takes for an account."""

NAME_MAX: Final = 200
"""Characters of an account's name."""


def accounts_of(text: str) -> Mapping[Role, str]:
    """The accounts that a mapping names, the others as by default.

    Raises ConfigurationError with every mistake.
    """
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"the mapping of accounts is not TOML: {error}"]) from None
    named = told.get("accounts", {})
    problems = [f"{name}: the mapping has only [accounts]" for name in told if name != "accounts"]
    if not isinstance(named, dict):
        raise ConfigurationError(["accounts: write it as a table, [accounts]"])
    problems += [
        f"{name}: no account; they are {', '.join(ROLES)}" for name in named.keys() - ROLES
    ]
    for role in ROLES:
        name = named.get(role, DEFAULTS[role])
        if not isinstance(name, str) or len(name) > NAME_MAX or not _NAME.fullmatch(name):
            problems.append(f"{role}: an account is written like {DEFAULTS[role]}")
    if problems:
        raise ConfigurationError(sorted(problems))
    return {role: str(named.get(role, DEFAULTS[role])) for role in ROLES}
