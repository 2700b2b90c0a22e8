"""How providers sign, name, date and price their events: profile files and their engine."""

__all__ = (
    "check_signatures",
    "dates",
    "doctor",
    "fetched",
    "fields",
    "fingerprints",
    "named.contract",
    "paths",
    "phones",
    "probe",
    "profile",
    "provider_client",
    "questions",
    "read_profiles",
    "request",
    "schemes",
    "sections",
    "source",
    "unverified",
)
