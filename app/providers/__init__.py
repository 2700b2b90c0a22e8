"""Support for payment providers: profile files that describe the providers' webhooks, and the code
that uses them."""

__all__ = (
    "check_signatures",
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
    "profile",
    "provider_client",
    "questions",
    "request",
    "rules_together",
    "schemes",
    "sections",
    "signed_post",
    "source",
)
