"""What the settings of the shop's notifications say together.

Leaves out: the strength of the secret, which is checked with all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.config.reading import PREFIX, Reading

if TYPE_CHECKING:
    from app.config.settings import Settings

URL: Final = PREFIX + "SHOP__URL"
SECRET: Final = PREFIX + "SHOP__SECRET"


def _shop_is_whole(settings: Settings, reading: Reading) -> None:
    secrets = {SECRET, SECRET + "_FILE"}
    if secrets <= reading.given.keys():
        reading.problem(SECRET, f"is given beside {SECRET}_FILE; keep one of the two")
    if URL in reading.given and not secrets & reading.given.keys():
        reading.problem(SECRET, f"is missing beside {URL}; give it, or {SECRET}_FILE")
    if secrets & reading.given.keys() and URL not in reading.given:
        reading.problem(URL, "is missing beside the secret; write where the shop listens")


def _shop_is_encrypted(settings: Settings, reading: Reading) -> None:
    url = settings.shop.url
    if url and url.startswith("http:") and reading.live:
        reading.problem(URL, "sends what customers paid unencrypted; write https:// in front")


CHECKS: Final[tuple[Callable[[Settings, Reading], None], ...]] = (
    _shop_is_whole,
    _shop_is_encrypted,
)
