"""Tests of providers that need code of their own."""
