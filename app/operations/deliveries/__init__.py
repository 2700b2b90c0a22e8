"""What comes to the door: taken, judged, shown, and judged again."""
