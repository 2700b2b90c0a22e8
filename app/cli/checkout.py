"""The command that starts a payment: checkout start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, document, note

if TYPE_CHECKING:
    from app.checkout.checkout_result import CheckoutResult
    from app.checkout.request import CheckoutRequest
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(help="Payments that this installation starts.", no_args_is_help=True)

EXIT_CODES: Final = {"opened": 0, "paid": 1, "expired": 1, "refused": 1, "unknown": 4}
"""The customer can pay: 0. There is nothing to pay, the session's time is over, or the service will
not: 1. The service cannot be reached: 4."""


@group.callback()
def checkout() -> None:
    """Payments that this installation starts."""


@group.command(
    "start", epilog="Such as: tallyhook checkout start --order ORD-1 --amount 15 --currency KES"
)
def start(
    order: Annotated[str, typer.Option(help="The order's reference.")],
    amount: Annotated[str, typer.Option(help="In major units, such as 1500.00.")],
    currency: Annotated[str, typer.Option(help="ISO 4217 code, such as KES.")],
    phone: Annotated[
        str | None, typer.Option(help="The customer's, as digits, country code first, no +.")
    ] = None,
    success_url: Annotated[
        str | None, typer.Option(help="Where the customer comes back after paying.")
    ] = None,
    cancel_url: Annotated[
        str | None, typer.Option(help="Where the customer comes back without having paid.")
    ] = None,
    new_payment: Annotated[
        bool, typer.Option("--new-payment", help="The earlier payment is over; try again.")
    ] = False,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Open the order's checkout session, or find the one it has. Safe to repeat.

    Exit code 0: the customer can pay · 1: the order is paid, its session has expired, or the
    service refuses · 4: unknown.
    """
    from app.checkout.checkout_result import result_document
    from app.checkout.request import CheckoutRequest
    from app.cli.running import with_context

    request = CheckoutRequest(
        order=order,
        amount=amount,
        currency=currency,
        phone=phone,
        success_url=success_url,
        cancel_url=cancel_url,
    )
    result = with_context(
        lambda context, settings: _start(
            context, settings, request, new_payment=new_payment, by=by
        ),
        purpose="writing",
    )
    if form is not Format.table:
        document(result_document(result), form)
    elif result.state == "opened" and result.checkout_url is not None:
        print(result.checkout_url)
    note(result.sentence)
    raise typer.Exit(EXIT_CODES[result.state])


async def _start(
    context: AppContext,
    settings: Settings,
    request: CheckoutRequest,
    *,
    new_payment: bool,
    by: str | None,
) -> CheckoutResult:
    from app.access.operators import author_of_command
    from app.bootstrap_sources import checkout_settings
    from app.checkout.client import CheckoutClient
    from app.checkout.open_checkout import open_checkout

    author = await author_of_command(context, by=by)
    async with CheckoutClient(checkout_settings(settings)) as client:
        return await open_checkout(
            context, client, request=request, new_payment=new_payment, author=author
        )
