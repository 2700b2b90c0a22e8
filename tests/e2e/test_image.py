"""The image of Tallyhook, built and run without a container engine: each step of the Containerfile
in a root of its own, a copy-on-write view of this machine's that stands for the base image."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.cli.golive import FOLDER
from tests.e2e.processes import serving
from tests.ports import free_port

ROOT = FOLDER.parents[1]
CONTAINERFILE = FOLDER / "compose" / "Containerfile"
BUILD_S = 900
"""Seconds for all of it: every package is fetched from an index."""

LEFT_OUT = {"EXPOSE", "VOLUME", "STOPSIGNAL", "ENTRYPOINT"}
"""Instructions that say something to an engine and do nothing in the image."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """One stage of the image: its steps in shell, and what it says of how it is run."""

    name: str
    steps: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    folder: str = "/"
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def instructions() -> Iterator[tuple[str, str]]:
    """Yield each instruction with its words; lines that go on are joined."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word, rest.strip()


def stages() -> list[Stage]:
    """Read the Containerfile. Fails at an instruction that is not understood here."""
    found: list[Stage] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append(Stage(name=rest.partition(" AS ")[2]))
            continue
        stage = found[-1]
        if word == "ENV":
            stage.environment |= dict(each.split("=", 1) for each in shlex.split(rest))
        elif word == "RUN":
            stage.steps.append(f"inside {stage.name or 'image'} {shlex.quote(rest)}")
        elif word == "COPY":
            stage.steps.append(_copy(stage, shlex.split(rest)))
        elif word == "USER":
            stage.user = rest
        elif word == "WORKDIR":
            stage.folder = rest
        elif word == "CMD":
            stage.command = json.loads(rest)
        elif word == "HEALTHCHECK":
            stage.health = json.loads(rest.partition(" CMD ")[2])
        else:
            assert word in LEFT_OUT, word
    return found


def _copy(stage: Stage, words: list[str]) -> str:
    """Copy from the repository or from another stage; a folder's contents go into the folder."""
    there = ROOT
    if words[0].startswith("--from="):
        there = Path("$W") / words.pop(0).removeprefix("--from=")
    *sources, target = words
    into = f'"$W/{stage.name or "image"}{target}"'
    lines = []
    for source in sources:
        whole = f'"{there}/{source.lstrip("/")}"'
        if target.endswith("/") or not (there / source).is_dir():
            made = into if target.endswith("/") else f"$(dirname {into})"
            lines.append(f"mkdir -p {made} && cp -a {whole} {into}")
        else:
            lines.append(f"mkdir -p {into} && cp -a {whole}/. {into}")
    return " && ".join(lines)


def _environment(stage: Stage) -> str:
    """Words for `env`: those of the stage, and the base image's path in front of which it goes."""
    path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    given = {"PATH": path} | {
        name: value.replace("$PATH", path) for name, value in stage.environment.items()
    }
    return " ".join(shlex.quote(f"{name}={value}") for name, value in given.items())


SCRIPT = r"""
set -eu
mount -t tmpfs tmpfs "$W"
root() {  # a root of its own for a stage, with this machine's Python as that of the base image
    mkdir -p "$W/$1" "$W/.$1/upper" "$W/.$1/work"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$W/.$1/upper,workdir=$W/.$1/work" "$W/$1"
    mount --rbind /dev "$W/$1/dev"
    mount -t proc proc "$W/$1/proc"
    chmod o+x "$W/$1/root"
    rm -f "$W/$1/usr/local/bin/python"
    printf '#!/bin/sh\nexec %s "$@"\n' "$PYTHON" > "$W/$1/usr/local/bin/python"
    chmod +x "$W/$1/usr/local/bin/python"
    test ! -e "$W/$1/opt/tallyhook" && test ! -e "$W/$1/src" && test ! -e "$W/$1/var/lib/tallyhook"
}
inside() { chroot "$W/$1" env -i HOME=/root $PIP $(cat "$W/.$1/environment") sh -euc "$2" >&2; }
"""

