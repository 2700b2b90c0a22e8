"""The program around the engine: network, database, files, processes and user interfaces."""
