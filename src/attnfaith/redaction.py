"""Secrets in text: what is known as one by its form, its name or its value, and how it is left out or refused.

Known by form: access tokens of the Hub and of other services, user and password in a URL, bearer strings, private keys. By
name: what stands after --token, --auth or --passwd, password= or "api_key":. By value: what this process was given, in an
environment variable or an option of such a name. A secret that has no form and no name that says so is not known as one.
"""

import os
import re
import sys
from collections.abc import Mapping
from urllib.parse import quote


HIDDEN = "***"
SHORTEST = 8  # characters of a value that is a secret: shorter ones are flags
_NAMED = r"(?:token|secret|passw(?:or)?d|passphrase|(?:api|access|private)[-_]?key|auth|authorization|credentials?)"
_SPECIAL = "".join(f"(?<!{kind}_)" for kind in ("pad", "unk", "cls", "sep", "bos", "eos", "mask", "sentence"))
OPTION = re.compile(rf"(?:^|[._-]){_SPECIAL}{_NAMED}$", re.I)
"""An option or a key whose value is a secret: --hub_token, arguments.password; not batch_tokens, tokenizer, pad_token."""
VARIABLE = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|PASSPHRASE|API_?KEY|(?:ACCESS|PRIVATE)_KEY|AUTH|CREDENTIALS?|PAT)"
    r"(?:_(?!PATH|FILE|DIR|SOCK|NAME|USER|TYPE|METHOD)[A-Z0-9]+)*$"
)
"""An environment variable whose value is a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY; not TOKENIZERS_PARALLELISM."""
TOKEN = re.compile(
    r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b"
    r"|\bgh[oprsu]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bpypi-[\w-]{40,}"
    r"|\beyJ[\w-]{10,}\.[\w-]{6,}\.[\w-]{6,}"
)
"""Access tokens that their beginning and length tell: of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, PyPI, and JWT."""
_USERINFO = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)(?!\*\*\*@)(?:[^\s/:@'\"<>]+:(?!\d+/)[^\s'\"<>]+|[^\s/?#'\"<>\\]+)@"
)
_BEARER = re.compile(r"\b(bearer\s+)(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})", re.I)
_AUTHORIZATION = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?)((?:bearer|basic|token|digest|negotiate)\s+)?[^\s'\",;&}\])]+", re.I
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
# name=value and "name": value, not a tokenizer's pad_token='<pad>'
_ASSIGNED = re.compile(
    rf"((?<![A-Za-z0-9]){_SPECIAL}{_NAMED}(?:=|['\"]\s*:\s*))(?!(?:None|null|true|false)\b)"
    r"(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\",;&}\])]+)",
    re.I,
)
_FORMS = {
    "an access token": TOKEN,
    "a user or password in a URL": _USERINFO,
    "a bearer string": _BEARER,
    "a private key": _PRIVATE_KEY,
}


def redacted(text: str) -> str:
    """The text with *** in place of each secret in it."""
    for value in sorted(known_secrets(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    text = _PRIVATE_KEY.sub(HIDDEN, TOKEN.sub(HIDDEN, text))
    text = _BEARER.sub(rf"\1{HIDDEN}", _USERINFO.sub(rf"\1{HIDDEN}@", text))
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _AUTHORIZATION.sub(rf"\1\2{HIDDEN}", text))


def redacted_tree(value, key: str = ""):
    """JSON with *** in place of each secret in its texts, and of each text whose key names a secret."""
    if isinstance(value, Mapping):
        return {redacted(str(name)): redacted_tree(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_tree(item, key) for item in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if value and OPTION.search(key) else redacted(value)


def secret_in(text: str) -> str | None:
    """What kind of secret a text holds, in words that do not repeat it: "an access token"; None where it holds none."""
    for value, source in known_secrets().items():
        if value in text:
            return f"the value of {source}"
    return next((kind for kind, form in _FORMS.items() if form.search(text)), None)


def secret_of(value, place: str = "") -> tuple[str, str] | None:
    """(dotted key, kind of secret) of the first secret in nested keys and values; None where there is none."""
    if isinstance(value, Mapping):
        items = [(f"{place}.{name}" if place else str(name), item) for name, item in value.items()]
        if name := next((name for name in value if isinstance(name, str) and secret_in(name)), None):
            return place, secret_in(name)
    elif isinstance(value, list | tuple):
        items = [(place, item) for item in value]
    elif isinstance(value, str):
        kind = "what its key says is a secret" if value and OPTION.search(place) else secret_in(value)
        return kind and (place, kind)
    else:
        return None
    return next((told for name, item in items if (told := secret_of(item, name))), None)


def known_secrets() -> dict[str, str]:
    """{value: where it is from} of the secrets that this process was given by a variable or an option that names one."""
    values = {value: f"${name}" for name, value in os.environ.items() if VARIABLE.search(name)}
    for place, word in enumerate(sys.argv):
        option, separator, value = word.partition("=")
        if word.startswith("--") and OPTION.search(option):
            value = value if separator else next(iter(sys.argv[place + 1 : place + 2]), "")
            values |= {} if value.startswith("--") else {value: option}
    long = {value: source for value, source in values.items() if len(value) >= SHORTEST}
    return long | {quote(value, safe=""): source for value, source in long.items()}
