"""Messages about wrong TOML files: all of some forty files, word for word.

After a change that is meant: `TALLYHOOK_GOLDEN=write pytest tests/core/test_toml_messages.py`, and
read the difference.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from app.core.errors import TallyhookError
from app.finance.files.books import BookForm
from app.finance.files.mapping import read_mapping
from app.finance.reports.accounts import accounts_of
from app.finance.rule_file import read_rules
from app.providers.profile import SHIPPED, read_profile
from tests.reconcile.pinned import same_text

GOOD: Final = """\
[signature]
mac = "hmac-sha256"
where = "header:x-signature"
signed = "{body}"
[event]
id = "json:id"
kind = "json:type"
order = "json:order"
[claims]
paid = "succeeded"
"""

PROFILES: Final[Mapping[str, str]] = {
    "empty": "",
    "not_toml": "[signature\nmac = 1",
    "twice": GOOD + "[event]\nid = 'json:other'\n",
    "too_large": "#" * 40_000,
    "unknown_keys_and_sections": "colour = 1\n"
    + GOOD
    + "[phones]\nx = 1\n[secret]\nencodin = 'x'\n",
    "no_section": "environment = 3\ntimestamp = 'x'\nclaims = 7\n"
    + GOOD.replace("[claims]\npaid", "#"),
    "wrong_kinds": GOOD.replace('"json:id"', "7").replace('"hmac-sha256"', "['hmac-sha256']")
    + "[acknowledgement]\nstatus = true\nbody = 3\n[checkout]\npath = 'x'\n",
    "wrong_words": GOOD.replace("hmac-sha256", "md5").replace("succeeded", "success")
    + "[secret]\nencoding = 'rot13'\n[timestamp]\nwhere = 'cookie:x'\npast_s = -1\nunit = 'h'\n",
    "free_keys": GOOD
    + "'p*id' = 'declined'\n[amounts]\nunit = 'minor'\n[amounts.decimals]\nXXY = 2\nKES = 9\n"
    "[acknowledgement.fields]\n'a' = 1.5\n",
    "also": GOOD + "[signature.also]\nmac = 'hmac-sha1'\nextra = 3\n",
    "between_keys": GOOD.replace("{body}", "{ts}.{nothing}")
    + "[environment]\nsandbox = 'same'\nlive = 'same'\n[amounts]\npayment = 'json:amount'\n",
    "without_signed_and_kind": GOOD.replace('signed = "{body}"\n', "").replace("kind =", "kin ="),
    "fetch_back": 'confirm = "fetch_back"\n'
    + GOOD
    + "[fetch_back]\nurl = 'http://x.test/{id}'\nbody = '{what}'\n"
    "[fetch_back.headers]\n'B d' = 'x'\n",
    "handshake": GOOD + "[handshake]\nmethod = 'GET'\nwhen = 'query:a'\nanswer = 'xml'\n",
    "dotted_and_long": "signature.mac = '''\nevent = 3\n'''\nevent.id = 4\n",
    "rests_on": GOOD + "[rests_on]\nmark = 'hearsay'\nsource = []\n[customer]\ncountry = 'KE'\n",
}

MAPPINGS: Final[Mapping[str, str]] = {
    "not_toml": "x = [",
    "too_large": "#" * 70_000,
    "many": 'colour = "red"\nzone = 3\n[columns]\nprice = "x"\n[defaults]\ncurrency = "XX"\n'
    'kind = "booking"\n[words.status]\nx = "done"\n',
    "no_tables": "columns = 3\ndefaults = []\nwords = 'x'\n",
    "no_inner_table": "[words]\nstatus = 1\ncolour = 2\n",
    "no_texts": "delimiter = 1\n[columns]\nreference = 4\n[defaults]\ncurrency = 5\n",
    "marks": 'decimal = ";"\nthousands = "x"\ndelimiter = "x"\ndates = "us"\nzone = "x"\n'
    'encoding = "x"\nphone_country = "+254"\n',
    "same_mark": 'decimal = ","\nthousands = ","\ndates = "us"\n',
    "words": '[words.status]\nx = "done"\ny = 3\n[words.kind]\nz = ""\n',
}

RULES: Final[Mapping[str, str]] = {
    "not_toml": "a\x00 = 1",
    "too_large": "#" * 70_000,
    "unknown": 'date_windw = "2 days"\ncolour = 1\n',
    "durations": 'settle_margin = 7\nbook_margin = "2 weeks"\ncurrency = "KSH"\n',
    "currency": "currency = 3\n",
    "shapes": "tolerance = 3\naccept_alone_max = 'x'\nfee = 3\n",
    "fee_shapes": "fee = [3]\n",
    "amounts": '[tolerance]\nKES = "0.001"\nUGX = "-5"\nXAU = "1"\nUSD = "1e3"\n'
    "[accept_alone_max]\nKES = 5000.0001\nUSD = true\n",
    "fees": '[[fee]]\nsource = "shop"\ncurrency = "KES"\npercent = "101"\n[[fee]]\n'
    'source = "shop"\ncurrency = "KES"\npercent = true\n[[fee]]\npercent = "1"\nflat = 2\n'
    '[[fee]]\nsource = "till"\n'
    'currency = "KSH"\nfixed = "0.001"\ntolerance = "-1"\n[[fee]]\nsource = 3\ncurrency = "KES"\n',
    "fee_amounts": '[[fee]]\nsource = "shop"\ncurrency = "KES"\nfixed = "0.001"\ntolerance = "-1"\n'
    'percent = "0.00001"\n',
}

ACCOUNTS: Final[Mapping[str, str]] = {
    "not_toml": "[accounts",
    "no_table": "accounts = 3\n",
    "many": '[acounts]\n[accounts]\nbanc = "Assets:Bank"\nbank = "assets"\nfees = 3\n',
}

KINDS: Final[Mapping[str, tuple[Mapping[str, str], Callable[[str, str], object]]]] = {
    "profile": (PROFILES, lambda name, text: read_profile(Path(f"{name}.toml"), text)),
    "mapping": (MAPPINGS, lambda name, text: read_mapping(text.encode(), BookForm.FIELDS)),
    "rules": (RULES, lambda name, text: read_rules(text)),
    "accounts": (ACCOUNTS, lambda name, text: accounts_of(text)),
}


def _messages(read: Callable[[str, str], object], name: str, text: str) -> str:
    try:
        read(name, text)
    except TallyhookError as error:
        return f"{type(error).__name__}\n{error}\n"
    return "nothing is wrong\n"


def test_every_message_of_every_wrong_file_is_the_one_on_record() -> None:
    lines = "\n".join(
        f"=== {kind} {name}: {_messages(read, name, text)}"
        for kind, (files, read) in KINDS.items()
        for name, text in files.items()
    )
    same_text("toml_messages.txt", lines)


def test_the_right_files_beside_them_have_no_message() -> None:
    read_profile(Path("good.toml"), GOOD)
    for path in SHIPPED.glob("*.toml"):
        read_profile(path, path.read_text(encoding="utf-8"))
