"""Table of what profiles say of connecting: `python -m app.cli.setup_table` prints that of
app/providers/README.md."""

from __future__ import annotations

from app.providers.connecting import setup_table

if __name__ == "__main__":
    print(setup_table(), end="")
