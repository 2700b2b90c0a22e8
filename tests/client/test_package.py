"""The client's folder works by itself: installed, or copied under any name."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from tests.client.world import SECRET, entry, notification
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "app" / "client"
NOW = 1_795_000_000
SHOP = """
import sqlite3
import app
from importlib.resources import files
from NAME.asking import HttpSender
from NAME.outcomes import verify_notification
from NAME.payments import start_payment
from NAME.shop_store import SqliteKeeper

assert app.OWNER == "the shop"
assert files("NAME").joinpath("py.typed").is_file()
keeper = SqliteKeeper(sqlite3.connect(":memory:"), lambda shop, news, ship: print(news.order, ship))
keeper.take(verify_notification(*GIVEN))
"""


def copied(target: Path) -> Path:
    """Copy what the repository has of the folder."""
    kept_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    return Path(shutil.copytree(FOLDER, target, ignore=kept_out))


@pytest.mark.parametrize("name", ["tallyhook_client", "app.payments", "tallies"])
def test_it_runs_in_an_empty_environment_beside_a_package_of_the_name_app(
    tmp_path: Path, name: str
) -> None:
    """Installed by pip, copied into the shop's own package, and copied beside it."""
    shop, environment = tmp_path / "shop", tmp_path / "environment"
    (shop / "app").mkdir(parents=True)
    (shop / "app" / "__init__.py").write_text("OWNER = 'the shop'\n")
    venv.create(environment)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    if name == "tallyhook_client":
        pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        offline = ("--no-index", "--no-deps", "--no-build-isolation", "--prefix", environment)
        source = copied(tmp_path / "source")
        subprocess.run([*pip, *offline, source], env=clean, timeout=PATIENCE_S, check=True)
    else:
        copied(shop / name.replace(".", "/"))
    given = (SECRET, *notification(entry(7, "A-1", fulfillable=True), now=NOW))
    call = SHOP.replace("NAME", name).replace("*GIVEN", f"*{given!r}, now={NOW}")
    (shop / "main.py").write_text(call)
    done = subprocess.run(
        [environment / "bin" / "python", "main.py"],
        cwd=shop,
        env=clean,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr) == ("A-1 True\n", "")


def test_it_has_the_version_of_the_project() -> None:
    one, other = (tomllib.loads((at / "pyproject.toml").read_text()) for at in (ROOT, FOLDER))
    assert one["project"]["version"] == other["project"]["version"]
