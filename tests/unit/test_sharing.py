"""What is made to be sent names neither the machine nor anybody's home folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.report.sharing import homeless, hostless, sent_meta


def build(path: Path, **meta: str) -> Path:
    file = RunFile(
        path,
        **({"host": "gpu17.acme", "home": "/data/users/alice", "cwd": "/data/users/alice/p"} | meta),  # type: ignore[arg-type]
    )
    where = file.stack("/data/users/alice/p/train.py:4 slow", "/home/bob/lib/fit.py:9 fit")
    file.steps(60, python=8.0, compute=2.0).detail("sample", 400, thread=file.step_thread, stack=where)
    return file.build()


@pytest.mark.parametrize("output", ["a.html", "a.json", "a.trace.json", "a.parquet"])
def test_neither_host_nor_home_is_sent(tmp_path: Path, output: str) -> None:
    if output.endswith("parquet"):
        pytest.importorskip("pyarrow")
    run, target = build(tmp_path / "a.tpr"), tmp_path / output
    assert main(["report" if output.endswith("html") else "export", str(run), "-o", str(target)]) == 0
    text = target.read_bytes()
    assert not [word for word in (b"gpu17", b"acme", b"alice", b"/home/bob") if word in text]


def test_ranks_of_several_machines_have_numbers(tmp_path: Path) -> None:
    for rank in range(2):
        build(tmp_path / f"a.rank{rank}.tpr", rank=str(rank), world_size="2", host=f"gpu1{rank}.acme")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "acme" not in page and "host 1" in page and "host 2" in page


def test_a_comparison_names_no_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = build(tmp_path / "a.tpr"), build(tmp_path / "b.tpr", host="gpu18.acme")
    main(["compare", str(a), str(b), "-o", str(tmp_path / "c.html")])
    assert "not the same host: gpu17.acme -> gpu18.acme" in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "acme" not in page and "not the same host" in page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/a.py", "~/a.py"),
        ('{"f":"/Users/al ice"}', '{"f":"~ ice"}'),
        ("(/data/u/me/a.py:3)", "(~/a.py:3)"),
        ("/data/u/menu/a.py /data/u/me", "/data/u/menu/a.py ~"),
        (
            "/mnt/home/alice /srv/data/u/me/x https://x.org/home/alice",
            "/mnt/home/alice /srv/data/u/me/x https://x.org/home/alice",
        ),
    ],
)
def test_homes(text: str, expected: str) -> None:
    assert homeless(text, [{"home": "/data/u/me/"}]) == expected


def test_a_home_that_is_the_root_is_none() -> None:
    assert homeless("/usr/lib/x.py", [{"home": "/"}, {"home": ""}, {"home": "usr"}]) == "/usr/lib/x.py"
    assert "host" not in sent_meta({"host": "h", "torch": "2"}) and sent_meta({"torch": "2"}) == {"torch": "2"}
    assert json.dumps(hostless({"run": {"host": "h", "name": "n"}})) == '{"run": {"host": "", "name": "n"}}'
