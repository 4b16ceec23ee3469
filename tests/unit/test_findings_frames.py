"""Which code is the user's, and how its path is told."""

from __future__ import annotations

import pytest
from trainperf.findings.frames import is_user_file, short_path


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("/home/me/job/train.py", True),
        ("train.py", True),
        ("/tmp/ipykernel_71/123.py", True),
        ("<stdin>", True),
        ("/home/me/trainperf/train.py", True),
        ("/home/me/lib/python/mine.py", True),
        ("/home/me/torch/examples/train.py", True),
        ("/usr/lib/python3.11/threading.py", False),
        ("/opt/venv/lib/python3.12/site-packages/numpy/core.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        ("/src/pytorch/torch/nn/modules/module.py", False),
        ("/src/pytorch/torch/serialization.py", False),
        ("/x/lib/python3.11/site-packages/trainperf/hooks/dataloader.py", False),
        ("/src/x/python/trainperf/hooks/dataloader.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),  # by itself: see is_users
        ("", False),
    ],
)
def test_which_code_is_the_users(file: str, user: bool) -> None:
    assert is_user_file(file) is user


def test_short_paths() -> None:
    assert short_path("/home/me/job/a/b.py", "/home/me/job") == "a/b.py"
    assert short_path("/home/me/jobs/b.py", "/home/me/job") == "/home/me/jobs/b.py"
    assert short_path("/v/lib/python3.11/site-packages/torch/x.py", "/home") == "torch/x.py"
    assert short_path("/usr/lib/python3.11/json/encoder.py") == "json/encoder.py"
