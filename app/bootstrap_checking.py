"""Wiring: what a deep check of the store reads and folds with, in this process and in others."""

from __future__ import annotations

from functools import partial

from app.bootstrap_context import store_settings
from app.bootstrap_keys import known_phone_key
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.orders.rebuild import Helpers
from app.privacy.check import Again
from app.providers.source import Source


def check_again(settings: Settings, *, jobs: int) -> Again:
    """How to read and fold again in so many processes; with 1, in this one. Raises
    ConfigurationError with the mistakes of the sources."""
    _sources(settings)
    helpers = None if jobs == 1 else Helpers(jobs=jobs, store=store_settings(settings))
    return Again(sources=partial(_sources, settings), helpers=helpers)


def _sources(settings: Settings) -> dict[str, Source]:
    return compile_sources(settings, phone_digests=known_phone_key(settings))
