"""Client for a shop's program: it receives outcomes, ships each order once, and starts payments.

Install the folder as `tallyhook_client`, or copy the whole folder under any name. The client needs
only the standard library and imports no other package of this repository. See README.md in the same
folder.
"""

__all__ = ()
