"""Tables from files, good and bad ones."""
