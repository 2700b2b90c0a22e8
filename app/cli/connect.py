"""The command `tallyhook connect`, which writes the settings of a new source. Secrets are no
options, because others can see command lines."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.cli import printing, running
from app.config.config_file import PREFIX, secrets_in
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, UsageError
from app.core.ids import new_token

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.context.context import AppContext
    from app.orders.first_delivery import FirstDelivery
    from app.providers.sections import Profile


DEFAULT_FILE: Final = Path("tallyhook.env")
MAX_SECRET_BYTES: Final = 64 * 1024
"""Maximum bytes of a file that contains secrets."""

MAX_WAIT_S: Final = 24 * 3600
_NAME: Final = re.compile(r"[a-z0-9_-]{1,40}")

TITLES: Final = {
    "where": "Where to register it",
    "secret": "Its secret",
    "credentials": "Credentials for asking the provider",
    "events": "Events to subscribe to",
    "fields": "The order's reference goes into",
    "traps": "Beware",
    "silence": "If nothing arrives",
}


Config = Annotated[
    Path | None,
    typer.Option(help="The configuration file. Default: TALLYHOOK_CONFIG, or tallyhook.env."),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with the secrets, one a line, newest first, or - for standard input. "
        "Default: ask at the terminal."
    ),
]
CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        help='A file with the credentials, as JSON: {"name": "value"}. Default: ask at the '
        "terminal."
    ),
]
SharedOption = Annotated[
    bool | None,
    typer.Option(
        help="Whether another shop or system uses this account. Default: ask at the terminal."
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        help="Event members that identify your payments, with their values: "
        '{"metadata.shop": ["main"]}.'
    ),
]
LinkByOption = Annotated[
    str | None,
    typer.Option(
        help="What links a payment to its order: order (the order that the events name) or "
        "references (only the references that the shop stated). Default: order."
    ),
]
RotateOption = Annotated[
    bool,
    typer.Option(
        "--rotate-address", help="Give the source a new address. The old one stays valid."
    ),
]
RetireOption = Annotated[
    bool,
    typer.Option("--retire-now", help="With --rotate-address: refuse old addresses from now on."),
]


def connect(
    provider: Annotated[str, typer.Argument(help="A shipped profile's name, or a file's path.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="The source's name. The webhook address ends with it. Default: the profile's name."
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(help="Your account at the provider, if the provider's events name it."),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            help="sandbox or live, if the configuration file does not state it. Default: sandbox."
        ),
    ] = None,
    secret_file: SecretFile = None,
    credentials_file: CredentialsFile = None,
    public_url: Annotated[
        str | None, typer.Option(help="Scheme and host at which the provider reaches this service.")
    ] = None,
    shared: SharedOption = None,
    only: OnlyOption = None,
    link_by: LinkByOption = None,
    rotate_address: RotateOption = False,
    retire_now: RetireOption = False,
    config: Config = None,
    wait: Annotated[
        float,
        typer.Option(min=0, max=MAX_WAIT_S, help="Seconds to wait for the first delivery."),
    ] = 0,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Connect a provider: write the source's settings, and print what to register at the provider.

    Existing settings are kept. If an existing setting has a different value, the command only
    reports the difference.

    With --wait, the command waits for the first delivery to a running `serve`, and says what to
    change if that delivery is refused or names no order. The exit code is then 1, as it is if no
    delivery arrives.
    """
    from app.config.config_file import plan_settings, write_plan
    from app.providers.profile import load_profile

    path = config or Path(os.environ.get(f"{PREFIX}CONFIG") or DEFAULT_FILE)
    profile = load_profile(provider)
    before = plan_settings(path, {}).values
    source = _source_name(name, provider, profile, before=before)
    asked = {
        "ENVIRONMENT": environment,
        "PUBLIC_URL": public_url,
        "ACCOUNT": account,
        "ONLY": only,
        "LINK_BY": link_by,
    }
    wanted = _wanted(source, provider, asked, before=before)
    wanted |= _sharing(source, profile, shared, wanted=wanted, before=before)
    wanted |= _secrets(source, profile, secret_file, credentials_file, before=before)
    if retire_now and not rotate_address:
        raise UsageError(
            "--retire-now works with --rotate-address only: add it, or leave --retire-now out"
        )
    wanted |= _address(
        source, profile, rotated=rotate_address, retired=retire_now, before=before, path=path
    )
    changing = (_own(source) + "ADDRESS",) if rotate_address else ()
    plan = plan_settings(path, wanted, changing=changing)
    _refuse_what_differs(path, plan.differing, wanted)
    settings = _checked({**plan.values, **_of_environment()})
    if plan.added:
        write_plan(path, plan)
    _print_setup(path, source, profile, settings, added=plan.added, form=form)
    if wait:
        _await_delivery(source, profile, settings, seconds=wait)


