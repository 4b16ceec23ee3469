"""Put in and taken out again: other people's patches, late imports, failures."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from trainperf.hooks import Context, Hooks
from trainperf.hooks.backward import BackwardHook
from trainperf.hooks.checkpoint import CheckpointHook
from trainperf.hooks.patch import Patch


def scalar() -> torch.Tensor:
    return torch.ones(2, requires_grad=True).sum()


def hooks_of(recorder: Recorder, *hooks: Any) -> Hooks:
    made = Hooks(recorder, Session(), hooks or None)
    made.install()
    return made


def test_a_users_patch_before_ours_goes_on_being_called(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plain = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> None:
        calls.append("theirs")
        plain(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "backward", theirs)
    hooks = hooks_of(recorder, BackwardHook())
    scalar().backward()
    hooks.remove()
    assert calls == ["theirs"] and len(recorder.marks) == 2
    assert torch.autograd.backward is theirs


def test_a_users_patch_after_ours_survives_and_ours_passes_through(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = hooks_of(recorder, BackwardHook())
    ours = torch.autograd.backward
    calls: list[str] = []

    def theirs(*args: Any, **kwargs: Any) -> None:
        calls.append("theirs")
        ours(*args, **kwargs)

    torch.autograd.backward = theirs  # type: ignore[assignment]
    try:
        hooks.remove()
        assert torch.autograd.backward is theirs
        scalar().backward()
        assert calls == ["theirs"] and recorder.marks == []
        # A second watch over it all reports each backward once.
        again = hooks_of(recorder, BackwardHook())
        scalar().backward()
        assert len(calls) == 2 and recorder.words() == ["begin BACKWARD", "end BACKWARD"]
        again.remove()
        assert torch.autograd.backward is theirs
    finally:
        torch.autograd.backward = ours.__wrapped__  # type: ignore[attr-defined]


def test_save_is_the_same_by_both_names_again(recorder: Recorder) -> None:
    plain = torch.save
    hooks = hooks_of(recorder, CheckpointHook())
    assert torch.save is not plain
    hooks.remove()
    assert torch.save is plain and torch.serialization.save is plain


def test_an_inherited_attribute_is_deleted_again() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    patch = Patch(Child, "f", lambda original: lambda self: original(self) + 1)
    assert Child().f() == 2 and Base().f() == 1
    assert patch.remove()
    assert "f" not in vars(Child) and Child().f() == 1


@pytest.mark.parametrize("inherited", [False, True])
def test_a_static_method_is_refused(inherited: bool) -> None:
    """A function in its place would be given the object as well."""

    class Base:
        @staticmethod
        def f(x: int) -> int:
            return x

    class Child(Base):
        pass

    with pytest.raises(TypeError, match="not a plain function"):
        Patch(Child if inherited else Base, "f", lambda original: original)
    assert Child().f(3) == 3


def test_hooks_go_in_reverse_order_and_a_broken_one_does_not_stop_the_others(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []

    class Good:
        needs = ""

        def __init__(self, name: str) -> None:
            self.name = name

        def install(self, context: Context) -> None:
            order.append(f"+{self.name}")

        def remove(self) -> None:
            order.append(f"-{self.name}")

    class Broken(Good):
        def install(self, context: Context) -> None:
            raise LookupError("torch has changed")

    session = Session()
    hooks = Hooks(recorder, session, [Good("a"), Broken("b"), Good("c")])
    hooks.install()
    assert order == ["+a", "-b", "+c"]
    assert session.tiers["hook_b"] == ("off", "LookupError: torch has changed")
    assert "the b hook is off" in caplog.text
    order.clear()
    hooks.remove()
    hooks.remove()
    assert order == ["-c", "-a"]


class Stubborn:
    """A hook whose remove() is interrupted so many times."""

    needs = ""

    def __init__(self, name: str, interrupts: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.name = name
        self.interrupts = interrupts
        self.error = error
        self.removed = False

    def install(self, context: Context) -> None:
        self.removed = False

    def remove(self) -> None:
        if self.interrupts > 0:
            self.interrupts -= 1
            raise self.error(self.name)
        self.removed = True


def test_an_interrupt_while_hooks_go_leaves_none_of_them(recorder: Recorder) -> None:
    plain = torch.autograd.backward
    stubborn = Stubborn("a", 1)
    hooks = hooks_of(recorder, BackwardHook(), stubborn, Stubborn("b", 2, LookupError))
    with pytest.raises(LookupError, match="b"):
        hooks.remove()
    assert torch.autograd.backward is plain and stubborn.removed
    hooks.remove()


def test_an_interrupted_patch_is_not_forgotten(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.save
    hooks = hooks_of(recorder, CheckpointHook())
    remove, interrupts = Patch.remove, [KeyboardInterrupt]

    def interrupted(patch: Patch) -> bool:
        if interrupts:
            raise interrupts.pop()
        return remove(patch)

    monkeypatch.setattr(Patch, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hooks.remove()
    assert torch.save is plain and torch.serialization.save is plain


def test_a_hook_that_can_neither_be_put_in_nor_taken_out_does_not_raise(recorder: Recorder) -> None:
    class Broken(Stubborn):
        def install(self, context: Context) -> None:
            raise AttributeError("torch has changed")

    session = Session()
    hooks = Hooks(recorder, session, [Broken("b", 9, LookupError)])
    hooks.install()
    assert session.tiers["hook_b"] == ("off", "AttributeError: torch has changed")
    assert any("left in part" in note for note in session.notes)
    hooks.remove()


def test_a_torch_that_has_renamed_its_compile_callbacks(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import callback
    from trainperf.hooks.compiling import CompileHook

    monkeypatch.setattr(callback, "callback_handler", SimpleNamespace(renamed=[]))
    session = Session()
    hooks = Hooks(recorder, session, [CompileHook()])
    hooks.install()
    assert session.tiers["hook_compile"][0] == "off"
    hooks.remove()


LATE = """
import sys
sys.path.insert(0, {tests!r})
from recorder import Recorder, Session
from trainperf.hooks import Hooks

