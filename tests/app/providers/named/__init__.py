"""Tests of app.providers.named."""
