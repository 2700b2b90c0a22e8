"""The whole product in one process, driven by one seed: see `world.py`."""
