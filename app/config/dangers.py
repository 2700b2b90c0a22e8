"""Settings that work and should not: what is for trying out, in live; what gives a secret away.

Leaves out: the form of single values, and the place of the database.
"""

from __future__ import annotations

import resource
import stat
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from app.config.reading import CONFIG, PREFIX, Reading
from app.core.open_files import SPARE_FILES

if TYPE_CHECKING:
    from app.config.settings import Settings

SIMULATOR_SECRET: Final = "whsec_dGFsbHlob29rLXNhbmRib3gtbm90LWEtc2VjcmV0IQ=="  # noqa: S105
"""The simulated provider's own, which its documentation prints."""

_TRYING_OUT: Final = frozenset({"sandbox", "staging", "test", "uat", "demo", "dev"})
"""Labels in the names of hosts where no real money moves."""


def _secrets_of_a_source_differ(settings: Settings, reading: Reading) -> None:
    for name, source in settings.sources.items():
        times = Counter(_bare(secret.get_secret_value()) for secret in source.secrets)
        if any(count > 1 for secret, count in times.items() if secret):
            reading.problem(
                _variable(name, reading), "holds one secret twice; write each of them once"
            )


def _bare(secret: str) -> str:
    """A secret without what may be written or left out around it."""
    return secret.strip().removeprefix("whsec_").rstrip("=")


def _variable(source: str, reading: Reading) -> str:
    variable = f"{PREFIX}SOURCES__{source.upper()}__SECRETS"
    return variable if variable in reading.given else variable + "_FILE"


def _secrets_are_no_paths(settings: Settings, reading: Reading) -> None:
    for name, source in settings.sources.items():
        variable = _variable(name, reading)
        for secret in source.secrets:
            text = secret.get_secret_value()
            if text.startswith(("/", "./")) and "\0" not in text and Path(text).exists():
                reading.problem(variable, f"holds the path of a file; write it to {variable}_FILE")


def _nothing_of_the_simulator_in_live(settings: Settings, reading: Reading) -> None:
    if not reading.live:
        return
    for name, source in settings.sources.items():
        known = {_bare(secret.get_secret_value()) for secret in source.secrets}
        if _bare(SIMULATOR_SECRET) in known:
            reading.problem(
                _variable(name, reading),
                "holds the simulated provider's secret, which everyone knows; write your own",
            )


def _no_debugging_in_live(settings: Settings, reading: Reading) -> None:
    if not (reading.live and reading.serving):
        return
    if settings.log_level == "debug":
        reading.problem(PREFIX + "LOG_LEVEL", "is for trying out; write info in live")
    if sys.flags.dev_mode:
        reading.problem("PYTHONDEVMODE", "is for trying out; start without it in live")


def _assertions_are_on(settings: Settings, reading: Reading) -> None:
    if reading.serving and sys.flags.optimize:
        reading.problem("PYTHONOPTIMIZE", "turns off the checks around each write; unset it")


def _checkout_is_at_the_real_service(settings: Settings, reading: Reading) -> None:
    host = urlsplit(settings.checkout.base_url or "").hostname or ""
    parts = {part for label in host.split(".") for part in label.split("-")}
    if reading.live and parts & _TRYING_OUT:
        reading.problem(
            PREFIX + "CHECKOUT__BASE_URL",
            "names a host for trying out, in environment live; write the live service's address",
        )


def _orders_need_a_price_of_the_shop(settings: Settings, reading: Reading) -> None:
    if reading.live and settings.require_order_record == "off":
        reading.warnings.append(
            f"{PREFIX}REQUIRE_ORDER_RECORD: is off in live, so an order of which the shop has told "
            "no price is paid by what the provider's event says that it costs"
        )


def _files_of_settings_are_safe(settings: Settings, reading: Reading) -> None:
    """Whoever can write them, or put others in their place, chooses the secrets."""
    for variable, path in _files(settings, reading):
        if _others_write(path):
            reading.only_in_sandbox(variable, "names a file that others may change; chmod go-w it")
        elif _others_write(path.parent):
            reading.only_in_sandbox(
                variable, "names a file in a folder that others may write to; chmod go-w the folder"
            )


def _files(settings: Settings, reading: Reading) -> list[tuple[str, Path]]:
    files = [(CONFIG, reading.config_file)]
    files += [
        (f"{PREFIX}SOURCES__{name.upper()}__SECRETS_FILE", source.secrets_file)
        for name, source in settings.sources.items()
    ]
    files.append((PREFIX + "CHECKOUT__TOKEN_FILE", settings.checkout.token_file))
    files.append((PREFIX + "SHOP__SECRET_FILE", settings.shop.secret_file))
    told = {*reading.problems, *(warning.partition(":")[0] for warning in reading.warnings)}
    return [(name, path) for name, path in files if path is not None and name not in told]


def _others_write(path: Path) -> bool:
    """Whether group or others may write; in a sticky folder they cannot replace what is there."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return bool(mode & 0o022) and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)


def _files_suffice_for_connections(settings: Settings, reading: Reading) -> None:
    variable = PREFIX + "MAX_CONNECTIONS"
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or variable not in reading.given:
        return
    if settings.max_connections + SPARE_FILES > limit:
        reading.problem(
            variable,
            f"needs {settings.max_connections + SPARE_FILES:,} open files, and this process may"
            f" have {limit:,}; raise the limit (ulimit -n) or write less",
        )


CHECKS: Final[tuple[Callable[[Settings, Reading], None], ...]] = (
    _secrets_of_a_source_differ,
    _secrets_are_no_paths,
    _nothing_of_the_simulator_in_live,
    _no_debugging_in_live,
    _assertions_are_on,
    _checkout_is_at_the_real_service,
    _orders_need_a_price_of_the_shop,
    _files_of_settings_are_safe,
    _files_suffice_for_connections,
)
