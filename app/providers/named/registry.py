"""The named verifiers, by the name that a profile uses. One line for each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.providers.named.contract import Factory

NAMED: Final[Mapping[str, Factory]] = {}