assert "torch" not in sys.modules
before = list(sys.meta_path)
recorder = Recorder()
session = Session()
hooks = Hooks(recorder, session)
hooks.install()
{body}
hooks.remove()
assert sys.meta_path == before, sys.meta_path
assert session.notes == [], session.notes
print("fine")
"""


def run_late(body: str) -> None:
    tests = str(Path(__file__).parents[1])
    program = LATE.format(tests=tests, body=textwrap.dedent(body))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_torch_imported_after_the_watch_began() -> None:
    run_late("""
        import torch
        assert "exec_module" not in vars(torch.__spec__.loader)
        assert type(torch.__spec__.loader).__name__ == "SourceFileLoader"
        loss = torch.ones(1, requires_grad=True).sum()
        loss.backward()
        from torch.utils.data import DataLoader
        next(iter(DataLoader([1, 2])))
        assert recorder.words("BACKWARD", "FETCH") == ["begin BACKWARD", "end BACKWARD", "begin FETCH", "end FETCH"]
        wrapped = torch.autograd.backward
    """)


def test_torch_imported_on_another_thread() -> None:
    run_late("""
        import threading
        def load():
            import torch
            torch.ones(1, requires_grad=True).sum().backward()
        thread = threading.Thread(target=load)
        thread.start(); thread.join()
        assert recorder.words("BACKWARD") == ["begin BACKWARD", "end BACKWARD"]
    """)


def test_torch_never_imported() -> None:
    run_late("""
        import json.tool, logging
        logging.getLogger("x").warning("y")
        assert recorder.words("LOGGING") == ["begin LOGGING"] * 2 + ["end LOGGING"] * 2
        assert "torch" not in sys.modules
    """)


def test_torch_absent() -> None:
    run_late("""
        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name == "torch":
                    raise ModuleNotFoundError("No module named 'torch'", name="torch")
        blocker = Blocker()
        sys.meta_path.insert(1, blocker)
        try:
            import torch
        except ModuleNotFoundError as error:
            assert error.name == "torch"
        else:
            raise AssertionError
        sys.meta_path.remove(blocker)
    """)


def test_two_that_wait_for_one_module_both_see_it_the_first_first(tmp_path: Path) -> None:
    from trainperf.hooks.late import LateImports

    (tmp_path / "trainperf_test_both.py").write_text("x = 1\n")
    seen: list[str] = []
    both = [
        LateImports(["trainperf_test_both"], lambda _, name=name: seen.append(name)) for name in ("first", "second")
    ]
    for late in both:
        late.install()
    sys.path.insert(0, str(tmp_path))
    try:
        assert __import__("trainperf_test_both").x == 1
        assert seen == ["first", "second"]
        assert "exec_module" not in vars(sys.modules["trainperf_test_both"].__spec__.loader)  # type: ignore[union-attr]
    finally:
        for late in both:
            late.remove()
        sys.path.remove(str(tmp_path))
        sys.modules.pop("trainperf_test_both", None)


def test_an_import_that_fails_and_is_tried_again(tmp_path: Path) -> None:
    from trainperf.hooks.late import LateImports

    module = tmp_path / "trainperf_test_flaky.py"
    module.write_text("import sys\nif not hasattr(sys, 'trainperf_test_ok'): raise ImportError('not yet')\nx = 1\n")
    seen: list[str] = []
    late = LateImports(["trainperf_test_flaky"], seen.append)
    late.install()
    sys.path.insert(0, str(tmp_path))
    flag = SimpleNamespace()
    try:
        with pytest.raises(ImportError, match="not yet"):
            __import__("trainperf_test_flaky")
        assert seen == []
        sys.trainperf_test_ok = flag  # type: ignore[attr-defined]
        assert __import__("trainperf_test_flaky").x == 1
        assert seen == ["trainperf_test_flaky"]
        assert late not in sys.meta_path  # nothing is left to wait for
    finally:
        late.remove()
        sys.path.remove(str(tmp_path))
        sys.modules.pop("trainperf_test_flaky", None)
        if hasattr(sys, "trainperf_test_ok"):
            del sys.trainperf_test_ok
