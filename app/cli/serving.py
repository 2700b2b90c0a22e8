"""Commands that run until they are stopped: serve, worker, console, sandbox and demo."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import printing, running
from app.cli.privacy import AcceptGap, WhyGap, stated_gap, tell_gap
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, TallyhookError, UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.sandbox.settings import SandboxSettings

PlayOption = Annotated[
    Path | None,
    typer.Option("--play", help="Play a file that `evidence scenario` made, then exit."),
]
SpeedOption = Annotated[
    float, typer.Option(min=0.001, max=1_000_000, help="With --play: speed factor.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="TALLYHOOK_PLAY_TOKEN",
        help="With --play: the API token for sending the shop's calls and reading the outcome.",
    ),
]


def check_nothing_to_play(context: typer.Context) -> None:
    """Raise UsageError if an option that needs --play is given without it."""

    for name in ("speed", "token"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{name} works with --play only: add --play FILE, or leave --{name} out"
            )


def check_webhook_url(url: str) -> None:
    """Raise UsageError unless the text is a URL to which events can be sent."""
    from app.sandbox.settings import is_absolute_http

    if not is_absolute_http(url):
        raise UsageError(
            "--webhook-url must be an http or https URL, such as "
            "http://127.0.0.1:8080/webhooks/shop"
        )


def play_scenario(path: Path, *, webhook_url: str, speed: float, token: str | None) -> None:
    """Play the scenario in this file. Exit with 1 if a result differs. Without a token, nothing is
    compared."""
    import anyio

    from app.sandbox.playing import Stage, play_script, read_script
    from app.sandbox.settings import SANDBOX_SECRET, SandboxSettings
    from app.sandbox.webhook_sender import webhook_client

    script = read_script(path, secret=SANDBOX_SECRET)
    lasts = (script.steps[-1].at - script.steps[0].at) / 1_000_000 / speed
    printing.note(
        f"{counted(len(script.steps), 'step')}, {lasts:,.0f} s. The secret for verifying the "
        f"webhooks is {SANDBOX_SECRET}"
    )
    if speed != 1:
        printing.note(
            "The scenario plays faster than the events happened: divide the receiver's time "
            "windows by --speed."
        )

    async def playing() -> list[str]:
        async with webhook_client(SandboxSettings(webhook_url=webhook_url), None) as client:
            stage = Stage(
                client=client,
                webhook_url=webhook_url,
                clock=SystemClock(),
                sleep=anyio.sleep,
                speed=speed,
                token=token,
            )
            return await play_script(script, stage, printing.note)

    differences = running.run_loop(playing())
    for each in differences:
        print(each)
    if differences:
        raise typer.Exit(1)
    printing.note(
        "The outcome is the same as when it happened."
        if token
        else "Every event got the same verdict as when it happened."
    )


Host = Annotated[str, typer.Option(help="Address to listen on.")]


ParentOption = Annotated[
    int | None,
    typer.Option(
        "--parent", hidden=True, help="For internal use by `serve`: the socket to its parent."
    ),
]

Inherited = Annotated[
    int | None,
    typer.Option(
        "--fd",
        min=0,
        max=65_535,
        help="File descriptor of the parent process's listening socket, to use instead of host "
        "and port.",
    ),
]

CONSOLE_HOST = "127.0.0.1"

EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  # refused nowhere, warned of in live


UNENCRYPTED = (
    "WARNING: with this --host everyone can connect directly, and API secrets travel unencrypted. "
    "Listen on 127.0.0.1 behind a proxy, and name the proxy in TALLYHOOK_FORWARDED_ALLOW_IPS"
)


def register(application: typer.Typer) -> None:
    """Add the commands `serve`, `worker`, `console`, `sandbox` and `demo`."""
    application.command()(serve)
    application.command()(worker)
    application.command()(console)
    application.command(
        epilog="Example: tallyhook sandbox --webhook-url http://127.0.0.1:8080/webhooks/shop"
    )(sandbox)
    application.command()(demo)


def serve(
    host: Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on. 0 selects a free port.")
    ] = 8080,
    no_worker: Annotated[
        bool,
        typer.Option(
            "--no-worker",
            help=(
                "Only receive deliveries. Other processes on this PostgreSQL database read them "
                "and fold orders."
            ),
        ),
    ] = False,
    with_console: Annotated[
        bool,
        typer.Option("--console", help="Also start the console on 127.0.0.1: see `console`."),
    ] = False,
    accept_gap: AcceptGap = False,
    reason: WhyGap = "",
    fd: Inherited = None,
) -> None:
    """Receive webhooks and answer the API, while a second process reads deliveries, folds orders
    and notifies the shop."""
    from app.cli import printing
    from app.config.load import load_settings
    from app.core.logs import configure_logging
    from app.golive.examine import problems_of_sources
    from app.privacy.gap import accept_found
    from app.wiring.serving import serve as run_service

    accepts = stated_gap(accept_gap, reason=reason)
    host, port, listener = _where(host, port, fd)
    settings = load_settings(serving=True, also=problems_of_sources)
    for warning in settings.warnings:
        printing.note(warning)
    if settings.environment == "live" and host in EVERYWHERE and not settings.forwarded_allow_ips:
        printing.note(UNENCRYPTED)
    configure_logging(
        format=settings.log_format,
        level=settings.log_level,
        lines_per_minute=settings.log_lines_per_minute,
    )
    if accepts is not None:
        tell_gap(running.run_loop(accept_found(settings, reason=accepts, clock=SystemClock())))
    running.run_loop(
        run_service(
            settings,
            host=host,
            port=port,
            with_worker=not no_worker,
            listener=listener,
            console=(CONSOLE_HOST, settings.console.port) if with_console else None,
        )
    )


def console(
    host: Host = CONSOLE_HOST,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port to listen on. 0 selects a free port. Default: TALLYHOOK_CONSOLE__PORT, or "
            "8081.",
        ),
    ] = None,
    fd: Inherited = None,
    parent: ParentOption = None,
) -> None:
    """Serve the console: web pages for finance, support and the shop's developer. The command
    `serve` must run, too.

    To use the console from other machines, set TALLYHOOK_CONSOLE__PUBLIC_URL, and invite a person
    with `operators invite`.
    """
    from app.config.load import load_settings
    from app.core.child_processes import taken_over
    from app.core.logs import configure_logging
    from app.wiring.serving import serve_console

    (settings,) = (load_settings(),) if parent is None else taken_over()
    if parent is None:  # otherwise `serve` has printed them
        for warning in settings.warnings:
            printing.note(warning)
    host, port, listener = _where(host, settings.console.port if port is None else port, fd)
    configure_logging(
        format=settings.log_format,
        level=settings.log_level,
        lines_per_minute=settings.log_lines_per_minute,
    )
    sock = None if parent is None else socket.socket(fileno=parent)
    with _ending_in_log(parent):
        running.run_loop(
            serve_console(settings, host=host, port=port, listener=listener, parent=sock)
        )


@contextmanager
def _ending_in_log(parent: int | None) -> Iterator[None]:
    try:
        yield
    except TallyhookError as error:
        if parent is None or isinstance(error, ConfigurationError):
            raise
        from app.core.logs import log

        log.error("a child process ends", problem=str(error), exit_code=error.exit_code)
        raise typer.Exit(error.exit_code) from None


def _where(host: str, port: int, fd: int | None) -> tuple[str, int, socket.socket | None]:
    from app.cli.demo import address_of, inherited

    if fd is None:
        return host, port, None
    listener = inherited(fd)
    return *address_of(listener), listener


def worker(
    parent: ParentOption = None,
    folding: Annotated[
        bool,
        typer.Option(
            "--folding", hidden=True, help="For internal use by `serve`: only fold and seal."
        ),
    ] = False,
) -> None:
    """Read the inbox, fold due orders, seal and notify the shop. Run this if several receivers
    share one PostgreSQL database. On SQLite, `serve` does this work itself."""
    from app.config.load import load_settings
    from app.core.child_processes import Parent, give_way_to_parent, taken_over
    from app.core.logs import configure_logging
    from app.wiring.worker import fold_beside, work

    (settings,) = (load_settings(),) if parent is None else taken_over()
    configure_logging(
        format=settings.log_format,
        level=settings.log_level,
        lines_per_minute=settings.log_lines_per_minute,
    )
    if parent is not None:
        give_way_to_parent(folding=folding)
    with _ending_in_log(parent):
        if folding and parent is not None:
            running.run_loop(fold_beside(settings, parent=Parent(parent)))
            return
        running.run_loop(work(settings, parent=None if parent is None else Parent(parent)))


def sandbox(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 8090,
    host: Host = "127.0.0.1",
    seed: Annotated[
        int | None,
        typer.Option(help="Two runs with the same seed are identical. Default: a random seed."),
    ] = None,
    webhook_url: Annotated[
        str, typer.Option(help="The URL to send events to.")
    ] = "http://127.0.0.1:8080/webhooks/checkout",
    truth: Annotated[
        Path | None,
        typer.Option(help="File in which to write what really happened to each order's money."),
    ] = None,
    unit: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=3_600,
            help="Seconds in one unit of a scenario. A smaller value plays faster.",
        ),
    ] = 1.0,
    play: PlayOption = None,
    speed: SpeedOption = 1.0,
    token: TokenOption = None,
    fd: Inherited = None,
) -> None:
    """Run the simulated provider. The last two digits of a phone number choose the scenario."""

    check_webhook_url(webhook_url)
    printing.check_output(truth, binary=False, what="the truth")
    if play is not None:
        play_scenario(play, webhook_url=webhook_url, speed=speed, token=token)
        return
    check_nothing_to_play(context)
    from app.core.ids import drawn_seed
    from app.sandbox.settings import SandboxSettings

    host, port, listener = _where(host, port, fd)
    settings = SandboxSettings(
        webhook_url=webhook_url,
        public_url=f"http://{f'[{host}]' if ':' in host else host}:{port}",
        seed=drawn_seed() if seed is None else seed,
        truth_path=truth,
        unit_s=unit,
    )
    _run_sandbox(settings, host=host, port=port, listener=listener)


def _run_sandbox(
    settings: SandboxSettings, *, host: str, port: int, listener: socket.socket | None
) -> None:
    from app.cli import printing
    from app.providers.profile import load_profile
    from app.providers.source import Source
    from app.sandbox.server import build_sandbox, serve_sandbox

    secrets, profile = list(settings.secrets), load_profile("checkout")
    signer = Source(name="checkout", profile=profile, secrets=secrets)
    built = build_sandbox(settings, signer=signer)
    printing.note(f"Simulated provider on {settings.public_url}, sending to {settings.webhook_url}")
    printing.note(
        f"Open sessions with the token {settings.token}. Verify webhooks with {secrets[0]}"
    )
    printing.note(f"Ids are generated from --seed {settings.seed}")
    running.run_loop(serve_sandbox(built, host=host, port=port, listener=listener))


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit after printing.")] = False,
) -> None:
    """Play every scenario with a separate service, and explain each order."""
    from app.cli.demo import play

    raise typer.Exit(running.run_loop(play(once=once)))
