"""Settings of the shop's notifications, taken together."""

import pytest

from app.config.load import load_settings
from app.core.errors import ConfigurationError

pytestmark = pytest.mark.disk

SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="
OWN = {"TALLYHOOK_SHOP__URL": "https://shop.example/hook/?a=b", "TALLYHOOK_SHOP__SECRET": SECRET}


def problems(**changes: str | None) -> list[str]:
    """Return the names of the variables with problems."""
    changed = {f"TALLYHOOK_{name}": value for name, value in changes.items()}
    given = {name: value for name, value in {**OWN, **changed}.items() if value is not None}
    try:
        load_settings(given)
    except ConfigurationError as error:
        return [line.partition(":")[0] for line in error.problems]
    return []


def test_an_address_is_kept_as_it_is() -> None:
    assert load_settings(OWN).shop.url == OWN["TALLYHOOK_SHOP__URL"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"SHOP__SECRET": None}, "SHOP__SECRET"),
        ({"SHOP__URL": None}, "SHOP__URL"),
        ({"SHOP__SECRET_FILE": "/nowhere"}, "SHOP__SECRET"),
        ({"SHOP__SECRET": "short"}, "SHOP__SECRET"),
        ({"SHOP__URL": "shop.example"}, "SHOP__URL"),
        ({"SHOP__URL": "https://a:b@shop.example/"}, "SHOP__URL"),
        ({"SHOP__URL": "http://shop.example/", "ENVIRONMENT": "live"}, "SHOP__URL"),
        ({"SHOP__URL": "HTTP://shop.example/", "ENVIRONMENT": "live"}, "SHOP__URL"),
        ({"SHOP__URL": "http://127.0.0.1/", "ENVIRONMENT": "live"}, "SHOP__URL"),
    ],
)
def test_mistakes(changes: dict[str, str | None], wrong: str) -> None:
    assert f"TALLYHOOK_{wrong}" in problems(**changes)


def test_the_sandbox_may_go_without_tls() -> None:
    assert problems(SHOP__URL="http://shop.example/", ENVIRONMENT="sandbox") == []
