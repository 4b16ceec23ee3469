"""What a run keeps of its command line has no secrets in it, and all else as it was."""

from __future__ import annotations

import json
import sys
import time

import pytest
from trainperf import meta
from trainperf.masking import is_secret, mask_text, masked
from trainperf.settings import Settings

S = "s3cr3tV4lue"  # what must not be seen
HF, GH, AWS = "hf_" + "aB3" * 10, "ghp_" + "aB3" * 12, "AKIA" + "ABCD1234EFGH5678"
OPENAI, ANTHROPIC = "sk-" + "aB3" * 16, "sk-ant-api03-" + "aB3-" * 8
HEX = "0123456789abcdef0123456789abcdef01234567"  # as wandb's


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--api-key", S], ["--api-key", "***"]),
        (["--api_key=" + S], ["--api_key=***"]),
        (["-api-key", S], ["-api-key", "***"]),
        (["--wandbApiKey", S, "--lr", "1"], ["--wandbApiKey", "***", "--lr", "1"]),
        (["--hub-token", S], ["--hub-token", "***"]),
        (["--hub_token=" + S], ["--hub_token=***"]),
        (["--HF_TOKEN", S], ["--HF_TOKEN", "***"]),
        (["--hftoken", S], ["--hftoken", "***"]),
        (["--client-secret", S], ["--client-secret", "***"]),
        (["--password=a b,c;" + S], ["--password=***"]),
        (["--db-pass", S], ["--db-pass", "***"]),
        (["--pass", S], ["--pass", "***"]),
        (["--userpassword", S], ["--userpassword", "***"]),
        (["--aws-credentials", S, S], ["--aws-credentials", "***", "***"]),
        (["--auth", f"me:{S}"], ["--auth", "***"]),
        (["--basic-auth", f"me:{S}"], ["--basic-auth", "***"]),
        (["--aws-access-key-id", S], ["--aws-access-key-id", "***"]),
        (["--private-key", S], ["--private-key", "***"]),
        (["--encryption_key=" + S], ["--encryption_key=***"]),
        (["--key", HEX], ["--key", "***"]),
        (["--comet-key", S], ["--comet-key", "***"]),
        (["--hub_token", "true", "train"], ["--hub_token", "true", "train"]),
        (["--token", "--lr", "1"], ["--token", "--lr", "1"]),
        ([f"WANDB_API_KEY={S}", "python", "t.py"], ["WANDB_API_KEY=***", "python", "t.py"]),
        (["env", f"HF_TOKEN={S}", "LR=1"], ["env", "HF_TOKEN=***", "LR=1"]),
        ([f"wandb.api_key={S}"], ["wandb.api_key=***"]),
        ([f"+a.b.token={S}"], ["+a.b.token=***"]),
        ([f"++secrets.db={S}"], ["++secrets.db=***"]),
        ([f"logger={{token:{S},name:x}}"], ["logger={token:***,name:x}"]),
        ([f'{{"api_key": "{S}", "lr": 1}}'], ['{"api_key": "***", "lr": 1}']),
        ([f'--config={{"a": {{"hub_token":"{S}"}}}}'], ['--config={"a": {"hub_token":"***"}}']),
        ([f"Authorization: Bearer {S}"], ["Authorization: Bearer ***"]),
        ([f"Authorization: Basic {S}"], ["Authorization: Basic ***"]),
        ([f'{{"Authorization": "Bearer {S}"}}'], ['{"Authorization": "Bearer ***"}']),
        (["-H", f"X-Api-Key: {S}"], ["-H", "X-Api-Key: ***"]),
        (["-c", f"import wandb; wandb.login(key='{HEX}')"], ["-c", "import wandb; wandb.login(key='***')"]),
        (["-c", f"login(token='{S}'); fit()"], ["-c", "login(token='***'); fit()"]),
        ([f"postgres://me:{S}@host/db"], ["postgres://me:***@host/db"]),
        ([f"--db=postgres://me:p/{S}@host/db"], ["--db=postgres://me:***@host/db"]),
        (["redis://:" + S + "@host:6379"], ["redis://:***@host:6379"]),
        ([f"mysql://me:p@{S}@host"], ["mysql://me:***@host"]),
        ([f"https://{S}@github.com/a/b"], ["https://***@github.com/a/b"]),
        ([f"https://host/x?token={S}&n=1"], ["https://host/x?token=***&n=1"]),
        ([f"https://host/x#access_token={S}"], ["https://host/x#access_token=***"]),
        (
            [f"https://b.s3.amazonaws.com/k?X-Amz-Credential={S}&X-Amz-Date=1&X-Amz-Signature={S}"],
            ["https://b.s3.amazonaws.com/k?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***"],
        ),
        ([f"https://a.blob.core.windows.net/c?sv=2&sig={S}%3D"], ["https://a.blob.core.windows.net/c?sv=2&sig=***"]),
        ([f"AccountName=a;AccountKey={S}=="], ["AccountName=a;AccountKey=***"]),
        ([f"https://hooks.slack.com/services/T0/B0/{S}"], ["https://hooks.slack.com/services/***"]),
        (["--init", HF], ["--init", "***"]),
        (["-k", GH], ["-k", "***"]),
        ([f"x={AWS},y"], ["x=***,y"]),
        ([OPENAI, ANTHROPIC], ["***", "***"]),
        ([f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----"], ["***"]),
    ],
)
def test_secrets_are_masked_and_their_names_kept(words: list[str], expected: list[str]) -> None:
    assert masked(words) == expected
    assert masked(expected) == expected, "twice is once"


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "bert"],
        ["--tokenizer=bert", "--token-dropout=0.1", "--tokenization", "bpe"],
        ["--max-tokens", "512"],
        ["--num-tokens=3", "--tokens-per-batch", "4096", "--tokens", "a"],
        ["--pad-token", "<pad>", "--eos_token=</s>", "--mask-token-id", "103", "--image-token", "<image>"],
        ["--keyword", "loss", "--keywords=a", "--keys", "a,b", "--keypoints=17"],
        ["--monitor-key", "val_loss", "--key", "loss", "--sort_key=length", "--label-key", "fine_label"],
        ["--author", "me", "--authors=a", "--authority", "x"],
        ["--pass-through", "x", "--passes", "3", "--two-pass", "--bypass", "y", "--compass=north"],
        ["--token-file", "/run/token.txt", "--password-file=/run/p", "--api-key-env", "WANDB_API_KEY"],
        ["--no-auth", "train", "--auth-method", "oauth2"],
        ["https://host:8080/path@v1", "ssh://git@github.com/a", "https://host/a?page=2&v=1"],
        ["s3://bucket/a@b", "hf://datasets/me/x", "user@host:/data", "me@example.org"],
        ["--lr", "1e-3", "--seed", "0", "optim.name=adam", "+model.depth=3", "a=b=c"],
        ["--commit", HEX, "checkpoint-" + HEX, "--name", "sk-resnet50-long-run"],
        ["--config", '{"lr": 1, "tokenizer": "bert", "max_tokens": 5}'],
        ["--signature", "fp16", "--policy=ddp", "--code", "x.py", "--secondary", "1"],
        ["Note: this is a text, with words; and=more", ""],
    ],
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert masked(words) == words


def test_names() -> None:
    assert all(map(is_secret, ("a.b.password", "OPENAI_API_KEY", "s3SecretKey", "x-auth-token", "AZURE_SAS")))
    assert not any(map(is_secret, ("", "-", "...", "key", "token_type", "n_tokens", "pass_rate", "keyboard")))


def test_time_is_linear_in_the_length() -> None:
    began = time.process_time()
    for part in ("a", "token", "a=", "://a:", "'", '"', "\\", "token: ", "-", "a.", "://", "bearer ", '{"a":', " "):
        mask_text(part * (100_000 // len(part)))
    assert time.process_time() - began < 20  # it takes a fraction of a second; a square would take hours


def test_a_run_records_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/train.py", "--api-key", S, f"--hub_token={S}", "--tokenizer", "bert"])
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "train.py", "--api-key", S, f"wandb.key={HEX}"])
    found = meta.process_meta(Settings(), "1")
    assert S not in str(found) and HEX not in str(found)
    assert json.loads(found["argv"]) == ["/x/train.py", "--api-key", "***", "--hub_token=***", "--tokenizer", "bert"]
    assert json.loads(found["command"]) == ["python", "train.py", "--api-key", "***", "wandb.key=***"]
