"""Settings that change, or break, while the service runs by those of its start."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.processes import command, serving
from tests.waiting import until


def lines(folder: Path, what: str, **more: str) -> list[dict[str, Any]]:
    """Return what a doctor beside the service says of something."""
    found = json.loads(command(folder, "doctor", "--format", "json", **more).stdout)
    return [each for each in found if each["what"] == what]


def test_the_doctor_says_what_takes_effect_with_the_next_start(tmp_path: Path) -> None:
    """The service goes on as it was started, and says itself whether it is ready."""
    path = tmp_path / "settings"
    path.touch(mode=0o600)
    path.write_text("TALLYHOOK_GRACE_S=60\n")
    more: dict[str, Any] = {"CONFIG": str(path)}
    with serving(tmp_path, **more) as service:
        until(lambda: lines(tmp_path, "service", **more))
        (said,) = lines(tmp_path, "service", **more)
        assert said["sentence"] == f"The service is ready at http://127.0.0.1:{service.port}."
        assert lines(tmp_path, "settings", **more) == []
        path.write_text("TALLYHOOK_GRACE_S=61\n")
        (said,) = lines(tmp_path, "settings", **more)
        assert said["sentence"].startswith("TALLYHOOK_GRACE_S changed after the service started")
        path.write_text("TALLYHOOK_GRACE_S=soon\n")
        (said,) = lines(tmp_path, "TALLYHOOK_GRACE_S", **more)
        assert "a running service keeps the settings from its start" in said["do"]
        assert service.request("GET", "/readyz")[0] == 200
    path.write_text("TALLYHOOK_GRACE_S=60\n")
    (said,) = lines(tmp_path, "service", **more)
    assert (said["state"], "it has ended" in said["sentence"]) == ("weak", True)
