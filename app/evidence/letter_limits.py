"""Limits on a dispute letter, by provider and card network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from app.core.text import counted
from reconcile.documents import Count

MB: Final = 1_000_000


class LetterLimitsDocument(TypedDict):
    """Limits of the channel and the card network; null if no page states the limit."""

    who: str
    words: Annotated[str, "The limits in a sentence."]
    files: Count | None
    pages: Count | None
    bytes: Count | None
    bytes_of_one: Count | None
    formats: list[str]
    name_characters: Count | None
    sources: Annotated[list[str], "Pages that state it, with their dates."]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLimits:
    """Limits on an answer to a dispute; None for an unknown limit."""

    files: int | None = None
    pages: int | None = None
    size: int | None = None
    """Maximum total bytes of all files."""
    each: int | None = None
    """Maximum bytes of one file."""
    formats: tuple[str, ...] = ()
    name_chars: int | None = None
    """Maximum characters of a file's name, which must be letters and digits."""
    who: str = ""
    sources: tuple[str, ...] = ()

    def document(self) -> LetterLimitsDocument:
        return {
            "who": self.who, "words": self.words, "files": self.files, "pages": self.pages,
            "bytes": self.size, "bytes_of_one": self.each, "formats": list(self.formats),
            "name_characters": self.name_chars, "sources": list(self.sources),
        }  # fmt: skip

    @property
    def words(self) -> str:
        """Return the limits in a sentence."""
        said = [
            *([f"{self.files:,} files"] if self.files else []),
            *([f"{self.pages:,} pages"] if self.pages else []),
            *([f"{megabytes(self.size)} in all"] if self.size else []),
            *([f"{megabytes(self.each)} a file"] if self.each else []),
            *([f"names of {self.name_chars} letters and digits"] if self.name_chars else []),
        ]
        formats = f" as {', '.join(each.upper() for each in self.formats)}" if self.formats else ""
        if not said and not formats:
            return f"No page was found that states what {self.who} accepts."
        most = f" at most {', '.join(said)}" if said else ""
        return f"{self.who} takes{most}{formats}."


_JPMORGAN: Final = (
    "https://developer.payments.jpmorgan.com/docs/commerce/dispute-management/"
    "documentation-parameters, read 2026-11-29"
)
_CHECKOUT: Final = (
    "https://www.checkout.com/docs/payments/process-disputes/dispute-evidence-file-requirements, "
    "updated 2025-11-12"
)
_SCANS: Final = ("pdf", "jpg", "tiff")

OF_NETWORKS: Final[Mapping[str, LetterLimits]] = {
    "visa": LetterLimits(
        pages=100, size=2 * MB, formats=("pdf", "tiff"), who="Visa", sources=(_JPMORGAN,)
    ),
    "mastercard": LetterLimits(
        pages=18, size=14 * MB, formats=_SCANS, name_chars=16, who="Mastercard",
        sources=(
            _JPMORGAN,
            "https://www.checkout.com/merchant-communications/"
            "mastercard-dispute-documentation-requirements, of 2024-08-22: 19 pages, 14.5 MB",
            "https://www.servicenow.com/docs/r/australia/financial-services-operations/"
            "mastercard-image-and-document-requirements.html, updated 2026-03-12: names",
        ),
    ),
    "amex": LetterLimits(
        files=5, pages=20, size=MB, formats=_SCANS, who="American Express",
        sources=(_JPMORGAN, _CHECKOUT),
    ),
    "discover": LetterLimits(
        pages=100, size=3 * MB, who="Discover", sources=(_JPMORGAN, _CHECKOUT)
    ),
    "diners": LetterLimits(size=3 * MB, who="Diners", sources=(_CHECKOUT,)),
}  # fmt: skip
"""Limits of each card network. The keys are the names that `first_party.network_of` returns."""

