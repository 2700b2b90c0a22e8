"""An attacker's suite: constructions played over HTTP against the whole application.

Each test file is a family: a table from a sentence to what the attacker does. `Play` runs it
against unpaid orders, of which none becomes fulfillable and each still does by the genuine payment,
and against paid ones, which all stay fulfillable, in the API and in the feed. Each family has a
control: without the protection the same constructions break orders, so they do arrive.
"""
