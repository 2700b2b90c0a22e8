"""Settings of the company's sign-in, taken together."""

import pytest

from app.config.load import load_settings
from app.core.errors import ConfigurationError
from tests.access.openid_provider import ISSUER, settings_of_company

pytestmark = pytest.mark.disk


def problems(**changes: str | None) -> list[str]:
    """Return the names of the variables with problems."""
    given = {f"TALLYHOOK_{name}": each for name, each in (settings_of_company() | changes).items()}
    try:
        load_settings({name: value for name, value in given.items() if value is not None})
    except ConfigurationError as error:
        return [line.partition(":")[0].removeprefix("TALLYHOOK_") for line in error.problems]
    return []


def test_the_issuer_is_kept_as_the_provider_writes_it() -> None:
    """Some end with a slash, and their tokens state it."""
    given = {f"TALLYHOOK_{name}": each for name, each in settings_of_company().items()}
    assert load_settings(given).oidc.issuer == ISSUER


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"OIDC__ISSUER": None}, ["OIDC__ISSUER"]),
        ({"OIDC__ISSUER": "login.example"}, ["OIDC__ISSUER"]),
        ({"OIDC__ISSUER": "http://login.example"}, ["OIDC__ISSUER"]),
        ({"OIDC__ISSUER": "http://127.0.0.1:8080"}, []),
        ({"OIDC__ISSUER": "http://127.0.0.1:8080", "ENVIRONMENT": "live"}, ["OIDC__ISSUER"]),
        ({"OIDC__CLIENT_ID": None}, ["OIDC__CLIENT_ID"]),
        ({"OIDC__CLIENT_SECRET": None}, ["OIDC__CLIENT_SECRET"]),
        ({"OIDC__CLIENT_SECRET": "changeme"}, ["OIDC__CLIENT_SECRET"]),
        ({"OIDC__CLIENT_SECRET_FILE": "/nowhere"}, ["OIDC__CLIENT_SECRET"]),
        ({"OIDC__ROLES": None}, ["OIDC__ROLES"]),
        ({"OIDC__ROLES": "books"}, ["OIDC__ROLES"]),
        ({"OIDC__ROLES": '{"books": "owner"}'}, ["OIDC__ROLES"]),
        ({"OIDC__ROLES": '{"books": ["finance"]}'}, ["OIDC__ROLES"]),
        ({"OIDC__DOMAINS": "@shop.example"}, ["OIDC__DOMAINS"]),
        ({"OIDC__SCOPES": "openid profile"}, ["OIDC__SCOPES"]),
        ({"OIDC__LOCAL_ACCOUNTS": "auto"}, ["OIDC__LOCAL_ACCOUNTS"]),
        (
            {**dict.fromkeys(settings_of_company()), "OIDC__LOCAL_ACCOUNTS": "off"},
            ["OIDC__CLIENT_ID", "OIDC__ISSUER", "OIDC__ROLES"],
        ),
    ],
)  # fmt: skip
def test_each_mistake_is_named(changes: dict[str, str | None], wrong: list[str]) -> None:
    assert problems(**changes) == wrong
