"""One database as a whole: opened safely, written by one, with room on its disk."""
