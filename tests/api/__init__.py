"""Tests of the HTTP endpoints over real sockets."""
