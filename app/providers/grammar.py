"""The language of templates: literals, `{name:argument?|filter}`, and `[…]` groups that may vanish.

Leaves out: what a reference stands for. Signed content (template.py) and the composite locations
of events (fields.py) each give their own meaning to the same words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\{(?P<reference>[^{}]*)\}|(?P<open>\[)|(?P<close>\])|(?P<literal>[^{}\[\]]+)|(?P<stray>[{}])"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """`{name:argument?|filter|filter}`. `optional`: what is absent is empty."""

    name: str
    argument: str
    optional: bool
    filters: tuple[str, ...]

    @property
    def text(self) -> str:
        """Name and argument as the profile writes them: `json:data.id`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens that vanish together where a reference among them is absent."""

    tokens: tuple[str | Reference, ...]


Token = str | Reference | Group


def read_template(text: str) -> tuple[Token, ...]:
    """The tokens of a template. Raises ValueError with a sentence."""
    tokens: list[Token] = []
    group: list[str | Reference] | None = None
    for match in _TOKEN.finditer(text):
        if match["stray"]:
            raise ValueError("has a brace that is not part of a {reference}")
        if match["open"]:
            if group is not None:
                raise ValueError("has a group [ ] inside another")
            group = []
        elif match["close"]:
            if group is None:
                raise ValueError("has a ] without its [")
            tokens.append(Group(tuple(group)))
            group = None
        else:
            (tokens if group is None else group).append(_plain(match))
    if group is not None:
        raise ValueError("has a [ without its ]")
    return tuple(tokens)


def references(tokens: tuple[Token, ...]) -> list[Reference]:
    """Every reference, those in groups included, in order."""
    found: list[Reference] = []
    for token in tokens:
        inner = token.tokens if isinstance(token, Group) else (token,)
        found.extend(each for each in inner if isinstance(each, Reference))
    return found


def _plain(match: re.Match[str]) -> str | Reference:
    if match["literal"]:
        return match["literal"]
    words, *filters = match["reference"].split("|")
    name, _, argument = words.removesuffix("?").partition(":")
    return Reference(name, argument, words.endswith("?"), tuple(filters))
