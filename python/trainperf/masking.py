"""Leaves secrets out of what a run keeps of its command line: names stay, values become ***.

masked(["train.py", "--api-key", "abc", "wandb.token=abc", "s3://user:abc@host"])

A value is masked for its name (--api-key, hub_token=, "password":), for its place (in a URL) or for its shape (hf_...).
docs/privacy.md says what is masked and what is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_HARMLESS: Final = frozenset({"", "true", "false", "none", "null", "yes", "no", "on", "off", "0", "1"})

# Parts of a name, split at -, _, . and between cases. One of these anywhere makes its value a secret.
_ALWAYS: Final = _set(
    "password passwd passphrase pwd credential credentials creds apikey apikeys accesskey secretkey privatekey "
    "authtoken bearer authorization webhook jwt cookie cookies otp dsn sas pat"
)
# These within a part, whatever it is joined with: userpassword, clientsecret.
_WITHIN: Final = ("passw", "secret", "credential")
# "key" is a secret behind one of these; alone or behind others (monitor_key) it is, as a rule, the key of a dict.
_KEYS_OF: Final = _set(
    "api access private account storage license licence encryption decryption signing master service ssh auth admin "
    "shared subscription session deploy server client app application write ingest ssl tls rsa hmac aes gpg pgp host "
    "token hub hf huggingface wandb comet neptune clearml mlflow swanlab openai anthropic azure aws gcp google gemini "
    "mistral cohere groq together replicate openrouter deepseek nvidia ngc kaggle github gitlab slack datadog sentry "
    "roboflow labelbox dagshub lightning s3 minio r2 b2"
)
# "token" is one of a text or of images behind these.
_TOKENS_OF_TEXT: Final = _set(
    "pad eos bos eot unk mask masked cls class sep special start end stop begin image img audio video visual text max "
    "min num n per first last next previous prev prompt target placeholder initializer new prefix suffix decoder "
    "forced word blank patch trigger modifier vocab separator think by sub register query space"
)
_TOKENS_OF: Final = _set("api access auth hf hub huggingface wandb github gitlab refresh bearer")
_PASS_OF: Final = _set(
    "db database user smtp mail email admin root redis mysql postgres pg mongo ssh key http proxy login ftp my registry"
)
_FLAGS_OF_AUTH: Final = _set("no use with enable disable require skip")
_OF_PLACES = frozenset({"file", "path", "dir", "folder", "name", "env", "type"})  # what holds no secret itself
_TAIL: Final = _set("value val str string text plain raw b64 base64")  # of the name before it

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[a-z]+|\d+")
_RANDOM: Final = re.compile(r"[0-9a-fA-F]{32,}|(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=]{20,}")

_OPTION: Final = re.compile(r"--?[A-Za-z][\w.-]*")
_ASSIGNED: Final = re.compile(r"([-+~]*[A-Za-z_][\w./-]*)(=)(.*)", re.DOTALL)
# name=value, name: value, "name": "value" within a text. Each name is tried once: linear in the text's length.
_NAMED: Final = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]+)\\?["']?\s{0,3}(?:=>|:=|[:=])\s{0,3}""")
_NAMED_VALUE: Final = re.compile(
    r"""(?P<quote>\\?["'])(?P<quoted>(?:[^"'\\]|\\[^"'])*)(?P=quote)|(?P<plain>[^\s"',;&}\])]+)"""
)
_IN_QUERY: Final = re.compile(
    r"(?P<name>[?&#;](?:sig|[\w-]*signature|key|code|policy|x-amz-credential|awsaccesskeyid|googleaccessid)=)[^&#\s\"']+",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(
    r"(?P<name>authorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)(?P<scheme>[A-Za-z][\w-]{0,20}\s+)?[^\s\"',}]+",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
# user:password@host. The password may hold a / or an @; what follows a port is a path.
_USER: Final = re.compile(r"(://[^\s/?#\"'@:\[]*:)(?!\d{1,5}[/?#])[^\s\"']{1,500}@")
_HTTP_USER: Final = re.compile(r"(https?://)[^\s/?#\"'@:]+@", re.IGNORECASE)
_HOOK: Final = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot)[^\s\"'?]+"
)
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|sk-(?:proj|ant|or|svcacct|admin|lf)-[\w-]{16,}|sk-[A-Za-z0-9]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|nvapi-[\w-]{20,}"
    r"|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{20,}|dckr_pat_[\w-]{16,}"
    r"|wandb_v\d_[A-Za-z0-9_]{16,}|eyJ[\w-]{8,2000}\.eyJ[\w-]{8,2000}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))",
    re.DOTALL,
)


