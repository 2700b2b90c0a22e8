"""The merchant's names for the accounts of a journal, from a TOML file or as they are by default.

[accounts]
clearing = "Assets:Clearing:Provider"
fees = "Expenses:Fees"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import PlainValidator, create_model

from app.toml_file import EMPTY, Table, read_toml
from reconcile.journal import Role

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


MAX_BYTES: Final = 16 * 1024
"""Bytes of a mapping of accounts; it has seven lines."""


def _account(usual: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > NAME_MAX or not _NAME.fullmatch(value):
            raise ValueError(f"an account is written like {usual}")
        return value

    return read


_ROLES: Final[dict[str, Any]] = {
    role: (Annotated[str, PlainValidator(_account(usual))], usual)
    for role, usual in DEFAULTS.items()
}
_ACCOUNTS: Final = create_model("_ACCOUNTS", __base__=Table, **_ROLES)


class _AccountFile(Table):
    accounts: _ACCOUNTS = EMPTY


def accounts_of(text: str, *, name: str = "the mapping of accounts") -> Mapping[Role, str]:
    """The accounts that a mapping names, the others as by default.

    Raises ConfigurationError with every mistake.
    """
    values = read_toml(text, _AccountFile, name=name, most_bytes=MAX_BYTES)
    return values["accounts"]  # type: ignore[no-any-return]
