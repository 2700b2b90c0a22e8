"""Style and structure, as tests over the real tree."""
