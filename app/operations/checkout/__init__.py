"""Payments that the shop starts: asked for once, and asked about until answered."""
