"""Two database nodes and a witness, as `app/deploy/ha` lays them out, and what a takeover costs."""