def _source_name(
    given: str | None, provider: str, profile: Profile, *, before: Mapping[str, str]
) -> str:
    if given is not None:
        if not _NAME.fullmatch(given.lower()):
            raise UsageError("--name must have 1 to 40 characters of a-z, 0-9, _ and -")
        return given.lower()
    known = [
        variable.split("__")[1].lower()
        for variable, value in before.items()
        if variable.startswith(f"{PREFIX}SOURCES__")
        and variable.endswith("__PROFILE")
        and value == provider
    ]
    if len(known) == 1:
        return known[0]
    return re.sub(r"[^a-z0-9_-]", "-", profile.name.lower())[:40]


def _own(source: str) -> str:
    return f"{PREFIX}SOURCES__{source.upper()}__"


QUESTION: Final = "Does another shop or system use this account?"


def _sharing(
    source: str,
    profile: Profile,
    shared: bool | None,
    *,
    wanted: Mapping[str, str],
    before: Mapping[str, str],
) -> dict[str, str]:
    from app.context.configured import ways_to_tell_apart

    own, known = _own(source), {**before, **os.environ, **wanted}
    if shared is None and own + "SHARED" not in known and sits_at_a_terminal():
        shared = typer.confirm(QUESTION, err=True)
    if shared is None:
        if own + "SHARED" not in known:
            printing.note(
                f"{QUESTION} Give --shared or --no-shared: `tallyhook golive` requires the answer."
            )
        return {}
    if shared and not any(own + name in known for name in ("ACCOUNT", "ONLY", "LINK_BY")):
        raise UsageError(
            "The other shop's payments would count as yours, because no setting distinguishes "
            f"them. Set {ways_to_tell_apart(profile)}: use the first that fits. The options are "
            "--account, --only and --link-by references. `tallyhook profiles show "
            f"{profile.name}` lists the members of the provider's events"
        )
    return {own + "SHARED": "yes" if shared else "no"}


OLD_ADDRESS_DAYS: Final = 396
"""Days for which a replaced webhook address is accepted. Chargebacks can come for a year."""


def _address(
    source: str,
    profile: Profile,
    *,
    rotated: bool,
    retired: bool,
    before: Mapping[str, str],
    path: Path,
) -> dict[str, str]:
    from app.config.values import DatedSecret, addresses
    from app.providers.schemes import UNSIGNED
    from reconcile.instants import DAY, format_instant

    variable, now = _own(source) + "ADDRESS", SystemClock().now()
    known = _own(source) + "PROFILE" in before
    if rotated and not known:
        raise UsageError(
            f"{path} has no source {source}, so there is no address to replace: check --name"
        )
    if not rotated and (
        known or variable in {**before, **os.environ} or profile.signature.mac != UNSIGNED
    ):
        return {}
    newest = new_token("")
    if not known or retired:
        return {variable: newest}
    old: list[DatedSecret] = addresses(before.get(variable, source))
    end = now + OLD_ADDRESS_DAYS * DAY
    ends = {
        each.get_secret_value(): min(end, end if each.until is None else each.until)
        for each in old
        if each.until is None or each.until > now
    }
    listed = [newest, *(f"{name} until {format_instant(until)}" for name, until in ends.items())]
    return {variable: json.dumps(listed)}


