"""Help texts: what is listed, and the refusal of unknown words."""

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer

from app.cli import main
from app.cli.main import SECTIONS
from app.finance.files.presets import shipped_presets
from tests.rows import for_each
from tests.searching import every

ROOT: Any = typer.main.get_command(main.application)


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        yield from _commands(command, (*path, name)) if hasattr(command, "commands") else ()


COMMANDS = dict(_commands(ROOT))


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main.run(words)
    written = capsys.readouterr()
    return code, written.out + written.err


def test_every_command_stands_in_one_section_of_the_help() -> None:
    """A command that is added and put nowhere is noticed."""
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(ROOT.commands)


def test_every_command_and_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of each has a sentence for it and for all that it takes, and cuts none off."""
    for path, command in COMMANDS.items():
        ROOT.main(args=[*path, "--help"], prog_name="tallyhook", standalone_mode=False)
        usage, *lines = capsys.readouterr().out.splitlines()
        assert usage.startswith(f"Usage: tallyhook {' '.join(path)} ")
        assert "[[" not in usage
        assert [line for line in lines if line.endswith("...")] == []
        assert command.help, path
        assert all(parameter.help for parameter in command.params), path


@for_each("name", sorted(ROOT.commands)[:: every(3)])
def test_a_command_is_prepared_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the first word names, and nothing else: its help is the same as among all others."""
    alone: Any = typer.main.get_command(main.application_for([name, "--help"]))
    assert list(alone.commands) == [name]
    assert _said(capsys, name, "--help")[0] == 0
    for path in [(), *(path[1:] for path in COMMANDS if path[0] == name)]:
        alone.main([name, *path, "--help"], prog_name="tallyhook", standalone_mode=False)
        found = capsys.readouterr().out
        ROOT.main([name, *path, "--help"], prog_name="tallyhook", standalone_mode=False)
        assert found == capsys.readouterr().out


@for_each("words", [(), ("--help",), ("nobody",), ("--token-file", "db", "orders")])
def test_where_the_first_word_names_none_all_are_prepared(words: tuple[str, ...]) -> None:
    """So that they are listed, the nearest is named, or the one behind an option is found."""
    assert main.application_for(words) is main.application


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the name and the version that is installed, and nothing else happens."""
    code, said = _said(capsys, "--version")
    assert (code, said) == (0, f"tallyhook {version('tallyhook')}\n")
    assert re.fullmatch(r"tallyhook \d+\.\d+\.\d+\n", said)


def test_every_example_is_a_command_with_options_that_it_has() -> None:
    """An example is on one line, so that it can be copied, and names only known commands."""
    examples = [command.epilog for command in COMMANDS.values() if command.epilog]
    assert len(examples) > 10
    for example in examples:
        said, _, words = example.partition(" tallyhook ")
        assert said == "Example:"
        assert len(example) <= 76, "wider than the help of a terminal with 80 columns"
        known = [*shlex.split(words.partition(" <")[0]), "--help"]
        assert ROOT.main(args=known, prog_name="tallyhook", standalone_mode=False) == 0
        assert set(re.findall(r"--preset (\w+)", example)) <= set(shipped_presets())


@for_each(
    ("words", "message"),
    [
        (("orders", "list", "--format", "xml"), "'xml' is not one of 'table', 'json'"),
        (("orders", "show", "O-1", "--format", "csv"), "'csv' is not one of 'table', 'json'"),
        (("log", "prove", "x", "--format", "table"), "'table' is not one of 'json', 'jsonl'"),
        (("tokens", "add", "shop", "--format", "csv"), "'csv' is not one of"),
        (("serve", "--port", "65536"), "less than or equal to 65535"),
        (("sandbox", "--unit", "nan"), "'--unit'"),
        (("sandbox", "--webhook-url", "shop"), "--webhook-url must be an http or https URL"),
        (
            ("sandbox", "--speed", "1", "--host", "256.0.0.1"),
            "add --play FILE, or leave --speed out",
        ),
        (
            ("sandbox", "--token", "t", "--host", "256.0.0.1"),
            "add --play FILE, or leave --token out",
        ),
        (("sandbox", "--truth", "nowhere/truth.json"), "there is no folder nowhere"),
        (("ordrs",), "Did you mean 'orders'"),
    ],
)
def test_a_word_that_does_not_fit_is_reported_with_those_that_do(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is done, without a word of the library's."""
    code, said = _said(capsys, *words)
    assert code == 2
    assert message in said
    assert "Value error" not in said


def test_a_shell_completes_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What bash asks for after two letters is answered with the commands that begin so."""
    monkeypatch.setattr("sys.argv", ["tallyhook"])
    asked = {
        "_TALLYHOOK_COMPLETE": "complete_bash",
        "COMP_WORDS": "tallyhook de",
        "COMP_CWORD": "1",
    }
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    main.run([])
    assert capsys.readouterr().out.split() == ["demo", "deliveries", "deploy"]
