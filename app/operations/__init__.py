"""The use cases. Command line, API and worker call these and nothing lower.

    deliveries/  what comes to the door: taken, judged, shown, and judged again
    folding/     from what is stored to ledgers: folded as it comes due, rebuilt, and proved
    orders/      orders: what the shop says of them, what it is told, and how people find one
    checkout/    payments that the shop starts: asked for once, and asked about until answered
    finance/     books and statements: imported, matched with ledgers, reported, and months closed
    evidence/    what was sealed, and what is handed out as proof of it
    keeping/     the database as a thing to keep: backed up, checked, and freed of what may go
    watching/    whether all is well: what is asked at the start, now and then, and by a supervisor
    going_live/  before real money moves: the rehearsal, the endpoint's trial, the checklist
    people/      people and programs that may come in

`desk.py` is what they all work with; `rounds.py` how those work that run in the background.
"""
