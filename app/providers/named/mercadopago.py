"""Mercado Pago: the id of a notification is signed in lower case, or sometimes as it was sent."""

from typing import Final

from app.providers import kit

PARTICULARS: Final = kit.Particulars(other_form=lambda signed: signed.replace("|lower}", "}"))
