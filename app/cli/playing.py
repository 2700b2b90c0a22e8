"""`tallyhook sandbox --play`: a scenario against a running receiver, then what came otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import note
from app.core.text import counted

PlayOption = Annotated[
    Path | None,
    typer.Option("--play", help="Play a scenario of `evidence scenario` instead, and end."),
]
SpeedOption = Annotated[
    float, typer.Option(min=0.001, max=1_000_000, help="With --play: so many times as fast.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="TALLYHOOK_PLAY_TOKEN",
        help="With --play: an API token, to speak for the shop and to compare the outcome.",
    ),
]


def check_nothing_to_play(context: typer.Context) -> None:
    """Raises UsageError for an option that would do nothing without --play.

    A token in the environment may be there for another command.
    """
    from app.core.errors import UsageError

    for name in ("speed", "token"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{name} is for --play: say --play FILE, or leave --{name} out")


def check_webhook_url(url: str) -> None:
    """Raises UsageError for what is no address to send events to."""
    from app.core.errors import UsageError
    from app.sandbox.settings import is_absolute_http

    if not is_absolute_http(url):
        raise UsageError(
            "--webhook-url is an http or https address, such as http://127.0.0.1:8080/webhooks/shop"
        )


def play_scenario(path: Path, *, webhook_url: str, speed: float, token: str | None) -> None:
    """Play it. Exit code 1 where something came otherwise than the scenario says."""
    import anyio

    from app.cli.running import run_loop
    from app.core.clock import SystemClock
    from app.sandbox.playing import Stage, play
    from app.sandbox.script import read_script
    from app.sandbox.settings import SANDBOX_SECRET, SandboxSettings
    from app.sandbox.webhook_sender import courier_client

    script = read_script(path, secret=SANDBOX_SECRET)
    lasts = (script.acts[-1].at - script.acts[0].at) / 1_000_000 / speed
    note(f"{counted(len(script.acts), 'step')}, {lasts:,.0f} s; verify with {SANDBOX_SECRET}")
    if speed != 1:
        note("Faster than it was: divide the receiver's windows of time by as much.")

    async def playing() -> list[str]:
        async with courier_client(SandboxSettings(webhook_url=webhook_url), None) as client:
            stage = Stage(
                client=client,
                webhook_url=webhook_url,
                clock=SystemClock(),
                sleep=anyio.sleep,
                speed=speed,
                token=token,
            )
            return await play(script, stage, note)

    differences = run_loop(playing())
    for each in differences:
        print(each)
    if differences:
        raise typer.Exit(1)
    note("Everything came as it did then." if token else "Every event was taken as it was then.")