def _wanted(
    source: str, provider: str, asked: Mapping[str, str | None], *, before: Mapping[str, str]
) -> dict[str, str]:
    own = _own(source)
    environment = asked["ENVIRONMENT"]
    if environment is None and f"{PREFIX}ENVIRONMENT" not in {**before, **os.environ}:
        environment = "sandbox"
    found = {
        f"{PREFIX}ENVIRONMENT": environment,
        f"{PREFIX}PUBLIC_URL": asked["PUBLIC_URL"],
        f"{own}PROFILE": provider,
        **{own + name: asked[name] for name in ("ACCOUNT", "ONLY", "LINK_BY")},
    }
    return {variable: value for variable, value in found.items() if value is not None}


def _secrets(
    source: str,
    profile: Profile,
    secret_file: Path | None,
    credentials_file: Path | None,
    *,
    before: Mapping[str, str],
) -> dict[str, str]:
    from app.providers.connecting import UNDOCUMENTED, described_credentials, takes_keys
    from app.providers.schemes import UNSIGNED

    own = _own(source)
    configured = {**before, **os.environ}
    if secret_file == credentials_file == Path("-"):
        raise UsageError(
            "the secret and the credentials cannot both come from standard input: give a file "
            "for one of them"
        )
    found = {}
    if profile.signature.mac == UNSIGNED:
        if secret_file is not None:
            raise UsageError(f"profile {profile.name} uses no secret: leave --secret-file out")
    elif secret_file or not any(
        own + key in configured for key in ("SECRETS", "SECRETS_FILE", "KEYS")
    ):
        what = f"The secret is {profile.setup.secret or UNDOCUMENTED}"
        if secret_file is None and takes_keys(profile):
            raise UsageError(
                f"{what}. A key has several lines, so it cannot be typed here: give --secret-file "
                f"FILE, or --secret-file - for standard input"
            )
        text = _read(secret_file) if secret_file else _asked(what, "secret")
        key, value = _as_setting(text)
        found[own + key] = value
    needed = described_credentials(profile)
    if needed and (credentials_file or own + "CREDENTIALS" not in configured):
        values = _credentials(needed, credentials_file)
        found[own + "CREDENTIALS"] = json.dumps(values, sort_keys=True)
    return found


def _as_setting(text: str) -> tuple[str, str]:
    if text.lstrip().startswith("{"):
        return "KEYS", json.dumps(_texts(text, "--secret-file"), sort_keys=True)
    listed = secrets_in(text)
    if not listed:
        raise UsageError("the given text or file contains no secret: give the secret itself")
    plain = len(listed) == 1 and not re.search(r"^\[|,|\n", listed[0])
    return "SECRETS", listed[0] if plain else json.dumps(listed)


def _credentials(needed: Mapping[str, str], file: Path | None) -> dict[str, str]:
    if file is None and not sits_at_a_terminal():
        described = "; ".join(f"{name}: {what}" for name, what in needed.items())
        shape = json.dumps(dict.fromkeys(needed, "<value>"))
        raise UsageError(
            f"the provider's credentials are missing ({described}), and there is no terminal at "
            f"which to ask: give --credentials-file FILE with {shape}, or --credentials-file - "
            "for standard input"
        )
    if file is None:
        return {name: _asked(f"{name}: {what}", name) for name, what in needed.items()}
    values = _texts(_read(file), "--credentials-file")
    missing = [name for name in needed if name not in values]
    if missing:
        raise UsageError(f"--credentials-file lacks {', '.join(missing)}")
    return values


