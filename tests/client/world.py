"""Entries of the feed and notifications, made by the published rules alone."""

import base64
import hashlib
import hmac
import json
from typing import Any

KEY = b"a key for tests, not a secret"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def entry(
    number: int, order: str, fulfillable: bool, *, fulfilled_at: str | None = None
) -> dict[str, Any]:
    """Build an entry of the feed."""
    return {
        "id": number,
        "order": order,
        "outcome": "succeeded" if fulfillable else "pending",
        "fulfillable": fulfillable,
        "before": None,
        "because": ["So."],
        "at": "2026-11-20T10:00:00Z",
        "fulfilled_at": fulfilled_at,
        "canceled_at": None,
    }


def notification(
    data: Any, *, now: int, key: bytes = KEY, kind: str = "order.revised"
) -> tuple[dict[str, str], bytes]:
    """Build the headers and the body of a notification."""
    body = json.dumps({"type": kind, "timestamp": "2026-11-20T10:00:00Z", "data": data}).encode()
    content = b".".join((b"msg_1", str(now).encode(), body))
    mac = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(now),
        "Webhook-Signature": f"v1,{mac}",
    }
    return headers, body
