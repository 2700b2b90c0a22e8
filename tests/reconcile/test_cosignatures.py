"""Cosignatures and verifier keys: published ones verify, and what is not in form is refused."""

import base64

import pytest

from app.evidence.keys import PublicKey
from app.evidence.seal import note_holds, read_checkpoint
from app.evidence.witnesses import WrongCosignature, cosigned_at
from reconcile.instants import format_instant
from reconcile.transparency import cosignatures
from tests.rows import for_each

ARCHE = """\
arche2025h1.staging.ct.transparency.dev
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— arche2025h1.staging.ct.transparency.dev zTM8sQAAAZ5W0WdjBAMARjBEAiBjW5IQf9pvsYLfQFX6hoGREPMHbdQ3\
urbllzalApkptQIgIpwtEroeW2BXaHAI4kJXFbon5Ch9MNL5zRNZ55lvGt0=
— arche2025h1.staging.ct.transparency.dev ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3NygNI7\
5MdhL1bfTW9g8Ei59RA23oHP7Ry1k3ZFWwQ=
— transparency.dev/DEV:witness-little-garden 2AQqhwAAAABqEiEgzgFIqqhbUoDwjMWE6UP8nd8/KYTzwZ2rhIgcq\
oXHAwVkjZr4AscylP3v7sEodkRAErumC2q44vdgJY096st5BQ==
— witness1.smartit.nu/witness1 pIyCDwAAAABqEiEghIp82KWebrw7/oHQwlTAm3g2RKS4+eebl8eO0WH+/iEcxZ75W3u\
5hNI7TOQtmJbqmNWVuE0tgh0XwzdZsDsUAQ==
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5\
XeU/zZ0WBxtqB0DrAWfBw==
— witness.stagemole.eu Z/euoAAAAABqEiEgw0i+7g2ENfDAWHmtRzCfKTHSDwYDJA2NmKeGi9Y8FtEyOUvVr+AJmIY/2TU\
FucgKi7lI7cUiOvKFYe/TmN9DAg==
"""
"""A checkpoint of a public log as four public witnesses cosigned it."""

WITNESSES = (
    "transparency.dev/DEV:witness-little-garden+d8042a87"
    "+BCtusOxINQNUTN5Oj8HObRkh2yHf/MwYaGX4CPdiVEPM",
    "witness1.smartit.nu/witness1+a48c820f+BPSFWg9G6KPiO7QPryYO5Xq4oYJJ+kAvLKLSimDhoxMO",
    "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2",
    "witness.stagemole.eu+67f7aea0+BEqSG3yu9YrmcM3BHvQYTxwFj3uSWakQepafafpUqklv",
)
"""Verifier keys of public witnesses, as their operators publish them."""

