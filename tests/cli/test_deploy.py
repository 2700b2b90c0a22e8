"""Files of `deploy`: they fit the program's commands, options, settings, figures and alarms."""

import json
import os
import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.golive import FOLDER, SETS, files_of
from app.cli.main import run
from app.console.uploads import MAX_FORM_BYTES
from app.monitoring.watchdog import WATCHES
from tests.architecture.public_names import metrics, unknown_commands, variables
from tests.rows import for_each
from tests.waiting import PATIENCE_S

ROOT = FOLDER.parents[1]
COMPOSE = FOLDER / "compose"
NODES = FOLDER / "ha"
UNITS = files_of("systemd")


def assert_is_a_command(words: list[str]) -> None:
    """Check that the command exists, with the options that it is given."""
    assert list(unknown_commands(f"`{' '.join(words)}`")) == []


# --- the command ----------------------------------------------------------------------------------


def test_every_folder_is_a_set() -> None:
    assert {each.name for each in FOLDER.iterdir() if each.is_dir()} == set(SETS)


def test_a_set_is_written_out_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A written file may have been edited since, so it is never overwritten."""
    assert run(["deploy", "show", "systemd", "-o", str(tmp_path / "units")]) == 0
    written = {path.name: path.read_text() for path in (tmp_path / "units").iterdir()}
    assert written == {path.name: path.read_text() for path in UNITS}
    (tmp_path / "units" / "tallyhook.service").write_text("changed")
    assert run(["deploy", "show", "systemd", "-o", str(tmp_path / "units")]) == 2
    assert "possibly edited" in capsys.readouterr().err
    assert (tmp_path / "units" / "tallyhook.service").read_text() == "changed"


def test_a_set_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", "show", "proxy"]) == 0
    printed = capsys.readouterr().out
    assert all(path.read_text() in printed for path in files_of("proxy"))
    assert run(["deploy", "show", "cluster"]) == 2


# --- containers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def test_only_the_proxy_is_open(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["caddy"]


def test_services_of_ours_may_do_little(compose: dict[str, Any]) -> None:
    """Read-only, without capabilities, with secrets as files, by commands that there are."""
    ours = [each for each in compose["services"].values() if each["image"] == "tallyhook"]
    assert len(ours) == 4
    for service in ours:
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert "environment" not in service
        assert service["secrets"] == ["tallyhook.env"]
        assert_is_a_command(service["command"])
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace > 120


def test_what_serves_is_started_with_the_machine(compose: dict[str, Any]) -> None:
    """A machine that is started again stops them first, and they end with 0, which is no failure
    for an engine to start them for: docs.docker.com, "Start containers automatically"."""
    kept = {name: service["restart"] for name, service in compose["services"].items()}
    assert kept.pop("upgrade") == "no"
    assert set(kept.values()) == {"unless-stopped"}


def test_every_service_has_a_limit_of_memory(compose: dict[str, Any]) -> None:
    """A stranger's file that takes all memory ends no other service."""
    limits = {name: each.get("mem_limit") for name, each in compose["services"].items()}
    assert None not in limits.values()
    assert (limits["console"], limits["receiver"]) == ("4g", "2g")


