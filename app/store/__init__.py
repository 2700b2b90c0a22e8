"""The only SQL: tables, migrations, the journal, and one module for each purpose.

    sql/         how statements are written, what their rows mean, how they reach either database
    database/    one database as a whole: opened safely, written by one, with room on its disk
    arrivals/    what comes in: the journal, a batch's way into the tables, and what was refused
    folding/     what folds read and write: histories, due marks, ledgers, and what is to be told
    finance/     books, statements, takings, runs, breaks and closed periods
    evidence/    the log in which everything is sealed, and what proofs are made of
    keeping/     copies that are made and put back, and rows that are let go
    people/      who may come in, who did what, and what was stated

`store.py` opens a database and lends connections; it is where to begin.
"""
