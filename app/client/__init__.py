"""What a shop's program does: hear of outcomes, ship exactly once, start payments.

To be installed as `tallyhook_client`, or copied whole under any name: it needs the standard library
alone, and no other room. See README.md beside this.
"""

__all__ = ()
