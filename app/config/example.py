"""Generate config.example.env from the declarations and docstrings of all settings."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import wrap
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.config_file import PREFIX
from app.config.settings import SECTIONS, Settings, SourceSettings

HEAD: Final = """\
# Settings of Tallyhook, with explanations and defaults. `make write` generates this file.
#
# Set environment variables, or copy this file and name the copy in TALLYHOOK_CONFIG. Environment
# variables override the file. A line that begins with "#TALLYHOOK_" shows an example; remove the
# "#" to use it. At start-up all mistakes are reported at once, and no message contains a value.
# A file with secrets must not be readable by everyone: chmod 640."""

GROUPS: Final = {
    "payment_window_s": "Deadlines. If you change one of these six settings, the next start folds "
    "every order again in the background. The outcome feed reports each order whose outcome "
    "changes. All processes on one database need the same values.",
    "max_body_bytes": "Receiving",
    "inbox_queue": "Inbox, alarms and rejections",
    "retention_days": "Retention. Ledgers, records, the audit trail and the sealed log are always "
    "kept; they contain no personal data.",
    "retention_minimum_days": "Erasure. One of the next four settings may not allow an erasure to "
    "delete some data yet. These data are restricted: they are hidden from searches and from pages "
    "with personal data, and are erased automatically when the period ends.",
    "closing_margin_days": "Finance",
    "longpoll_max_s": "API and worker",
    "log_format": "Log",
}


def example_text() -> str:
    """Return the text of config.example.env. Raise ValueError if a setting has no explanation."""
    return "\n\n".join([HEAD, *setting_blocks(Settings, PREFIX)]) + "\n"


def setting_blocks(group: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield one block of text for each setting and heading of a group.

    prefix  beginning of the variables' names

    Raises ValueError for a setting without an explanation.
    """
    explained = dict(_docstrings(group))
    for name, field in group.model_fields.items():
        if name in GROUPS:
            yield _heading(GROUPS[name])
        if name == "sources":
            yield _heading(SourceSettings.__doc__)
            yield from setting_blocks(SourceSettings, f"{prefix}SOURCES__SHOP__")
        elif name in SECTIONS:
            yield _heading(SECTIONS[name].__doc__)
            yield from setting_blocks(SECTIONS[name], f"{prefix}{name}__")
        elif name not in explained:
            raise ValueError(f"{name} is not explained; write a docstring below its declaration")
        else:
            summary, *reasons = explained[name].split("\n\n")
            lines = "\n".join([summary, *_range(field), *reasons]).splitlines()
            # A source with any setting exists, so the example must set none.
            unset = bool(field.examples) or group is SourceSettings
            sign = "#" if unset and name != "environment" else ""
            value = field.examples[0] if field.examples else field.default
            comment = "".join(f"# {line}\n" for line in lines)
            yield f"{comment}{sign}{prefix.upper()}{name.upper()}={_written(value)}"


def _docstrings(group: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield each setting's name with the docstring below its declaration. Pydantic could collect
    the docstrings, too, but would slow every start."""
    (tree,) = ast.parse(inspect.getsource(group)).body
    assert isinstance(tree, ast.ClassDef)
    for pair in pairwise(tree.body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)


def _heading(text: str | None) -> str:
    words = " ".join((text or "").split())
    return "\n".join(f"# {line}" for line in wrap(f"--- {words} ---", 98))


def _range(field: FieldInfo) -> Iterator[str]:
    bounds = [
        getattr(part, end) for part in field.metadata for end in ("ge", "le") if hasattr(part, end)
    ]
    if bounds:
        yield "Range: {:,} to {:,}.".format(*bounds)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
