"""Signature schemes and other behaviour of providers that need code. Each provider has one module;
see `app.providers.kit`."""
