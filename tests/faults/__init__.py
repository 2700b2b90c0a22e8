"""Faults planted in the running service: does it keep every delivery that it acknowledged?

    service.py   the real `serve` as a child, by itself or under strace
    load.py      sends deliveries and keeps every acknowledgement
    check.py     opens what is left and looks for each of them
    plants.py    the mistakes that a control plants, so that its test must see them
    trace.py     what strace recorded, call by call
    disk.py      what a disk may hold after a cut
    explorer.py  every cut of a recording, each looked at
    injecting.py calls that are made to fail
    mounts.py    file systems of a test's own, where there is root
    block.py     a disk that fails and loses its cache, where there is root

A word is used in one meaning: *lost* is acknowledged and not in the store afterwards.
"""
