"""What a shop's program does: hear of outcomes, ship exactly once, start payments.

A folder to import, or to copy whole: it needs the standard library alone, and no other room. See
README.md beside this.
"""

__all__ = ()
