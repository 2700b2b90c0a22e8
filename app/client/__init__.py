"""Client for a shop's program, which needs only the standard library.

Install the folder as `tallyhook_client`, or copy it under any name.
"""

__all__ = ()
