"""Every page and every action: a new one is one entry here, its function and its template."""

from __future__ import annotations

from typing import Final

from app.console.acts import (
    ask_evidence,
    ask_reverify,
    ask_tell_again,
    do_evidence,
    do_reverify,
    do_tell_again,
)
from app.console.breaks_pages import break_document, breaks_document
from app.console.deliveries_pages import deliveries_document, delivery_document
from app.console.finance_acts import (
    ask_accept,
    ask_assign,
    ask_comment,
    do_accept,
    do_assign,
    do_comment,
)
from app.console.now_page import now_document
from app.console.orders_pages import order_page_document, orders_document
from app.console.view import Act, Page

PAGES: Final = (
    Page(
        path="/",
        title="Now",
        reads="now",
        load=now_document,
        template="now.html",
        rows="waiting",
        menu="Now",
    ),
    Page(
        path="/orders",
        title="Orders",
        reads="orders",
        load=orders_document,
        template="orders.html",
        rows="orders",
        menu="Orders",
    ),
    Page(
        path="/orders/{subject}",
        title="Order",
        reads="orders",
        load=order_page_document,
        template="order.html",
        rows="published",
    ),
    Page(
        path="/deliveries",
        title="Deliveries",
        reads="deliveries",
        load=deliveries_document,
        template="deliveries.html",
        rows="deliveries",
        menu="Deliveries",
    ),
    Page(
        path="/deliveries/{subject}",
        title="Delivery",
        reads="deliveries",
        load=delivery_document,
        template="delivery.html",
        rows="headers",
        live=False,  # each look at a refused one is in the trail
    ),
    Page(
        path="/breaks",
        title="Breaks",
        reads="breaks",
        load=breaks_document,
        template="breaks.html",
        rows="breaks",
        menu="Breaks",
        group="Finance",
    ),
    Page(
        path="/breaks/{subject}",
        title="Break",
        reads="breaks",
        load=break_document,
        template="break.html",
        rows="steps",
        live=False,
    ),
)

ACTS: Final = (
    Act(
        name="evidence",
        title="Evidence bundle",
        button="Download the bundle",
        permission="evidence_built",
        ask=ask_evidence,
        do=do_evidence,
    ),
    Act(
        name="tell-again",
        title="Tell the shop again",
        button="Tell the shop again",
        permission="notifications_redelivered",
        ask=ask_tell_again,
        do=do_tell_again,
        said="The shop is being told again; the notifications below say whether it took it.",
    ),
    Act(
        name="reverify",
        title="Judge refused deliveries again",
        button="Judge them again",
        permission="deliveries_reverified",
        ask=ask_reverify,
        do=do_reverify,
        said="The refused deliveries were judged again; what was accepted is in the list now.",
    ),
    Act(
        name="assign",
        title="Assign a break",
        button="Assign it",
        permission="break_assigned",
        ask=ask_assign,
        do=do_assign,
        said="It was assigned.",
    ),
    Act(
        name="comment",
        title="Comment on a break",
        button="Add the comment",
        permission="break_commented",
        ask=ask_comment,
        do=do_comment,
        said="Your comment stands in the history below.",
    ),
    Act(
        name="accept",
        title="Accept a break",
        button="Accept it",
        permission="break_accepted",
        ask=ask_accept,
        do=do_accept,
        said="It was accepted, and is no more to be done.",
    ),
)
