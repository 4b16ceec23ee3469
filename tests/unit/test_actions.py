"""Actions of a framework's profiler, in C: heard on one thread, and otherwise nothing."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref
from typing import Any

import pytest
from trainperf import _native as native


def test_an_action_goes_with_who_holds_it() -> None:
    class Listener:
        def hears(self) -> None: ...

    listener = Listener()
    listener.action = native.action_bracket("mine", listener.hears, listener.hears, threading.get_ident())  # type: ignore[attr-defined]
    gone = weakref.ref(listener)
    with listener.action as name:  # type: ignore[attr-defined]
        assert name == "mine" == listener.action.name  # type: ignore[attr-defined]
    del listener
    gc.collect()
    assert gone() is None


def test_what_an_action_raises_comes_out_of_it() -> None:
    def raises() -> None:
        raise KeyError("starts")

    here = threading.get_ident()
    with pytest.raises(KeyError, match="starts"), native.action_bracket("a", raises, raises, here):
        pytest.fail("it was not entered")
    with pytest.raises(KeyError, match="starts"), native.action_bracket("a", lambda: None, raises, here):
        raise ValueError("of the loop")
    with pytest.raises(ValueError, match="of the loop"), native.action_bracket("a", raises, raises, here + 1):
        raise ValueError("of the loop")


@pytest.mark.parametrize("wrong", [(), ("a", "b")])
def test_an_action_is_asked_for_by_one_name(wrong: tuple[str, ...]) -> None:
    profile = native.action_lookup({"a": native.action_bracket("a")})
    assert profile("a").name == profile(action_name="a").name == "a"
    with pytest.raises(TypeError, match="one argument"):
        profile(*wrong)
    with pytest.raises(TypeError, match="one argument"):
        profile("a", action_name="a")  # type: ignore[misc]
    with pytest.raises(KeyError):
        profile("b")
    assert list(inspect.signature(profile).parameters) == ["action_name"]
    with pytest.raises(TypeError, match="one function"):
        profile("a")()


@pytest.mark.parametrize("wrong", [(5,), ("a", print), ("a", print, print), ("a", 5, print, 1), ("a", print, 5, 1)])
def test_what_no_action_is_made_of(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        native.action_bracket(*wrong)


def test_nothing_takes_everything() -> None:
    assert native.nothing() is native.nothing(1, None, state=2) is None  # type: ignore[func-returns-value]
    assert str(inspect.signature(native.nothing)) == "(*args, **kwargs)"