def _texts(text: str, option: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UsageError(f'{option} needs a JSON object of texts, such as {{"name": "value"}}')
    return found


def _read(file: Path) -> str:
    try:
        if file == Path("-"):
            content = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
        else:
            with file.open("rb") as opened:
                content = opened.read(MAX_SECRET_BYTES + 1)
        if len(content) > MAX_SECRET_BYTES:
            raise UsageError(
                f"{file} has more than {MAX_SECRET_BYTES:,} bytes, which is too long for a "
                "secret: check the path"
            )
        return content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None


def sits_at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _asked(sentence: str, name: str) -> str:
    if not sits_at_a_terminal():
        raise UsageError(
            f"{sentence}. There is no terminal at which to ask: give --secret-file FILE, or "
            "--secret-file - for standard input"
        )
    printing.note(sentence)
    return str(typer.prompt(name, hide_input=True, err=True))


def _refuse_what_differs(path: Path, differing: tuple[str, ...], wanted: Mapping[str, str]) -> None:
    problems = [f"{variable}: {path} has another value; change it there" for variable in differing]
    problems += [
        f"{variable}: the environment has another value, which overrides {path}"
        for variable, value in wanted.items()
        if os.environ.get(variable, value) != value
    ]
    if problems:
        raise ConfigurationError([*problems, "nothing was written"])


def _of_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIX) and name != f"{PREFIX}CONFIG"
    }


def _checked(environ: Mapping[str, str]) -> Settings:
    from app.config.load import load_settings
    from app.golive.examine import problems_of_sources

    return load_settings(environ, serving=True, also=problems_of_sources)


def _print_setup(
    path: Path,
    source: str,
    profile: Profile,
    settings: Settings,
    *,
    added: tuple[str, ...],
    form: Literal[printing.Format.table, printing.Format.json, printing.Format.jsonl],
) -> None:
    from app.providers.connecting import setup_facts
    from reconcile.instants import format_instant

    facts = setup_facts(profile)
    given = settings.sources[source].address
    end = given[0].get_secret_value() if given else source
    address = f"{settings.public_url or 'https://<your public name>'}/webhooks/{end}"
    if form is not printing.Format.table:
        whole: dict[str, Any] = {"source": source, "file": str(path), "added": list(added)}
        printing.document(whole | {"address": address, "setup": dict(facts)}, form)
        return
    printing.say(
        f"{path}: {'added ' + ', '.join(added) if added else 'has all of these settings already'}."
    )
    printing.say("Address to register")
    printing.say(f"  {address}")
    for old in given[1:]:
        assert old.until is not None
        printing.say(
            f"  The previous address is accepted until {format_instant(old.until)}, for payments "
            f"that were started with it."
        )
    if _own(source) + "ADDRESS" in added:
        printing.say(
            "  The address is a secret: anyone who knows it can send. Restart `serve` to use it."
        )
    for key, value in facts.items():
        printing.say(TITLES[key])
        for line in [value] if isinstance(value, str) else value:
            printing.say(f"  {line}")
    if not settings.public_url:
        printing.note(
            "Set TALLYHOOK_PUBLIC_URL, or give --public-url, with the scheme and host that the "
            "provider calls."
        )
    if added:
        printing.note("Restart a running service to apply these settings.")


