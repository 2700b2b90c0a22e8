"""Pages for people: templates, and charts as inline SVG."""
