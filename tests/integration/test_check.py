"""`trainperf check -- train.py`: the settings of a script, from a short run of it that nothing is left of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainperf.cli.main import main

# Steps, not seconds, end it: it is done before five seconds are over.
SCRIPT = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.autograd.set_detect_anomaly(True)
torch.use_deterministic_algorithms(True, warn_only=True)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), float(sys.argv[1]))
for step in range(200):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def test_a_script_is_run_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trainperf.prove.trial.Zygote", pytest.fail)  # no trial follows that it would fork
    Path("train.py").write_text(SCRIPT)
    assert main(["check", "--json", "--", "python", "train.py", "0.1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["steps"]) == ("python train.py 0.1", 200)
    states = {s["id"]: s["state"] for s in document["settings"]}
    proofs = {s["id"]: s["prove"] for s in document["settings"]}
    assert proofs["deterministic"] == "trainperf try --change deterministic=off -- python train.py 0.1"
    assert states["anomaly"] in ("costs", "unpriced") and states["tracer"] == "fine"
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("words", [[], ["a.tpr", "b.tpr"]])
def test_it_takes_one_run_or_a_script(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    assert "give one RUN, or a script after --: trainperf check -- python train.py" in capsys.readouterr().err


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.py"]) == 1
    assert capsys.readouterr().err.strip() == "trainperf check: there is no script nowhere.py"
