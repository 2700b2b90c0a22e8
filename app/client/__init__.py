"""Client for a shop's program: receive outcomes, ship each order once, start payments.

Install the folder as `tallyhook_client`, or copy it whole under any name. It needs only the
standard library and imports no other package of this repository. See README.md beside this.
"""

__all__ = ()