OF_CHANNELS: Final[Mapping[str, LetterLimits]] = {
    "stripe": LetterLimits(
        each=5 * MB, formats=("pdf", "jpg", "png"), who="Stripe",
        sources=("https://docs.stripe.com/file-upload (dispute_evidence), read 2026-11-29",),
    ),
    "paypal": LetterLimits(
        size=50 * MB, each=10 * MB, formats=("jpg", "gif", "png", "pdf"), who="PayPal",
        sources=("https://developer.paypal.com/platforms/disputes/reference/"
                 "supported-file-types-sizes, read 2026-11-29",),
    ),
    "checkout_com": LetterLimits(
        each=4 * MB, formats=("jpg", "png", "pdf"), who="Checkout.com",
        sources=("https://checkout.com/docs/risk-management/disputes/file-uploader, updated "
                 "2025-04-02",),
    ),
    "revolut": LetterLimits(
        files=100, each=10 * MB, formats=("pdf", "png", "jpg"), who="Revolut",
        sources=("https://developer.revolut.com/docs/api/merchant/2026-08-17/operations/"
                 "upload-dispute-evidence.md",),
    ),
    "square": LetterLimits(
        formats=("pdf", "heic", "jpg", "png", "tiff"), who="Square",
        sources=("https://developer.squareup.com/reference/square/objects/DisputeEvidenceFile, "
                 "read 2026-11-29",),
    ),
}  # fmt: skip
"""Limits of each channel, by the profile of its source."""


def limits_of(channel: str, network: str | None) -> LetterLimits:
    """Return the smaller of a channel's and a network's limits."""
    rows = [
        OF_CHANNELS.get(channel, LetterLimits(who=channel)),
        *([] if network is None else [OF_NETWORKS.get(network, LetterLimits(who=network))]),
    ]

    def least(name: str) -> int | None:
        stated = [getattr(each, name) for each in rows]
        return min((each for each in stated if each is not None), default=None)

    stated = [each.formats for each in rows if each.formats]
    return LetterLimits(
        files=least("files"), pages=least("pages"), size=least("size"), each=least("each"),
        formats=tuple(e for e in stated[0] if all(e in f for f in stated)) if stated else (),
        name_chars=least("name_chars"), who=" for ".join(each.who for each in rows),
        sources=tuple(source for each in rows for source in each.sources),
    )  # fmt: skip


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes, to a tenth."""
    return f"{size / MB:,.1f} MB".replace(".0 MB", " MB")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile:
    """File to send as an answer to a dispute."""

    name: str
    ending: str
    size: int
    pages: int = 0
    """Number of pages; 0 if unknown."""
    behind: bool = False
    """True if the file is appended to the letter."""


def fault_of_sending(
    letter: SentFile, exhibits: Sequence[SentFile], limits: LetterLimits
) -> str | None:
    """Return a sentence on the limit that a letter exceeds."""
    alone = [each for each in exhibits if not each.behind]
    size, drop = letter.size + sum(each.size for each in alone), "attach fewer files"
    if exhibits:
        largest = max(exhibits, key=lambda each: each.size)
        drop = f"drop {largest.name} ({megabytes(largest.size)}), or attach a smaller scan"
    if limits.size is not None and size > limits.size:
        return f"its size is {megabytes(size)}, but the maximum is {megabytes(limits.size)}: {drop}"
    for each in (letter, *alone):
        if limits.each is not None and each.size > limits.each:
            most, thing = megabytes(limits.each), "the letter" if each is letter else each.name
            if each is not letter:
                drop = f"drop {each.name}, or attach a smaller scan"
            return (
                f"the size of {thing} is {megabytes(each.size)}, but the maximum for a file is "
                f"{most}: {drop}"
            )
    if limits.pages is not None and letter.pages > limits.pages:
        behind = [each for each in exhibits if each.behind]
        longest = max(behind, key=lambda each: (each.pages, each.size), default=None)
        what = "send fewer exhibits with it"
        if longest is not None:
            count = f" ({counted(longest.pages, 'page')})" if longest.pages else ""
            what = f"drop {longest.name}{count}"
        return f"it has {letter.pages} pages, but the maximum is {limits.pages}: {what}"
    if limits.files is not None and len(alone) >= limits.files:
        count = f"{counted(1 + len(alone), 'file')}, but at most {limits.files} are accepted"
        return f"with the separate files it has {count}: drop {alone[-1].name}"
    for each in (letter, *alone):
        if limits.formats and each.ending not in limits.formats:
            what = "name a file that ends in .pdf" if each is letter else f"drop {each.name}"
            return f"a file that ends in .{each.ending} is not accepted: {what}"
    stem = letter.name.removesuffix(f".{letter.ending}")
    most_chars = limits.name_chars
    if most_chars is not None and not (
        stem.isascii() and stem.isalnum() and len(letter.name) <= most_chars
    ):
        return (
            f"its name {letter.name!r} is not accepted: use only letters and digits, and at most "
            f"{most_chars} characters with the ending, such as letter.pdf"
        )
    return None
