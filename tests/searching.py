"""Set how many examples hypothesis tries: in the gate a third of the long form's."""

import os

PART = 1 if os.environ.get("TALLYHOOK_LONG") else 3


def examples(whole: int) -> int:
    """Return this number in the long form, a third of it in the gate."""
    return whole // PART
