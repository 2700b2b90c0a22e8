"""Mail that was attached is read as people read it, with what is attached to it listed."""

from email.message import EmailMessage

from app.evidence.attachments import media_of
from app.evidence.mail_text import is_mail, mail_text
from tests.rows import for_each


def mail(html_only: bool = False) -> bytes:
    made = EmailMessage()
    made["From"] = "Amina Otieno <amina@example.com>"
    made["To"] = "shop@example.com"
    made["Date"] = "Fri, 20 Nov 2026 10:00:00 +0300"
    made["Subject"] = "Re: Rechnung für Bestellung"
    made["Message-ID"] = "<1@example.com>"
    hidden = "</script><script>spy()</script><style>p {color: red}</style>"
    page = hidden + "<p>The lamps <b>arrived</b>,<br>thank you.</p>"
    if html_only:
        made.set_content(page, subtype="html")
    else:
        made.set_content("The lamps arrived, thank you – grüße.\n")
        made.add_alternative(page, subtype="html")
    made.add_attachment(
        b"\xff\xd8\xff" + b"0" * 97, maintype="image", subtype="jpeg", filename="lamps.jpg"
    )
    return made.as_bytes()


def test_its_head_its_words_and_what_is_attached_are_shown() -> None:
    text = mail_text(mail())
    assert text.startswith(
        "From: Amina Otieno <amina@example.com>\nTo: shop@example.com\n"
        "Date: Fri, 20 Nov 2026 10:00:00 +0300\nSubject: Re: Rechnung für Bestellung\n\n"
        "The lamps arrived, thank you – grüße."
    )
    assert "Attached: lamps.jpg (image/jpeg, 100 bytes, SHA-256 " in text
    assert "base64" not in text
    assert "Message-ID" not in text


def test_of_a_page_alone_its_words_are_shown() -> None:
    text = mail_text(mail(html_only=True))
    assert "The lamps arrived , \nthank you." in text
    assert "color" not in text
    assert "<" not in text.partition("\n\n")[2]


@for_each(
    ("content", "found"),
    [
        (mail(), True),
        (b"From: a\r\nMIME-Version: 1.0\r\n\r\nx", True),
        (b"From: Amina\nTo: us\n\nWhere is it?", False),
        (b"Where is it?\nFrom: a\nMessage-ID: b\n", False),
        (b"", False),
    ],
)
def test_a_mail_is_known_by_its_head(content: bytes, found: bool) -> None:
    assert is_mail(content) is found


def test_a_mail_is_taken_in_whichever_character_set_it_is() -> None:
    """Other text is taken in UTF-8 alone."""
    head = b"From: a\nMIME-Version: 1.0\nContent-Type: text/plain; charset=iso-8859-1\n\n"
    mail = head + "Grüße".encode("latin-1")
    assert media_of(mail) == "text/plain"
    assert mail_text(mail).endswith("Grüße")
    assert media_of("Grüße".encode("latin-1")) is None
    assert media_of(mail + b"\0") is None


@for_each(
    "hostile",
    [
        b'From: a\nMessage-ID: b\nContent-Type: multipart/mixed; boundary=""\n\n--\n--',
        b"From: =?utf-8?b?////?=\nMessage-ID: b\nContent-Type: text/plain; charset=none\n\nx",
        b"From: a\nMessage-ID: b\nContent-Transfer-Encoding: base64\n\n@@@",
    ],
)
def test_a_mail_that_is_malformed_is_shown_as_far_as_it_goes(hostile: bytes) -> None:
    assert mail_text(hostile).startswith("From:")
