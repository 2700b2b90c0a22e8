"""Convert attached mail to readable text. Use this module only in a child process."""

import hashlib
import re
from email import policy
from email.message import EmailMessage, Message
from email.parser import BytesParser
from html.parser import HTMLParser
from typing import Final

from app.core.text import counted

_HEAD: Final = re.compile(rb"[!-9;-~]+:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*\r?\n")

_SHOWN: Final = ("From", "To", "Cc", "Date", "Subject")


def is_mail(content: bytes) -> bool:
    """Check whether a file begins like a mail."""
    names, place = set[bytes](), 0
    while (field := _HEAD.match(content, place)) is not None:
        names.add(field[0].partition(b":")[0].lower())
        place = field.end()
    return b"from" in names and not names.isdisjoint((b"message-id", b"mime-version", b"received"))


def mail_text(content: bytes) -> str:
    """Return a mail as text, from its text parts or else from its HTML."""
    mail = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(content)
    lines = [f"{name}: {mail[name]}" for name in _SHOWN if mail[name]]
    body = mail.get_body(("plain", "html"))
    said = "" if body is None else _decoded(body)
    if body is not None and body.get_content_type() == "text/html":
        said = _words_of(said)
    lines += ["", said.replace("\r\n", "\n").strip(), ""]
    attached = [each for each in mail.walk() if each.get_filename() and not each.is_multipart()]
    for each in attached:
        inner = each.get_payload(decode=True)
        data = inner if isinstance(inner, bytes) else b""
        lines.append(
            f"Attached: {each.get_filename()} ({each.get_content_type()}, "
            f"{counted(len(data), 'byte')}, SHA-256 {hashlib.sha256(data).hexdigest()})"
        )
    shown = "\n".join(lines).strip()
    return "".join(each for each in shown if each.isprintable() or each in "\n\t")


def _decoded(body: Message) -> str:
    content = body.get_payload(decode=True)
    data = content if isinstance(content, bytes) else b""
    try:
        return data.decode(body.get_content_charset("utf-8"), "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden |= tag in ("style", "script")
        self.words += ["\n"] if tag in ("p", "br", "div", "tr", "li", "h1", "h2") else []

    def handle_endtag(self, tag: str) -> None:
        self._hidden &= tag not in ("style", "script")

    def handle_data(self, data: str) -> None:
        self.words += [] if self._hidden else [" ".join(data.split()) + " "]


def _words_of(page: str) -> str:
    parser = _Words()
    parser.feed(page)
    parser.close()
    return re.sub(r"\n{3,}", "\n\n", "".join(parser.words)).strip()
