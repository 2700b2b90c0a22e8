"""The page of a copy for the person: their data with source, time, period and reason."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{border:1px solid #999;padding:.3rem .5rem;"
    "text-align:left;vertical-align:top}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "background:#f4f4f4;padding:.5rem}"
)

_SHOWN: Final = 100_000
"""Maximum characters of one table on the page; its file has all rows."""


def index_page(index: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return the page as HTML that loads nothing.

    index    the content of index.json
    members  the other files by name
    """
    found_by = ", ".join(index["found_by"])
    orders = ", ".join(index["orders"]) or "none"
    rows, parts = list[str](), list[str]()
    for each in index["places"]:
        cells = (
            f'<a href="#{escape(each["place"])}">{escape(each["place"])}</a>',
            escape("; ".join(each["what"]) or "codes and dates"),
            str(each["rows"]),
            escape(", ".join(each["from"]) or "this shop"),
            escape(each["since"] or "not noted"),
            escape("; ".join(each["until"]) or "with what it belongs to"),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        text = members[each["file"]].decode("utf-8", "replace")
        more = "" if len(text) <= _SHOWN else f"<p>The rest is in {escape(each['file'])}.</p>"
        parts.append(
            f'<h2 id="{escape(each["place"])}">{escape(each["place"])}</h2>'
            f"<pre>{escape(text[:_SHOWN])}</pre>{more}"
        )
    files = "".join(
        f'<li><a href="{escape(name)}">{escape(name)}</a></li>'
        for name in sorted(members)
        if name.startswith("files/")
    )
    elsewhere = "".join(
        f"<li>{escape(each['where'])}: {escape(each['what'])}; {escape(each['until'])}</li>"
        for each in index["elsewhere"]
    )
    periods = "".join(
        f"<li>{escape(each['what'])}: {escape(each['kept'])}</li>" for each in index["periods"]
    )
    head = "".join(
        f"<th>{each}</th>"
        for each in ("Where", "What", "Rows", "From", "Since", "Until, and on which ground")
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Your data</title>'
        f"<style>{_STYLE}</style><h1>Your data</h1>"
        f"<p>All that this payment system keeps about {escape(found_by)}, as of "
        f"{escape(index['as_of'])}. Your orders: {escape(orders)}.</p>"
        "<p>Phone numbers, email addresses and known names of other people are masked. You may "
        "ask the shop to correct or erase your data; what the law obliges it to keep stays until "
        "then.</p>"
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
        + (f"<h2>Attached files</h2><ul>{files}</ul>" if files else "")
        + f"<h2>Kept though you ask for erasure</h2><ul>{periods}</ul>"
        + f"<h2>Elsewhere</h2><p>Copies that this file does not hold:</p><ul>{elsewhere}</ul>"
        + "".join(parts)
        + "</html>"
    ).encode("utf-8", "backslashreplace")