BEHIND_THE_SOFA = """\
example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGz\
Gku9nTo+zyWE+xeMcTOAYQ8=
"""
W1 = (
    "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2o"
    "yin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)
"""The example of C2SP's tlog-checkpoint and tlog-cosignature."""


@for_each("text", WITNESSES)
def test_what_public_witnesses_have_signed_verifies_with_their_published_keys(text: str) -> None:
    key = cosignatures.read_cosigner(text)
    assert key.text == text
    at = cosigned_at(ARCHE, key)
    assert at is not None
    assert format_instant(at) == "2026-05-23T21:50:24Z"
    with pytest.raises(WrongCosignature):
        cosigned_at(ARCHE.replace("1432088532", "1432088533"), key)
    assert cosigned_at(BEHIND_THE_SOFA + W1, key) is None


def test_the_logs_own_signature_beside_them_verifies() -> None:
    raw = base64.b64decode("AU0vHmlGCS/PdN8b2OaGmKprLI8HKM+dJ472xgFYh15f")[1:]
    assert note_holds(ARCHE, name=ARCHE.split("\n")[0], public=PublicKey(raw))
    assert read_checkpoint(ARCHE).size == 1_432_088_532


def test_the_published_note_of_the_format_verifies() -> None:
    """The test vector of the signed-note specification."""
    raw = base64.b64decode("AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")[1:]
    note = (
        "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppz"
        "i2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
    )
    assert note_holds(note, name="example.com/foo", public=PublicKey(raw))


def test_the_published_cosignature_is_taken_apart() -> None:
    found = cosignatures.signatures_of(BEHIND_THE_SOFA + W1)
    assert [each.name for each in found] == [
        "example.com/behind-the-sofa", "witness.example.com/w1",
    ]  # fmt: skip
    assert cosignatures.timed_signature(found[0].content) is None
    timed = cosignatures.timed_signature(found[1].content)
    assert timed is not None
    assert (timed[0], len(timed[1])) == (1_679_315_147, 64)
    assert cosignatures.cosigned_message(cosignatures.body_of(BEHIND_THE_SOFA), time=timed[0]) == (
        b"cosignature/v1\ntime 1679315147\nexample.com/behind-the-sofa\n20852163\n"
        b"CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    )


def test_a_request_is_the_published_one() -> None:
    hashes = (
        "PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=",
        "jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=",
        "5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=",
        "/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=",
    )
    lines = ["old 20852014", *hashes, "", BEHIND_THE_SOFA]
    asked = cosignatures.add_checkpoint(
        old=20_852_014,
        proof=[base64.b64decode(each) for each in hashes],
        note=BEHIND_THE_SOFA,
    )
    assert asked == "\n".join(lines).encode()
    first = cosignatures.add_checkpoint(old=0, proof=[], note=BEHIND_THE_SOFA)
    assert first == b"old 0\n\n" + BEHIND_THE_SOFA.encode()


@for_each(
    ("said", "size"),
    [(b"0\n", 0), (b"20852014\n", 20_852_014), (b"1", None), (b"01\n", None), (b"-1\n", None),
     (b"1\n\n", None), (b"", None), (b"9" * 20 + b"\n", None), ("\u0661\n".encode(), None)],
)  # fmt: skip
def test_a_size_is_a_number_and_a_newline(said: bytes, size: int | None) -> None:
    assert cosignatures.stated_size(said) == size


GOOD = WITNESSES[2]


@for_each(
    ("text", "why"),
    [
        ("", "no verifier key"),
        ("remora.n621.de", "no verifier key"),
        (GOOD.replace("remora", "re mora"), "no verifier key"),
        (GOOD.replace("+da77ade7", "+DA77ADE7"), "no verifier key"),
        (GOOD.replace("+da77ade7", "+da77ade8"), "has an id that does not match"),
        (GOOD.replace("remora", "demora"), "has an id that does not match"),
        (GOOD[:-1] + "3", "has an id that does not match"),
        (GOOD + "==", "no verifier key"),
        ("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW", "is not a witness"),
        (GOOD.partition("+B")[0] + "+BA==", "is not a witness"),
    ],
)
def test_what_is_no_key_of_a_witness_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        cosignatures.read_cosigner(text)


def test_lines_that_are_no_signatures_are_passed_over() -> None:
    assert (
        cosignatures.read_signatures("— a\n— a b c\n- a AAAAAAAA\n— a+b AAAAAAAA\n— a AAAA\n\nx")
        == []
    )
    assert [each.name for each in cosignatures.read_signatures("— a AAAAAAAA\n— b !\n")] == ["a"]
    assert cosignatures.signatures_of("— a AAAAAAAA") == []
    assert not cosignatures.is_key_name("a" * 256)


def test_a_signature_of_another_length_in_a_witnesss_name_is_wrong() -> None:
    key = cosignatures.read_cosigner(WITNESSES[2])
    short = base64.b64encode(key.id + b"\x00" * 71).decode()
    with pytest.raises(WrongCosignature):
        cosigned_at(f"{BEHIND_THE_SOFA}— {key.name} {short}\n", key)
    late = base64.b64encode(key.id + b"\xff" * 72).decode()
    with pytest.raises(WrongCosignature):
        cosigned_at(f"{BEHIND_THE_SOFA}— {key.name} {late}\n", key)
