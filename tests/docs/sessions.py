"""Reads console sessions out of a Markdown file, runs them, and compares what they print.

In a session a line that begins with `$ ` is a command, `> ` continues it, and the rest is output.
Ids, moments, digests and durations differ from run to run; both sides are compared without them.
A line that is only `…` stands for any number of lines.
"""

import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import PATIENCE_S

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_CHANGING = (
    (re.compile(r"\b(evt|dlv|rec|cs|pay|re|thk|key)_[0-9A-Za-z_-]*…?"), r"\1_…"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+Z"), "MOMENT"),
    (re.compile(r"sha256:[0-9a-f]*…?"), "sha256:…"),
    (re.compile(r"\bkey [0-9A-F]{16}\b"), "key …"),
    (re.compile(r"\btallyhook\.(sandbox|live)/[0-9a-f]{12}\b"), r"tallyhook.\1/…"),
    (re.compile(r"\bin \d+ s\b"), "in N s"),
    (re.compile(r"\b\d+ leaves\b"), "N leaves"),
    (re.compile(r"\bentries 1 to \d+ for\b"), "entries 1 to N for"),
    (re.compile(r"\b\d+ checkpoints?\b"), "N checkpoints"),
    (re.compile(r"\b\d+ revisions?\b"), "N revisions"),
    (re.compile(r"\b[\d,]+ bytes\b"), "N bytes"),
    (re.compile(r"\s+"), " "),
)


@dataclass
class Command:
    """A command and the lines it prints."""

    text: str
    output: list[str] = field(default_factory=list)


def sessions(path: Path) -> list[list[Command]]:
    """Parse each console block of the file into its commands."""
    return [_commands(block) for block in _BLOCK.findall(path.read_text())]


def _commands(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif (line == ">" or line.startswith("> ")) and not commands[-1].output:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].output.append(line)
    return commands


def plain(line: str) -> str:
    """Remove from a line what changes from run to run."""
    for pattern, replacement in _CHANGING:
        line = pattern.sub(replacement, line)
    return line.strip()


def differences(expected: list[str], printed: list[str]) -> list[str]:
    """Return missing and extra lines; empty if the output is as documented."""
    wanted = [plain(line) for line in expected if plain(line)]
    found = [plain(line) for line in printed if plain(line)]
    if "…" in wanted:
        cut = wanted.index("…")
        head, tail = wanted[:cut], wanted[cut + 1 :]
        found = found[: len(head)] + (found[-len(tail) :] if tail else [])
        wanted = head + tail
    return [f"- {line}" for line in wanted if line not in found] + [
        f"+ {line}" for line in found if line not in wanted
    ]


class Shell:
    """A bash that runs commands one after another, in a group that is ended as a whole."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, text: str) -> list[str]:
        """Return the lines that a command prints, on both streams."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\necho; echo '~done~'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "~done~\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended in: {text}")

    def close(self) -> None:
        """End the shell and what it started in the background."""
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.communicate(timeout=PATIENCE_S)
