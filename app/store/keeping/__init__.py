"""Copies that are made and put back, and rows that are let go."""