def test_each_name_in_it_leads_somewhere(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        named = {each.partition(":")[0] for each in service.get("volumes", []) if each[0] != "."}
        assert named <= set(compose["volumes"])
    proxied = re.findall(r"reverse_proxy (\w+):(\d+)", (COMPOSE / "Caddyfile").read_text())
    assert dict(proxied) == {"receiver": "8080", "console": "8081"}
    example = (COMPOSE / "tallyhook.env.example").read_text()
    assert services["caddy"]["networks"]["inside"]["ipv4_address"] in example


def test_examples_of_settings_have_only_known_ones() -> None:
    known = {name.replace("<NAME>", "SHOP") for name in variables()}
    for example, least in ((COMPOSE / "tallyhook.env.example", 6), (NODES / "tallyhook.env", 2)):
        names = re.findall(r"^(\w+)=", example.read_text(), re.MULTILINE)
        assert set(names) <= known
        assert len(names) == len(set(names)) >= least


def test_the_image_is_built_of_what_is_there() -> None:
    text = (COMPOSE / "Containerfile").read_text()
    for line in re.findall("^COPY (?!--from)(.*)", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    assert re.search(r"^USER 10001", text, re.MULTILINE)
    (words,) = re.findall(r"^CMD (\[\"tallyhook.*\])", text, re.MULTILINE)
    assert_is_a_command(yaml.safe_load(words))


# --- systemd --------------------------------------------------------------------------------------


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_commands_that_there_are(path: Path) -> None:
    found = unit(path)
    if not found.has_option("Service", "ExecStart"):
        assert path.suffix in (".socket", ".timer")
        return
    started = found["Service"]["ExecStart"]
    (words,) = re.findall(r"/opt/tallyhook/bin/(tallyhook [^;\"']*)", started)
    assert_is_a_command(shlex.split(words))
    assert found["Service"]["User"] == "tallyhook"
    assert found["Service"]["ProtectSystem"] == "strict"
    assert found["Service"]["MemoryMax"] in ("1G", "2G", "4G")
    if found["Service"].get("Restart") == "always":  # the kernel ends one process, not the service
        assert found["Service"]["OOMPolicy"] == "continue"


@for_each("name", ["tallyhook.service", "tallyhook@.service"])
def test_a_service_is_not_restarted_for_ever(name: str) -> None:
    """Not for a wrong configuration, and not more than five times in two minutes."""
    found = unit(FOLDER / "systemd" / name)
    assert "3" in found["Service"]["RestartPreventExitStatus"].split()
    assert found["Unit"]["StartLimitBurst"] == "5"
    assert found["Unit"]["Requires"].endswith(".socket")


def test_systemd_takes_them(tmp_path: Path) -> None:
    """But for the program, which is not where they look for it. It sees what it does not take."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    bad = tmp_path / "bad.service"
    bad.write_text("[Service]\nExecStart=/bin/true\nProtectSystem=perhaps\n")
    assert [line for line in verified(bad) if ":3:" in line]
    for path in UNITS:
        assert [line for line in verified(path) if "is not executable" not in line] == []


def verified(path: Path) -> list[str]:
    """List what systemd says of one unit; of others of this machine it may say more."""
    said = subprocess.run(
        ["systemd-analyze", "verify", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    ).stderr
    name = path.name.replace("@.", "@i.")
    return [line for line in said.splitlines() if name in line]


def test_the_page_makes_what_units_need() -> None:
    """The user that they run as, and the packages that are deployed, not those of the tests."""
    page = (FOLDER / "README.md").read_text()
    users = {unit(path)["Service"]["User"] for path in UNITS if path.suffix == ".service"}
    assert users == {"tallyhook"}
    assert re.search(r"useradd [^`]*\btallyhook`", page)
    assert re.findall(r"-r (\S*requirements\S*.lock)", page) == ["requirements.lock"]


def test_the_page_starts_every_unit_that_can_be_started_with_the_machine() -> None:
    """The service, too: alone, the socket would start it with the first delivery, and until then
    nothing would be folded, scheduled or notified."""
    page = (FOLDER / "README.md").read_text()
    (enabled,) = re.findall(r"`systemctl enable --now ([^`]*)`", page)
    ours = [path for path in UNITS if "@" not in path.name]
    assert set(enabled.split()) == {path.name for path in ours if "[Install]" in path.read_text()}


# --- proxies --------------------------------------------------------------------------------------


def test_nginx_hands_the_consoles_longest_form_on() -> None:
    """It refuses more than a megabyte where nothing is said."""
    console = (FOLDER / "proxy" / "nginx.conf").read_text().partition("console.shop.example")[2]
    (most,) = re.findall(r"client_max_body_size (\d+)m;", console)
    assert int(most) << 20 >= MAX_FORM_BYTES


# --- two database nodes and a witness -------------------------------------------------------------


def test_patroni_keeps_what_was_acknowledged() -> None:
    """A commit waits for the standby, and a leader that stands still does not go on beside a new
    one. Its times fit each other: patroni.readthedocs.io, "Dynamic configuration"."""
    made = yaml.safe_load((NODES / "patroni.yaml").read_text())
    dynamic = made["bootstrap"]["dcs"]
    assert (dynamic["synchronous_mode"], dynamic["synchronous_mode_strict"]) == (True, True)
    assert dynamic["postgresql"]["parameters"]["synchronous_commit"] == "on"
    assert dynamic["ttl"] >= dynamic["loop_wait"] + 2 * dynamic["retry_timeout"]
    assert made["watchdog"]["mode"] == "required"


def test_haproxy_takes_the_example() -> None:
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    words = [program, "-c", "-f", str(NODES / "haproxy.cfg")]
    checked = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stderr


# --- alarms ---------------------------------------------------------------------------------------

RULES = FOLDER / "prometheus" / "tallyhook.rules.yaml"


def test_rules_ask_for_figures_that_there_are() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    there = {name.partition("{")[0] for name in metrics()}
    for rule in group["rules"]:
        assert set(re.findall(r"tallyhook_\w+", rule["expr"])) <= there, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")


def test_every_alarm_has_a_rule() -> None:
    text = RULES.read_text()
    assert [w.name for w in WATCHES if f"tallyhook_{w.name}_alarm == 1" not in text] == []


def test_prometheus_takes_them() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run(
        ["promtool", "check", "rules", str(RULES)],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


@for_each(
    ("alert", "series", "quiet_at", "fires_at"),
    [
        ("BackupLongAgo", {"last_backup_seconds": "0x100"}, "48h", "50h"),
        ("BackupLongAgo", {}, "99h", None),
        ("CertificateEnds", {"certificate_ends_seconds": "1220400x100"}, "5h", "8h"),
        ("CertificateEnds", {"certificate_ends_seconds": "9999999x100"}, "99h", None),
        (
            "CheckpointLeftLongAgo",
            {
                "last_checkpoint_left_seconds": "0x100",
                "last_checkpoint_left_leaves": "5x100",
                "log_leaves": "5 6x100",
            },
            "47h",
            "50h",
        ),
        (
            "CheckpointLeftLongAgo",
            {
                "last_checkpoint_left_seconds": "0x100",
                "last_checkpoint_left_leaves": "5x100",
                "log_leaves": "5x100",
            },
            "99h",
            None,
        ),
    ],
)
def test_what_stopped_is_reported_and_nothing_else(
    tmp_path: Path, alert: str, series: dict[str, str], quiet_at: str, fires_at: str | None
) -> None:
    """One sample an hour. What was never done is not missed, nor a checkpoint that would say what
    the last one said."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    firing = f'ALERTS{{alertname="Tallyhook{alert}",alertstate="firing"}}'
    once = {"labels": f'{firing[:-1]},severity="ticket"}}', "value": 1}
    quiet: dict[str, Any] = {"expr": firing, "eval_time": quiet_at, "exp_samples": []}
    looks = [quiet]
    if fires_at:
        looks.append({"expr": firing, "eval_time": fires_at, "exp_samples": [once]})
    case = {
        "interval": "1h",
        "input_series": [
            {"series": f"tallyhook_{name}", "values": values} for name, values in series.items()
        ],
        "promql_expr_test": looks,
    }
    file = tmp_path / "case.yaml"
    whole = {"rule_files": [str(RULES)], "evaluation_interval": "1h", "tests": [case]}
    file.write_text(yaml.safe_dump(whole))
    words = ["promtool", "test", "rules", str(file)]
    tried = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr


DASHBOARD = FOLDER / "grafana" / "tallyhook.dashboard.json"


def test_the_dashboard_shows_every_figure_and_no_other() -> None:
    """Each query names figures and labels that `/metrics` has; none of the figures is left out."""
    found = json.loads(DASHBOARD.read_text())
    expressions = [
        target["expr"] for panel in found["panels"] for target in panel.get("targets", ())
    ]
    labels = {name.partition("{")[0]: name.partition("{")[2][:-1].split(",") for name in metrics()}
    shown = set()
    for expression in expressions:
        assert expression.count("(") == expression.count(")")
        for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
            shown |= {name for name in labels if re.fullmatch(pattern, name)}
        for name in re.findall(r"\b(tallyhook_[a-z_]+)\{", expression):
            assert name in labels, expression
            shown.add(name)
            for label in re.findall(r"by \(([a-z, ]+)\)", expression):
                assert set(label.split(", ")) <= {*labels[name], "le"}, expression
    derived = {"tallyhook_delivery_seconds_count", "tallyhook_delivery_seconds_sum"}
    assert set(labels) - shown == derived


def test_the_dashboard_can_be_imported() -> None:
    """Ids are unique, panels lie beside each other, each says what it shows, and its source of data
    is chosen there."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert all(each["datasource"]["uid"] == "${datasource}" for each in panel["targets"])
