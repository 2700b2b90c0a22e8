"""A sampling profiler inside the processes of a service: where their processor time goes.

A thread looks at all others every few milliseconds, and charges the processor time that each has
used since the last look to the function of the project that it is in. Code that gives up the
interpreter lock, as an event loop does, is seen more often than it runs.
"""

import atexit
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[2]
LOOK_S = 0.003
LINES = 8
WRITE_S = 0.5
FOLDER = "BENCH_SAMPLES"
PROJECT = f"{ROOT}/app/", f"{ROOT}/reconcile/"
_FRAME = re.compile(r"/app/(cli/|__main__)")
"""Code that only starts other code."""

STAGES = {
    "start": ("importlib",),
    "seal": ("/app/sealing/", "/app/evidence/", "/reconcile/transparency/"),
    "fold": ("/app/orders/", "/reconcile/"),
    "read": ("/app/receiving/", "/app/providers/"),
    "other": ("",),
}
"""Parts of the paths of each stage's code; the first stage that is on the stack counts."""


def planted(folder: Path) -> dict[str, str]:
    """Return the environment in which each process of Python samples itself, to `folder`."""
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.bench.sampler import start\nstart()\n"
    )
    return {"PYTHONPATH": str(folder), FOLDER: str(folder)}


def start() -> None:
    threading.Thread(target=_sample, args=(Path(os.environ[FOLDER]),), daemon=True).start()


def _sample(folder: Path) -> None:
    sys.setswitchinterval(0.0005)  # else it would mostly see functions that wait
    path, used, seen = folder / f"{os.getpid()}.json", dict[int, int](), Counter[str]()

    def write() -> None:
        path.with_suffix(".new").write_text(json.dumps(seen.copy()))
        path.with_suffix(".new").replace(path)

    atexit.register(write)
    written = time.monotonic()
    while True:
        time.sleep(LOOK_S)
        frames = sys._current_frames()
        for thread in threading.enumerate():
            frame, number = frames.get(thread.ident or 0), thread.native_id
            if frame is None or number is None or number == threading.get_native_id():
                continue
            try:
                now = int(Path(f"/proc/self/task/{number}/schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                continue
            seen[_name(frame)] += now - used.get(number, 0)
            used[number] = now
        if time.monotonic() - written > WRITE_S:
            write()
            written = time.monotonic()


def _name(frame: FrameType | None) -> str:
    """Return the stage of a stack, and its innermost function of the project, or of any."""
    codes = list[CodeType]()
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    paths = " ".join(code.co_filename for code in codes)
    stage = next(stage for stage, parts in STAGES.items() if any(part in paths for part in parts))
    project = (code for code in codes if code.co_filename.startswith(PROJECT))
    code = next((code for code in project if not _FRAME.search(code.co_filename)), codes[0])
    return f"{stage} {'/'.join(Path(code.co_filename).parts[-2:])} {code.co_qualname}"


def sampled(folder: Path, receiver: int = 0) -> Counter[tuple[str, str]]:
    """Return the processor time of each (stage, function); the receiver is a stage of its own."""
    found = Counter[tuple[str, str]]()
    for path in folder.glob("*.json"):
        for name, used in json.loads(path.read_text()).items():
            stage, _, function = name.partition(" ")
            found["receive" if path.stem == str(receiver) else stage, function] += used
    return found


def lines(found: Counter[tuple[str, str]], only: str = "") -> list[str]:
    """Return the functions that take most, of one stage or of all, with their shares."""
    seen = [(key, used) for key, used in found.most_common() if only in key[0]]
    whole = sum(used for _, used in seen)
    return [f"{' '.join(key)} {used / whole:.1%}" for key, used in seen[:LINES]]
