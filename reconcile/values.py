"""`@frozen`: how every value of this package is declared.

It is `dataclass(frozen=True, slots=True, kw_only=True)` with an `__init__` that sets each slot
through its descriptor. The one that dataclass writes for frozen classes looks every name up again
in `object.__setattr__`, which makes values half as dear again to build, and a fold builds dozens.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(declared: type[Value]) -> type[Value]:
    """A frozen, slotted, keyword-only dataclass. Defaults must be plain values.

    Raises TypeError for a default factory or a `__post_init__`, which it would pass over.
    """
    made = dataclass(frozen=True, slots=True, kw_only=True)(declared)
    if hasattr(made, "__post_init__"):
        raise TypeError(f"{made.__name__}: a value has no __post_init__")
    made.__init__ = _initializer(made)  # type: ignore[method-assign]
    return made


def _initializer(made: type[Any]) -> Any:
    names: dict[str, Any] = {}
    parameters, settings = [], []
    for each in fields(made):
        if each.default_factory is not MISSING:
            raise TypeError(f"{made.__name__}.{each.name}: a value has no default factory")
        names[f"_set_{each.name}"] = made.__dict__[each.name].__set__
        names[f"_default_{each.name}"] = each.default
        default = "" if each.default is MISSING else f"=_default_{each.name}"
        parameters.append(f"{each.name}{default}")
        settings.append(f"    _set_{each.name}(self, {each.name})\n")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n{''.join(settings)}"
    exec(source, names)  # noqa: S102  # the text is made of field names only
    return names["__init__"]
