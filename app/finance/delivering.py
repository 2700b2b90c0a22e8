"""Ways of a report to who reads it: files into a folder, one mail, or signed posts.

Each way can be gone again without harm: a file replaces the one of its name, a post bears the same
id, a mail the same Message-ID. What goes wrong is a DeliveryFailed whose sentence holds no secret
and nothing that the other side wrote.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, Protocol

import httpx2

from app.core.clock import Clock
from app.core.errors import DeliveryFailed
from app.core.mail import MailServer
from app.core.private_files import replacing
from app.core.schedule import Way
from app.providers.signed_post import post_signed
from app.providers.source import Source
from reconcile.instants import Instant, format_instant, moment_of

LIMIT_S: Final = 60.0
"""Seconds that one request, or one answer of a mail server, may take."""

BYTES_MAX: Final = 20 * 1024 * 1024
"""Of a mail as it is sent, and of a file that is posted: what servers commonly take."""

FILE_MODE: Final = 0o640
"""Whoever may enter the folder as its group reads them: they are put there to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What is delivered together.

    entry, span   the schedule's entry, and the name of what is reported: `2026-10`
    what          what the files are: a report, or a checkpoint of the log
    merchant      whose report it is; may be empty
    files         contents by file name
    summary       sentences of the report that a mail begins with
    """

    entry: str
    span: str
    merchant: str
    due_at: Instant
    late: bool
    files: Mapping[str, bytes]
    summary: Sequence[str]
    what: Literal["report", "checkpoint"] = "report"

    def id_of(self, file: str) -> str:
        """The same at every try, and of no other file of no other time."""
        told = f"{self.entry}|{self.due_at}|{file}"
        return "rpt_" + sha256(told.encode()).hexdigest()[:24]


class Delivers(Protocol):
    """One way."""

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """Deliver these files of the parcel. Raises DeliveryFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWay:
    """Files into a folder, each whole or not there."""

    folder: Path

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`. The folder itself is not made: one that is missing is a disk that is."""
        try:
            for name in files:
                await asyncio.to_thread(self._put, name, parcel.files[name])
        except OSError as error:
            raise DeliveryFailed(
                f"the folder TALLYHOOK_REPORTS__FOLDER takes no file ({error.strerror}): see that "
                "it is there, may be written to, and has room"
            ) from None

    def _put(self, name: str, content: bytes) -> None:
        part = self.folder / f".{name}.part"
        with replacing(self.folder / name, part=part, mode=FILE_MODE) as file:
            file.write(content)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailWay:
    """One mail with the files."""

    server: MailServer
    sender: str
    to: Sequence[str]

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`."""
        message = self.message(parcel, files)
        if len(message.as_bytes()) > BYTES_MAX:
            raise DeliveryFailed(
                "the files are too large for a mail, which may have 20 MiB as it is sent: name "
                "fewer forms, or have them put into a folder"
            )
        await self.server.send(message)

    def message(self, parcel: Parcel, files: Sequence[str]) -> EmailMessage:
        """The mail."""
        message = EmailMessage()
        whose = f"{parcel.merchant}: " if parcel.merchant else ""
        late = " (late)" if parcel.late else ""
        message["Subject"] = f"{whose}{parcel.what} {parcel.span}{late}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        message["Date"] = format_datetime(moment_of(parcel.due_at))
        domain = self.sender.rpartition("@")[2]
        message["Message-ID"] = f"<{parcel.id_of(' '.join(files))}@{domain}>"
        lines = [*parcel.summary, _when(parcel)]
        message.set_content("\n\n".join(lines) + "\n")
        for name in files:
            message.add_attachment(
                parcel.files[name],
                maintype="application",
                subtype=_SUBTYPES.get(name.rpartition(".")[2], "octet-stream"),
                filename=name,
            )
        return message


_SUBTYPES: Final = {
    "pdf": "pdf",
    "xlsx": "vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "json": "json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostWay:
    """One signed request a file: a document with the file in base64."""

    url: str = field(repr=False)
    signer: Source = field(repr=False)
    client: httpx2.AsyncClient = field(repr=False)
    clock: Clock

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`."""
        for name in files:
            if len(parcel.files[name]) > BYTES_MAX:
                raise DeliveryFailed(f"{name} has more than 20 MiB, too many to be posted")
            event_id = parcel.id_of(name)
            answer = await post_signed(
                self.client,
                self.url,
                posted(parcel, name),
                signer=self.signer,
                event_id=event_id,
                now=self.clock.now(),
                limit_s=LIMIT_S,
                more={"idempotency-key": event_id},
            )
            if not answer.taken:
                problem = answer.why.replace("_", " ")
                raise DeliveryFailed(
                    f"what listens at TALLYHOOK_REPORTS__URL does not take the file ({problem})"
                )


def posted(parcel: Parcel, name: str) -> bytes:
    """The body that carries a file: the same at every try, but for whether that is late."""
    content = parcel.files[name]
    document = {
        "type": f"{parcel.what}.ready",
        "timestamp": format_instant(parcel.due_at),
        "data": {
            "entry": parcel.entry,
            "span": parcel.span,
            "merchant": parcel.merchant,
            "late": parcel.late,
            "file": name,
            "sha256": sha256(content).hexdigest(),
            "size": len(content),
            "content": base64.b64encode(content).decode("ascii"),
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


def _when(parcel: Parcel) -> str:
    told = f"Made by the schedule's entry {parcel.entry}, due {format_instant(parcel.due_at)}"
    return f"{told}, and made late." if parcel.late else f"{told}."


Ways = Mapping[Way, Delivers]
