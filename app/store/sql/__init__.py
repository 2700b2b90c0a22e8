"""How statements are written, what their rows mean, how they reach either database."""
