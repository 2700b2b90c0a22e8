"""A replaced secret proves nothing after its end, while the newer one stays valid."""

from pathlib import Path

import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.core.errors import ConfigurationError
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import DAY, TICK, format_instant
from tests.api.driving import SECRET, environ, signed
from tests.providers.builders import refused
from tests.reconcile.build import T

NEW = "whsec_bmV3ZXIgc2VjcmV0IG9mIHRoZSBzYW1lIHNob3AhIQ=="
BODY = b"{}"


def source(folder: Path, *secrets: str) -> Source:
    listed = ",".join(secrets)
    settings = load_settings(environ(folder, SOURCES__SHOP__SECRETS=listed), serving=True)
    return compile_sources(settings)["shop"]


@pytest.mark.parametrize(("days", "genuine"), [(-1, True), (0, False), (1, False)])
def test_an_ended_secret_verifies_nothing_from_its_end_on(
    tmp_path: Path, days: int, genuine: bool
) -> None:
    shop = source(tmp_path, NEW, f"{SECRET} until {format_instant(T)}")
    now = T + days * DAY
    assert (shop.verify(Incoming(signed(BODY, at=now), BODY), now=now) is None) == genuine


def test_a_source_whose_secrets_have_all_ended_says_so(tmp_path: Path) -> None:
    shop = source(tmp_path, f"{SECRET} until {format_instant(T)}")
    refusal = refused(shop.verify(Incoming(signed(BODY, at=T), BODY), now=T))
    assert refusal.sentence.startswith("Every secret of the source has expired")
    assert shop.verify(Incoming(signed(BODY, at=T - TICK), BODY), now=T - TICK) is None


def test_an_invalid_end_is_reported_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source(tmp_path, f"{SECRET} until tomorrow")
    assert "TALLYHOOK_SOURCES__SHOP__SECRETS" in str(caught.value)
    assert "2026-12-01T00:00:00Z" in str(caught.value)
    assert SECRET not in str(caught.value)