def masked(words: Sequence[str]) -> list[str]:
    """The words of a command line, without the values of secrets."""
    found: list[str] = []
    option, several = "", False  # the secret option whose value may come next; it may have several
    for word in words:
        if option and not _OPTION.fullmatch(word.partition("=")[0]):
            found.append(_value(option, word))
            option = option if several else ""
            continue
        option = ""
        found.append(mask_text(word))
        if _OPTION.fullmatch(word) and _may_be_secret(word):
            option, several = word, word.endswith("s")
    return found


def mask_text(text: str) -> str:
    """A word, a header, JSON, code or a URL, without the secrets in it."""
    whole = _ASSIGNED.fullmatch(text)
    if whole is not None and _may_be_secret(whole[1]):
        return whole[1] + whole[2] + _value(whole[1], whole[3])
    text = _SHAPES.sub(MASK, text)
    text = _USER.sub(rf"\1{MASK}@", text)
    text = _HTTP_USER.sub(rf"\1{MASK}@", text)
    text = _HOOK.sub(rf"\1{MASK}", text)
    text = _AUTHORIZATION.sub(lambda m: f"{m['name']}{m['scheme'] or ''}{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _IN_QUERY.sub(rf"\g<name>{MASK}", text)
    return _mask_named(text)


def _mask_named(text: str) -> str:
    parts: list[str] = []
    done = at = 0
    while (found := _NAMED.search(text, at)) is not None:
        at = found.end()
        name = found["name"]
        if name.lower().endswith("authorization") or not _may_be_secret(name):
            continue
        value = _NAMED_VALUE.match(text, at)
        if value is None or value[0].startswith("//"):  # of token://x, no value
            continue
        group = "plain" if value["plain"] is not None else "quoted"
        parts += [text[done : value.start(group)], _value(name, value[group])]
        done = value.end(group)
        at = value.end()
    return "".join([*parts, text[done:]])


def _value(name: str, value: str) -> str:
    """What stands in place of the value of a name that may be a secret's."""
    if value.lower() in _HARMLESS:
        return value  # a switch
    return MASK if is_secret(name) or _RANDOM.fullmatch(value) else mask_text(value)


def _may_be_secret(name: str) -> bool:
    """Also of a name that ends in "key", which is a secret's when its value is as random as one."""
    parts = _parts(name)
    return bool(parts) and (parts[-1] == "key" or is_secret(name))


def is_secret(name: str) -> bool:
    """Whether an option, a variable or a setting of that name holds a secret: --hub-token, WANDB_API_KEY, a.b.password.

    Not --tokenizer, --max-tokens, --pad-token, --monitor-key, --author; nor --token-file, which holds a path.
    """
    head, *rest = reversed([_parts(step) for step in name.split(".") if step] or [[]])
    if any("secrets" in step or "credentials" in step for step in rest):
        return True
    parts = head
    while len(parts) > 1 and parts[-1] in _TAIL:
        if parts[-2:] == ["connection", "string"]:
            return True
        parts = parts[:-1]
    if parts[-2:] == ["key", "id"]:
        parts = parts[:-1]
    if not parts or (len(parts) > 1 and parts[-1] in _OF_PLACES):
        return False
    if _ALWAYS.intersection(parts) or any(word in part for part in parts for word in _WITHIN):
        return True
    return _ends_as_secret(parts[-1], parts[-2] if len(parts) > 1 else "")


def _ends_as_secret(last: str, before: str) -> bool:
    """Of a name by its last word, which may be a secret's or not, and the one before."""
    if last in ("key", "keys"):
        return before in _KEYS_OF
    if last == "tokens":
        return before in _TOKENS_OF
    if last.endswith("token"):
        return (last.removesuffix("token") or before) not in _TOKENS_OF_TEXT
    if last == "pass":
        return not before or before in _PASS_OF
    return last in ("auth", "oauth") and before not in _FLAGS_OF_AUTH


def _parts(name: str) -> list[str]:
    """["wandb", "api", "key"] of --wandb-api_key, WANDB_API_KEY and wandbApiKey."""
    return [part.lower() for part in _PART.findall(name.rpartition(".")[2])]
