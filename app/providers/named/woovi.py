"""Woovi: the test request to a new address (developers.woovi.com/docs/webhook/webhook-test)."""

from typing import Final

from app.providers import kit

PARTICULARS: Final = kit.Particulars(greeting=lambda body: body.get("data_criacao"))
