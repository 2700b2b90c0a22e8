"""How providers sign, name, date and price their events: profile files and their engine."""
