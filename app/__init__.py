"""The program around the reconciliation engine: network, database, files, processes and user
interfaces."""
