"""Floods, slow clients and requests that are meant to be misread: on a real server."""
