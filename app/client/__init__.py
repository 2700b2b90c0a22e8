"""Client for a shop's program: it receives outcomes, ships each order once, and starts payments.

Install the folder as `tallyhook_client`, or copy it under any name. It needs only the standard
library.
"""

__all__ = ()
