"""Whether all is well: what is asked at the start, now and then, and by a supervisor."""
