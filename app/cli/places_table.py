"""Places of text in Markdown: `python -m app.cli.places_table` prints privacy/README.md's table."""

from __future__ import annotations

from app.privacy.places import places_table

if __name__ == "__main__":
    print(places_table(), end="")
