"""How providers sign, name, date and price their events: profile files and their engine."""

__all__ = (
    "check_signatures",
    "configured",
    "connecting",
    "dates",
    "doctor",
    "examples",
    "fetched",
    "fields",
    "fingerprints",
    "identifiers",
    "kit",
    "paths",
    "phones",
    "profile",
    "provider_client",
    "request",
    "schemes",
    "sections",
    "signed_post",
    "source",
)
