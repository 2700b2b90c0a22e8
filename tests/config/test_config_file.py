"""Settings are added to a file, and what stands in it is never changed."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import config_file
from app.config.config_file import plan_settings, write_plan
from app.config.load import load_settings
from app.core.errors import ConfigurationError
from tests.searching import examples

ONE = "TALLYHOOK_SOURCES__SHOP__SECRETS"


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    write_plan(path, plan_settings(path, {ONE: "a secret of its own"}))
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """Comments, order, spelling, a missing line end, and the mode without the world's bits."""
    path = tmp_path / "t.env"
    path.write_text("# mine\nTALLYHOOK_PORT = 8080 # here\nTALLYHOOK_A='x'")
    path.chmod(0o644)
    plan = plan_settings(path, {"TALLYHOOK_PORT": "8080", "TALLYHOOK_A": "y", "TALLYHOOK_B": "z"})
    assert (plan.same, plan.differing) == (("TALLYHOOK_PORT",), ("TALLYHOOK_A",))
    assert plan.added == ("TALLYHOOK_B",)
    write_plan(path, plan)
    before = "# mine\nTALLYHOOK_PORT = 8080 # here\nTALLYHOOK_A='x'"
    assert path.read_text() == f"{before}\nTALLYHOOK_B=z\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_name_without_a_value_gets_one_where_it_stands(tmp_path: Path) -> None:
    """A copy of the example has many of them."""
    path = tmp_path / "t.env"
    path.write_text("# where we are\nTALLYHOOK_PUBLIC_URL=\n\nTALLYHOOK_PORT=8080\n")
    plan = plan_settings(path, {"TALLYHOOK_PUBLIC_URL": "https://pay.shop.example"})
    assert (plan.added, plan.differing) == (("TALLYHOOK_PUBLIC_URL",), ())
    write_plan(path, plan)
    said = "TALLYHOOK_PUBLIC_URL=https://pay.shop.example\n"
    assert path.read_text() == f"# where we are\n{said}\nTALLYHOOK_PORT=8080\n"


def test_a_name_that_stands_twice_is_refused_as_the_service_would(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    path.write_text("TALLYHOOK_PORT=1\n# x\ntallyhook_port=2\n")
    with pytest.raises(ConfigurationError, match="was already set in line 1; keep one"):
        plan_settings(path, {"A": "1"})


def test_owner_and_group_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    path.write_text("A=1\n")
    owner, group = (1234, 10001) if os.geteuid() == 0 else (-1, os.getgid())
    os.chown(path, owner, group)
    path.chmod(0o640)
    before = path.stat()
    write_plan(path, plan_settings(path, {"B": "2"}))
    after = path.stat()
    assert path.read_text() == "A=1\nB=2\n"
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, after.st_mode & 0o777) == (
        before.st_uid, before.st_gid, 0o640,
    )  # fmt: skip


def test_who_may_not_give_it_back_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the service could no longer read its settings."""
    path = tmp_path / "t.env"
    path.write_text("A=1\n")
    group = path.stat().st_gid

    def refused(descriptor: int, owner: int, of: int) -> None:
        assert (owner, of) == (path.stat().st_uid, group)
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "fchown", refused)
    with pytest.raises(ConfigurationError, match=f"group {group}.*run it as the owner or as root"):
        write_plan(path, plan_settings(path, {"B": "2"}))
    assert path.read_text() == "A=1\n"
    assert list(tmp_path.iterdir()) == [path]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), min_size=1))
@settings(max_examples=examples(300))
def test_every_value_comes_back(value: str) -> None:
    written = config_file._written(value)
    lines = config_file._lines(Path("f"), f"A={written}\nB=1\n")
    assert [(name, given) for name, given, _ in lines] == [("A", value), ("B", "1")]


def test_the_service_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    secret = "it's a \\ secret, with $signs # and 'quotes'"
    wanted = {"TALLYHOOK_ENVIRONMENT": "sandbox", ONE: f'["{secret}"]'.replace("\\", "\\\\")}
    write_plan(path, plan_settings(path, wanted))
    read = load_settings({"TALLYHOOK_CONFIG": str(path)}).sources["shop"]
    assert [each.get_secret_value() for each in read.secrets] == [secret]


def test_a_link_is_followed_and_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.env", tmp_path / "t.env"
    real.write_text("A=1\n")
    link.symlink_to(real)
    write_plan(link, plan_settings(link, {"B": "2"}))
    assert link.is_symlink()
    assert real.read_text() == "A=1\nB=2\n"


def test_nobody_elses_change_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    plan = plan_settings(path, {"A": "1"})
    path.write_text("B=2\n")
    with pytest.raises(ConfigurationError, match="was changed by another program"):
        write_plan(path, plan)
    assert path.read_text() == "B=2\n"
    beside = tmp_path / ".t.env.new"
    beside.touch()
    with pytest.raises(ConfigurationError, match="another command"):
        write_plan(path, plan_settings(path, {"A": "1"}))
    assert beside.exists()


def test_a_crash_before_the_last_step_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.env"
    path.write_text("A=1\n")

    def full(*paths: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        write_plan(path, plan_settings(path, {"B": "2"}))
    assert path.read_text() == "A=1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_settings_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.env"
    path.write_text("A=1\nnonsense\n")
    with pytest.raises(ConfigurationError, match=r"t\.env:2: is not NAME=value"):
        plan_settings(path, {})
    path.write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        plan_settings(path, {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        plan_settings(tmp_path, {})
