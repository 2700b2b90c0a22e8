"""The only SQL: tables, migrations, the journal, and one module for each purpose."""
