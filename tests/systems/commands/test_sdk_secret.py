"""A Secret shows itself to nobody who does not ask for it by name."""

import copy
import io
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass, replace

import msgspec
import pytest
from rich.console import Console
from rich.pretty import pretty_repr
from rich.traceback import Traceback

from farhand.systems.commands import Secret

CODE = "2@AbCdEf-the-code-that-links-a-phone"


@dataclass(frozen=True)
class Link:
    """What a handler might pass around."""

    instance: str
    code: Secret[str]


class Packed(msgspec.Struct):
    """The same, of another library."""

    code: Secret[str]


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(CODE)),
        str(Secret(CODE)),
        f"{Secret(CODE)}",
        f"{Secret(CODE)!r:>80}",
        f"{Secret(CODE):>80}",
        "{0} {0!r} {0!s}".format(Secret(CODE)),  # noqa: UP030, UP032  (the way it is written is what is tested)
        "%s %r" % (Secret(CODE), Secret(CODE)),  # noqa: UP031  (the same)
        repr([Secret(CODE), {"code": Secret(CODE)}, (Secret(CODE),)]),
        repr(Link(instance="shop", code=Secret(CODE))),
        str(asdict(Link(instance="shop", code=Secret(CODE)))),
        repr(replace(Link(instance="shop", code=Secret(CODE)), instance="other")),
        repr(Packed(code=Secret(CODE))),
        str(ValueError(Secret(CODE))),
        repr(ValueError("bad", Secret(CODE))),
        pretty_repr(Link(instance="shop", code=Secret(CODE))),
        repr(Secret({"code": CODE})),
        repr(Secret(CODE.encode())),
    ],
)
def test_it_is_masked_wherever_it_is_shown(shown: str) -> None:
    assert CODE not in shown
    assert "********" in shown


def test_the_mask_tells_nothing_of_its_length() -> None:
    assert repr(Secret("a")) == repr(Secret(CODE))


def test_a_log_line_holds_the_mask(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger("shop").info("linked %s %r", Secret(CODE), Link(instance="x", code=Secret(CODE)))
    assert "********" in caplog.text
    assert CODE not in caplog.text


def _fail(code: Secret[str]) -> None:
    held = {"code": code}
    raise ValueError(held)


def test_tracebacks_hold_the_mask_also_with_local_names() -> None:
    try:
        _fail(Secret(CODE))
    except ValueError as error:
        plain = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        console = Console(file=io.StringIO(), width=200, record=True)
        console.print(Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True))
    for shown in (plain, console.export_text()):
        assert "********" in shown
        assert CODE not in shown


def test_no_encoder_takes_it() -> None:
    for value in (Secret(CODE), {"code": Secret(CODE)}, [Secret(CODE)]):
        with pytest.raises(TypeError):
            json.dumps(value)
        with pytest.raises(TypeError):
            msgspec.json.encode(value)
        with pytest.raises(TypeError):
            msgspec.to_builtins(value)
        with pytest.raises(TypeError):
            pickle.dumps(value)
    with pytest.raises(TypeError):
        msgspec.json.encode(Link(instance="shop", code=Secret(CODE)))
    with pytest.raises(TypeError):
        "" + Secret(CODE)  # type: ignore[operator]  (the test's point)


def test_it_has_no_dictionary_to_look_into() -> None:
    with pytest.raises(TypeError):
        vars(Secret(CODE))


def test_who_asks_gets_it_whole() -> None:
    assert Secret(CODE).reveal() == CODE
    assert copy.deepcopy(Secret(CODE)).reveal() == CODE
    assert copy.copy(Secret(CODE)) == Secret(CODE)


def test_secrets_compare_by_what_they_hold() -> None:
    assert Secret(CODE) == Secret(CODE)
    assert Secret(CODE) != Secret("other")
    assert Secret(CODE) != CODE
    assert len({Secret(CODE), Secret(CODE), Secret("other")}) == 2
    assert not Secret("")
    assert Secret(CODE)