RUN = r"""
I="$W/image"
mkdir -p "$I/run/secrets"
cat > "$I/run/secrets/tallyhook.env" <<'END'
TALLYHOOK_ENVIRONMENT=sandbox
TALLYHOOK_SOURCES__SHOP__SECRETS=whsec_dGFsbHlob29rLXNhbmRib3gtbm90LWEtc2VjcmV0IQ==
END
mount --bind "$I/var/lib/tallyhook" "$I/var/lib/tallyhook"
mount -t tmpfs tmpfs "$I/tmp"
mount -o remount,bind,ro "$I"
ip link set lo up
as() { exec chroot "$I" setpriv --reuid "${USER%:*}" --regid "${USER#*:}" --clear-groups \
    env -i -C "$FOLDER" $(cat "$W/.image/environment") "$@"; }
say() { echo "$1 $( (as sh -c "$2" >&2) && echo yes || echo no)"; }
say writes_itself 'touch /opt/tallyhook/x'
say has_pip 'python -c "import pip"'
say finds_its_version 'tallyhook --version'
as "$@" 2>"$W/log" & SERVICE=$!
N=0
until (as sh -c "$HEALTH") 2>/dev/null; do
    N=$((N + 1)); test $N -lt 300 || { cat "$W/log" >&2; exit 9; }; sleep 0.2
done
echo healthy yes
say takes_a_delivery 'tallyhook trigger checkout payment.succeeded --order ORD-1'
kill -TERM $SERVICE
wait $SERVICE && echo ended 0 || echo ended $?
say healthy_afterwards "$HEALTH"
"""


def script(built: list[Stage]) -> str:
    """Return all stages as one script, for a mount namespace of its own."""
    lines = [SCRIPT]
    for stage in built:
        name = stage.name or "image"
        lines += [
            f"root {name}",
            f"cat > $W/.{name}/environment <<'END'\n{_environment(stage)}\nEND",
            *stage.steps,
        ]
    image = built[-1]
    return "\n".join(
        [
            *lines,
            f"export USER={image.user} FOLDER={image.folder}",
            f"export HEALTH={shlex.quote(shlex.join(image.health))}",
            # On a network of its own, as a container is: its ports are nobody else's.
            f"exec unshare --net sh -euc {shlex.quote(RUN)} sh {shlex.join(image.command)}",
        ]
    )


@pytest.mark.soak
def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    """Every step works; the image runs as the user without a name, on a root that is read only, is
    healthy while it serves, takes a delivery, ends when it is told to, and is not healthy then."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("only root may make a root of its own")
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    words = " ".join(shlex.quote(f"{name}={value}") for name, value in pip.items())
    assert " " not in words.replace(" PIP_", "")
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script(stages())],
        env={
            "PATH": os.environ["PATH"],
            "W": str(tmp_path),
            "PIP": words,
            "PYTHON": str(Path(getattr(sys, "_base_executable", sys.executable)).resolve()),
        },
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if "mount: " in done.stderr:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip().splitlines()[-1]}")
    said = dict(line.split(" ") for line in done.stdout.splitlines())
    assert said == {
        "writes_itself": "no",
        "has_pip": "no",
        "finds_its_version": "yes",
        "healthy": "yes",
        "takes_a_delivery": "yes",
        "ended": "0",
        "healthy_afterwards": "no",
    }, done.stderr


def test_each_instruction_is_known() -> None:
    """So that the test that builds it leaves none out."""
    build, image = stages()
    assert len(build.steps) == 7
    assert len(image.steps) == 2
    assert image.user == "10001:10001"


def test_the_health_check_tells_a_service_from_none(tmp_path: Path) -> None:
    """As it stands in the Containerfile, but for the port."""

    def healthy(port: int) -> bool:
        command, *words = stages()[-1].health
        assert command == "python"
        words = [word.replace(":8080/", f":{port}/") for word in words]
        return subprocess.run([sys.executable, *words], capture_output=True).returncode == 0

    with serving(tmp_path) as service:
        assert healthy(service.port)
    assert not healthy(free_port())
