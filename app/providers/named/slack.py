"""Slack: the challenge that verifies a new address (api.slack.com/events/url_verification)."""

from typing import Any, Final

from app.providers import kit


def _challenge(body: dict[str, Any]) -> object:
    return body.get("challenge") if body.get("type") == "url_verification" else None


PARTICULARS: Final = kit.Particulars(greeting=_challenge)
