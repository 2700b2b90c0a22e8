"""Schemes and particulars that need code, one module for each provider (see
`app.providers.kit`)."""
