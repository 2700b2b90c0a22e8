"""An attacker's suite: constructions played over HTTP against the whole application.

Each test file is a family: a table of `Construction`s, every one with its sentence, which `Play`
runs against orders that nobody has paid (none becomes fulfillable, and the genuine payment still
makes it so afterwards) and against paid ones (all stay fulfillable), by the API's word and by what
the feed has published. Beside each family stands its control: with the protection taken away the
same constructions break orders, so that none passes because nothing of it arrived.
"""