def _await_delivery(source: str, profile: Profile, settings: Settings, *, seconds: float) -> None:
    import anyio

    from app.context.configured import accounts
    from app.orders.first_delivery import wait_for_delivery
    from app.receiving.diagnose import unexplained

    async def waiting(context: AppContext) -> FirstDelivery | None:
        return await wait_for_delivery(
            context,
            source,
            accounts=accounts(settings),
            seconds=seconds,
            sleep=anyio.sleep,
            began=lambda: printing.note(f"Waiting {seconds:g} s for the first delivery …"),
        )

    arrived = running.with_context(waiting, loaded=settings)
    if arrived is None:
        printing.say(f"Nothing arrived. {profile.setup.silence or ''}".rstrip())
        printing.say(
            "Check that the address is registered, that `serve` is running, and that it can be "
            "reached from outside."
        )
        raise typer.Exit(1)
    entry = arrived.entry
    if arrived.unknown:
        printing.say(f"A delivery arrived for {entry.source!r}, a source that is not configured.")
    if not arrived.refused:
        printing.say(f"A delivery arrived and was accepted: {entry.delivery_id}, {entry.verdict}.")
        if entry.problem:
            printing.say(f"  {entry.problem}")
        if arrived.no_order is not None:
            printing.say(f"  {arrived.no_order}")
            raise typer.Exit(1)
        return
    printing.say(
        f"A delivery arrived and was refused: {entry.verdict}. {entry.problem or ''}".rstrip()
    )
    for each in arrived.diagnoses:
        printing.say(f"  {each.sentence}")
    if not arrived.diagnoses:
        account = accounts(settings).get(source)
        printing.say(f"  {unexplained(entry.verdict, account)}")
    printing.say("  Then run `tallyhook deliveries reverify` to judge refused deliveries again.")
    raise typer.Exit(1)


def register(application: typer.Typer) -> None:
    """Add the command `connect`."""
    application.command(
        epilog="Example: tallyhook connect stripe --secret-file secret.txt --wait 600"
    )(connect)


# --- profiles and signatures ----------------------------------------------------------------------

profiles_group = typer.Typer(
    help="How each provider signs and describes its events.", no_args_is_help=True
)

COLUMNS = ("profile", "mac", "key", "where", "events", "rests_on")

Name = Annotated[str, typer.Argument(help="A shipped profile's name, or the path of a file.")]


@profiles_group.command("list")
def list_profiles(form: printing.FormatOption = printing.Format.table) -> None:
    """List the profiles that are shipped with Tallyhook."""
    from app.providers.profile import list_profiles

    printing.emit(list_profiles(), columns=COLUMNS, form=form)


@profiles_group.command("show")
def show_profile_file(name: Name, form: printing.FormatOption = printing.Format.table) -> None:
    """Show a profile with its defaults and the provider's pages on which it is based."""
    from app.providers.connecting import setup_facts
    from app.providers.profile import load_profile, profile_rows, show_profile

    shown = show_profile(name)
    if form in (printing.Format.json, printing.Format.jsonl):
        printing.document(shown, form)
        return
    # Tables also show what the file leaves out; programs see that it is missing.
    shown["setup"] = dict(setup_facts(load_profile(name)))
    rows = [{"key": key, "value": value} for key, value in profile_rows(shown)]
    printing.emit(rows, columns=("key", "value"), form=form)


@profiles_group.command("check")
def check_profile_file(
    file: Annotated[str, typer.Argument(help="The profile's file.")],
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Report every mistake in a profile file, with its line. The exit code is 1 for a mistake."""
    from app.providers.profile import check_profile

    problems = check_profile(file)
    if form is not printing.Format.table:
        printing.document({"file": file, "valid": not problems, "problems": problems}, form)
    for line in problems or [f"{file} has no mistakes."]:
        if form is printing.Format.table:
            print(line)
    if problems:
        raise typer.Exit(1)


signature_group = typer.Typer(
    help="Verify signatures without a running service.", no_args_is_help=True
)


@signature_group.callback()
def signature() -> None:
    """Verify signatures without a running service."""


@signature_group.command(
    "check", epilog="Example: tallyhook signature check --profile stripe < requests.jsonl"
)
def check_signatures(
    profile: Annotated[
        str | None, typer.Option(help="Profile for lines that name none: a name or a path.")
    ] = None,
) -> None:
    """Verify the signatures of requests. Each input line is a request as a JSON object, and each
    output line is a verdict.

    The exit code is 0 whatever the verdicts are.
    """
    from app.providers.check_signatures import check_lines, request_lines

    lines = request_lines(sys.stdin.buffer)
    for verdict in check_lines(lines, profile=profile, now=SystemClock().now()):
        # Flush each answer: a caller over a pipe waits for it.
        print(verdict, flush=True)
