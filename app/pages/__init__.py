"""Pages made from templates: reports, evidence, checklists. One style, no scripts, prints well."""
