"""The API's description makes clients in strict TypeScript, by two generators from npm."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from app.api.openapi import api_document

PACKAGES = ("openapi-typescript@7.13.0", "@hey-api/openapi-ts@0.95.0", "typescript@5.9.3")
STEPS = (
    ("openapi-typescript", "api.json", "-o", "types.d.ts"),
    ("openapi-ts", "-i", "api.json", "-o", "client"),
    ("tsc", "--strict", "--noEmit", "--noUncheckedIndexedAccess", "--target", "es2022",
     "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable",
     "types.d.ts", "client/index.ts", "client/client.gen.ts"),
)  # fmt: skip


@pytest.mark.soak
def test_two_generators_make_strict_typescript(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=300, check=False)

    if shutil.which("npm") is None or run("npm", "install", "--silent", *PACKAGES).returncode:
        pytest.skip("no npm, or no registry: the generators could not be fetched")
    (tmp_path / "api.json").write_text(json.dumps(api_document()))
    for words in STEPS:
        done = run("npx", "--no-install", *words)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
