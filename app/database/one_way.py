"""Why migrations only go forward: what a later version has kept has no place in an earlier one."""

from __future__ import annotations

from app.core.errors import ConfigurationError


def downgrade() -> None:
    """What every migration after the first does when it is asked to go back.

    Raises ConfigurationError: nothing was changed, and a backup is the way.
    """
    raise ConfigurationError(
        [
            "TALLYHOOK_DATABASE_URL: a database is not taken back to an earlier version; "
            "`tallyhook restore` a backup of before"
        ]
    )
