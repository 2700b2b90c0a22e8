"""Send mail by SMTP, encrypted unless the mail server is on this machine.

A DeliveryFailed contains no secrets and no text from the server.
"""

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Final

from pydantic import SecretStr

from app.core.errors import DeliveryFailed
from app.core.hosts import is_loopback

LIMIT_S: Final = 60.0
"""Seconds that a mail server may take for each answer."""

TLS_FROM_THE_START: Final = 465
"""Port on which connections are encrypted from the start (RFC 8314)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Mail server that sends the program's mails.

    user, password  both set, or both None
    trusted         TLS context; None for the system's certificates
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    trusted: ssl.SSLContext | None = None

    async def send(self, message: EmailMessage) -> None:
        """Send a message to its recipients. Raise DeliveryFailed if the mail cannot be sent."""
        await asyncio.to_thread(self._send, message)

    def _send(self, message: EmailMessage) -> None:
        trusted = self.trusted or ssl.create_default_context()
        to: dict[str, Any] = {"host": self.host, "port": self.port, "timeout": LIMIT_S}
        try:
            with (
                smtplib.SMTP_SSL(**to, context=trusted)
                if self.port == TLS_FROM_THE_START
                else smtplib.SMTP(**to)
            ) as server:
                if self.port != TLS_FROM_THE_START and not is_loopback(self.host):
                    server.starttls(context=trusted)
                if self.user is not None and self.password is not None:
                    server.login(self.user, self.password)
                refused = server.send_message(message)
        except smtplib.SMTPNotSupportedError:
            raise DeliveryFailed(
                "the mail server lacks encryption (STARTTLS) or authentication: use a mail server "
                "that offers both"
            ) from None
        except smtplib.SMTPAuthenticationError:
            raise DeliveryFailed(
                "the mail server refuses the user or the password: check "
                "TALLYHOOK_REPORTS__MAIL_USER and TALLYHOOK_REPORTS__MAIL_PASSWORD"
            ) from None
        except smtplib.SMTPRecipientsRefused:
            raise DeliveryFailed(_REFUSED) from None
        except smtplib.SMTPResponseException as error:
            raise DeliveryFailed(
                f"the mail server answered with the error code {error.smtp_code}: see the mail "
                "server's log"
            ) from None
        except ssl.SSLError:
            raise DeliveryFailed(
                "the mail server's certificate is not trusted: check TALLYHOOK_REPORTS__MAIL_SERVER"
            ) from None
        except (OSError, smtplib.SMTPException):
            raise DeliveryFailed(
                "the mail server cannot be reached, or ended the connection: check "
                "TALLYHOOK_REPORTS__MAIL_SERVER"
            ) from None
        if refused:
            raise DeliveryFailed(_REFUSED)


_REFUSED: Final = (
    "the mail server refuses a recipient: check the setting that names the recipients (…__MAIL_TO)"
)


def mail_server(
    place: str | None, *, user: str | None, password: SecretStr | None
) -> MailServer | None:
    """Return the mail server at `place`, which has the form `host:port`. Return None if `place` is
    None."""
    if place is None:
        return None
    host, _, port = place.rpartition(":")
    secret = None if password is None else password.get_secret_value()
    return MailServer(host=host, port=int(port), user=user, password=secret)
