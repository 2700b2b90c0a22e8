"""Everything of Tallyhook that touches the world."""
