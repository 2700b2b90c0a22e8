"""Schemes that need code: one module each, whose `SCHEME` says what it is (`app.providers.kit`)."""
