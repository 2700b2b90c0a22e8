"""config.example.env lists every setting with its default, and loads."""

import re
from base64 import b64encode
from pathlib import Path

import pytest
from pydantic import Field
from pydantic.fields import FieldInfo

from app.config.config_file import ENVIRONMENT, PREFIX
from app.config.example import example_text, setting_blocks
from app.config.load import OF_COMMANDS, declared, known_variables, load_settings
from app.config.settings import Section, Settings
from app.core.errors import ConfigurationError
from tests.evidence.witness import TestWitness

EXAMPLE = Path(__file__).parents[2] / "config.example.env"
LINE = re.compile(r"(#?)(TALLYHOOK_\w+)=(.*)")
SECRET = "whsec_q8Zr5kWn2Lx7Tj4Vb9Hd3Fg6Ms1P"


def lines() -> dict[str, tuple[bool, str]]:
    """Return whether each setting of the example is commented out, and its value."""
    matches = [LINE.fullmatch(line) for line in EXAMPLE.read_text().splitlines()]
    return {match[2]: (match[1] == "#", match[3]) for match in matches if match}


def test_it_lists_every_setting_and_no_other() -> None:
    known = {name.replace("<NAME>", "SHOP") for name in known_variables()}
    wanted = known - {PREFIX + name for name in OF_COMMANDS}
    assert set(lines()) == wanted, "run `make write`"


def test_it_is_generated_from_the_declarations() -> None:
    assert EXAMPLE.read_text() == example_text(), "run `make write`"


class NewSettings(Section):
    """New settings."""

    port: int = Field(default=80, ge=1, le=9000)
    """Port of the service.

    It must be free."""

    hosts: tuple[str, ...] = ("one", "two")
    """Hosts."""

    folder: str | None = Field(None, examples=["/srv/files"])
    """Folder."""

    unexplained: bool = False


def test_a_new_setting_of_any_kind_needs_only_its_declaration() -> None:
    blocks = setting_blocks(NewSettings, "N__")
    assert [next(blocks) for _ in range(3)] == [
        "# Port of the service.\n# Range: 1 to 9,000.\n# It must be free.\nN__PORT=80",
        "# Hosts.\nN__HOSTS=one,two",
        "# Folder.\n#N__FOLDER=/srv/files",
    ]
    with pytest.raises(ValueError, match="unexplained is not explained"):
        next(blocks)


@pytest.mark.parametrize(("name", "info"), list(declared()))
def test_each_setting_stands_with_its_default_or_with_an_example(
    name: str, info: FieldInfo
) -> None:
    commented, value = lines()[name]
    if info.examples:
        assert (commented, value) == (name != ENVIRONMENT, str(info.examples[0]))
    else:
        default = info.get_default()
        assert not commented
        assert value == (
            "" if default is None
            else ",".join(default) if isinstance(default, tuple)
            else str(default).lower() if isinstance(default, bool)
            else str(default)
        )  # fmt: skip


def test_the_bounds_of_each_setting_stand_above_it_also_in_sections() -> None:
    text = EXAMPLE.read_text().splitlines()
    for name, info in declared():
        end = max((number for number, line in enumerate(text) if f"{name}=" in line), default=0)
        begin = max((number for number, line in enumerate(text[:end]) if not line), default=0)
        above = " ".join(text[begin:end])
        for bound in info.metadata:
            for limit in (getattr(bound, "ge", None), getattr(bound, "le", None)):
                assert limit is None or re.search(rf"\b{limit:,}\b", above), (name, limit)


def test_each_setting_has_a_reason_above_it() -> None:
    text = EXAMPLE.read_text().splitlines()
    for number, line in enumerate(text):
        if LINE.fullmatch(line):
            assert text[number - 1].startswith("#"), line


def test_it_loads_as_it_stands_and_gives_the_defaults() -> None:
    settings = load_settings({"TALLYHOOK_CONFIG": str(EXAMPLE)}, serving=True)
    assert settings.model_dump() == {**Settings().model_dump(), "environment": "sandbox"}


def test_a_copy_with_its_blanks_filled_in_loads(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^#(?=TALLYHOOK_)(?!\w+_FILE=)", "", EXAMPLE.read_text())
    text = text.replace('["<newest>", "<older>"]', f'["{SECRET}", "{SECRET[::-1]}"]')
    text = text.replace("<address>", "Kq7wZt2mXc9LbR4vN8sD")
    text = re.sub(
        "<([a-z ]*(?:token|secret|password))>",
        lambda m: "whsec_" + b64encode(f"{m[1]} of 24 bytes or more".encode()).decode(),
        text,
    )
    one, other = (TestWitness(name, lambda: 0).key for name in ("one.example", "other.example"))
    text = text.replace("<witness key>", one).replace("<other key>", other)
    path = tmp_path / "settings.env"
    path.write_text(text)
    settings = load_settings({"TALLYHOOK_CONFIG": str(path)}, serving=True)
    assert settings.reports.mail_to == ("finance@shop.example", "cfo@shop.example")
    assert len(settings.sources["shop"].secrets) == 2
    assert settings.checkout.source == "shop"


def test_blanks_left_in_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.env"
    path.write_text(EXAMPLE.read_text().replace("#TALLYHOOK_SOURCES", "TALLYHOOK_SOURCES"))
    with pytest.raises(ConfigurationError, match="SECRETS"):
        load_settings({"TALLYHOOK_CONFIG": str(path)}, serving=True)


def test_words_of_commands_are_no_mistakes() -> None:
    words = ("OPERATOR", "OPERATOR_TOKEN", "PLAY_TOKEN")
    given = {"TALLYHOOK_ENVIRONMENT": "sandbox", **{f"TALLYHOOK_{word}": "t" for word in words}}
    assert load_settings(given).environment == "sandbox"
