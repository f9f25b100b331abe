"""Secrets of every kind: known in a text, refused in recipes and pushes, and in nothing that is said or written."""

import io
import json
import logging
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith import cli, launch, provenance, recipes, record, redaction
from attnfaith.errors import AttnfaithError, FileError, cut, excerpt
from attnfaith.hub.checks import refuse_secrets
from attnfaith.hub.repo import HubError, Repo
from attnfaith.recipes import RecipeError
from attnfaith.redaction import HIDDEN, known_secrets, redacted, redacted_tree, secret_in, secret_of
from attnfaith.runs import folder as run_folder
from attnfaith.study import cell as study_cell
from tests.records import draw


ROOT = Path(__file__).parents[1]
CANARY = "c4n4ry"
BY_FORM = {
    "user and password in a URL": f"https://me:{CANARY}@example.org/x.csv",
    "a password with signs": f"https://me:p@{CANARY}/q@example.org/x",
    "a token in a URL": f"git+https://{CANARY}@github.com/a/b.git",
    "of a proxy": f"http://user:{CANARY}@localhost:3128",
    "of a database": f"postgresql+psycopg://u:{CANARY}@db/name",
    "Hub token": f"hf_{CANARY}AbCdEfGhIjKlMnOpQrSt",
    "GitHub token": f"ghp_{CANARY}AbCdEfGhIjKlMnOpQr",
    "GitHub's finer token": f"github_pat_{CANARY}_AbCdEfGhIjKlMnOp",
    "of another service": f"sk-proj-{CANARY}AbCdEfGhIjKlMnOp",
    "JSON web token": f"eyJ{CANARY}AbCd.{CANARY}AbCd.{CANARY}AbCd",
    "bearer": f"Bearer {CANARY}.Ab-Cd",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
    "a key cut off": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n",
}
"""Known wherever they stand."""
TOKEN = BY_FORM["Hub token"]
BY_NAME = {
    "header": f"Authorization: Basic {CANARY}",
    "header in JSON": f'{{"authorization": "token {CANARY}"}}',
    "option": f"--token={CANARY}",
    "auth": f"--auth={CANARY}",
    "passwd": f"--passwd='{CANARY} two words'",
    "in a query": f"https://example.org/x?a=1&access_token={CANARY}&b=2",
    "in JSON": f'{{"password": "{CANARY}"}}',
    "as Python": f"HfApi(token='{CANARY}')",
    "variable": f"MY_HF_TOKEN={CANARY}",
    "key": f"api_key={CANARY}, x=2",
}
HARMLESS = [
    "pad_token='<pad>', unk_token=<unk>, sep_token: </s>", "batch_tokens=512", "token=None", "the auth: required",
    "https://huggingface.co/a/b@main", "see https://example.org:8080/a/b", "mail me@example.org",
    "hf_transfer hf_hub_download",
    "bearer of news", "basic understanding", "tokenizer=bert-base", "sk-learn", "0.5:1@2", "author=me", "git@github.com:a/b",
]  # fmt: skip


@pytest.mark.parametrize("text", [*BY_FORM.values(), *BY_NAME.values()], ids=[*BY_FORM, *BY_NAME])
def test_no_secret_is_left_in_a_text(text):
    for around in (text, f"a {text} b", f"x\n{text}\ny", f"({text})"):
        shown = redacted(around)
        assert CANARY not in shown and HIDDEN in shown
        assert redacted(shown) == shown and secret_in(shown) is None


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text and secret_in(text) is None


@pytest.mark.parametrize("kind", BY_FORM)
def test_a_secret_is_told_by_its_kind_alone(kind):
    told = secret_in(f"a {BY_FORM[kind]} b")
    assert told and CANARY not in told


def test_given_values_are_secrets_wherever_they_stand(monkeypatch):
    value = f"{CANARY} of/me+%"
    for name in ("MY_TOKEN", "DB_PASSWORD", "X_AUTH", "AWS_SECRET_ACCESS_KEY", "SOME_API_KEY", "TOKEN_2"):
        with monkeypatch.context() as given:
            given.setenv(name, value)
            assert redacted(f"it is {value}.") == f"it is {HIDDEN}." and secret_in(value) == f"the value of ${name}"
            assert CANARY not in redacted("https://h/?q=c4n4ry%20of%2Fme%2B%25")
    for name in ("TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "HF_TOKEN_PATH", "MONKEY", "PASSAGE"):
        with monkeypatch.context() as given:
            given.setenv(name, value)
            assert secret_in(value) is None
    monkeypatch.setenv("SHORT_TOKEN", "yes")
    assert redacted("yes") == "yes", "a flag is no secret"
    given = CANARY * 2
    for words in (["--token", given], [f"--hub_token={given}"], ["x", "--passwd", given, "--y"], ["--auth", given]):
        monkeypatch.setattr(sys, "argv", ["attnfaith", *words])
        assert CANARY not in redacted(f"refused {CANARY * 2}") and known_secrets()
        assert CANARY not in provenance.command_line(sys.argv)


@pytest.mark.parametrize("secret", BY_FORM.values(), ids=BY_FORM)
def test_the_command_that_is_kept_holds_none(secret):
    for words in (["x", secret], ["x", f"--note={secret}"], ["x", "--data.arguments", f"{{a: {secret}, token: {CANARY}}}"]):
        assert CANARY not in provenance.command_line(words)


def test_a_tree_keeps_its_shape_and_no_secret():
    tree = {"a": [TOKEN, 1, None, 0.5, True], "hub_token": CANARY, "tokens": ["token", "a"], "pad_token": "<pad>"}
    assert redacted_tree(tree) == tree | {"a": [HIDDEN, 1, None, 0.5, True], "hub_token": HIDDEN}
    assert secret_of({"a": {"b": ["x", tree["a"][0]]}}) == ("a.b", "an access token")
    assert secret_of({"a": {"password": "x"}}) == ("a.password", "what its key says is a secret")
    assert secret_of({"a": {"password": "", "tokens": "x", "n": 1}}) is None


@pytest.mark.parametrize("kind", [AttnfaithError, FileError, RecipeError, HubError])
def test_no_message_holds_a_secret_nor_a_part_of_one(kind):
    url, token = BY_FORM["user and password in a URL"], BY_FORM["Hub token"]
    said = str(kind(f"cannot read {url}: {token}"))
    assert CANARY not in said and "cannot read https://***@example.org/x.csv: ***" == said
    for most in range(5, 60):  # cut first, what is left would not be known as a token
        assert CANARY not in excerpt(f"{'x' * 20}{url}", most) and "hf_c" not in cut(f"say {token}", most)


PLACES = {
    "note": "it is {}", "name": "{}", "output_dir": "{}", "data.path": "{}", "data.hub_id": "{}", "data.revision": "{}",
    "data.text": "{}", "data.tokenizer": "{}", "data.vectors": "{}", "model.pretrained": "{}",
    "data.arguments": "{{a: ['{}']}}",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["user and password in a URL", "Hub token", "bearer", "private key"])
def test_a_recipe_that_holds_a_secret_is_refused(place, kind, tmp_path):
    secret = BY_FORM[kind].replace("\n", " ").replace(": ", ":")
    value = PLACES[place].format(secret)
    with pytest.raises(RecipeError) as caught:
        recipes.load(None, [f"--{place}", value])
    assert CANARY not in str(caught.value)
    if place == "note":
        assert "recipe.note holds" in str(caught.value) and "hf auth login" in str(caught.value)


def test_a_secret_of_the_environment_in_a_recipe_is_refused(monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", f"{CANARY}-of-mine")
    with pytest.raises(RecipeError, match=r"recipe.note holds the value of \$MY_PASSWORD"):
        recipes.load(None, ["--note", f"it is {CANARY}-of-mine"])
    with pytest.raises(RecipeError, match="recipe.data.arguments.token holds what its key says is a secret"):
        recipes.load(None, ["--data.arguments", "{token: abc}"])


def test_no_recipe_of_the_package_is_refused_or_changed():
    read = 0
    for path in sorted((ROOT / "recipes").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert redacted(text) == text and secret_in(text) is None, path
        read += 1
    assert read > 20


def test_run_and_record_hold_no_secret(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    url = BY_FORM["user and password in a URL"]
    run_folder.note(tmp_path, source=url, hub_token=CANARY, dataset={"name": TOKEN})
    assert CANARY not in (tmp_path / "run.json").read_text() and "example.org" in (tmp_path / "run.json").read_text()
    made = {"source": BY_FORM["a token in a URL"], "model": "m", "recipe": {"password": CANARY}}
    table = record.with_settings(draw(3), [made])
    record.save(table, tmp_path / "record.parquet")
    (stored,) = record.settings(record.load(tmp_path / "record.parquet"))
    assert stored == {"source": "git+https://***@github.com/a/b.git", "model": "m", "recipe": {"password": HIDDEN}}


def test_a_remote_with_a_token_is_in_no_provenance(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    remote = BY_FORM["a token in a URL"].removeprefix("git+")
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["remote", "add", "origin", remote], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
    told = provenance.checkout.__wrapped__(package)
    assert len(told[0]) == 40 and CANARY not in str(told)


def test_the_command_line_says_no_secret(capsys, monkeypatch):
    for words in (
        ["train", "--note", BY_FORM["Hub token"]],
        ["train", "--token", CANARY * 3],
        ["report", BY_FORM["user and password in a URL"]],
        ["compare", BY_FORM["a token in a URL"], "\x1b[2Jx\u202e"],
        [f"--token={CANARY}"],
        ["push", "nowhere", "--passwd", CANARY * 3],
    ):
        monkeypatch.setattr(sys, "argv", ["attnfaith", *words])
        assert cli.main(words) == 2
        output = capsys.readouterr()
        assert CANARY not in output.out + output.err and "\x1b" not in output.err and "\u202e" not in output.err
        assert output.err.startswith("error: ")


def test_a_fault_shows_its_traceback_without_secrets(capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["attnfaith", "--version"])
    assert cli.main() == 0  # as a program does, which sets how faults are shown
    try:
        raise RuntimeError(f"GET {BY_FORM['user and password in a URL']} failed")
    except RuntimeError:
        sys.excepthook(*sys.exc_info())
    shown = capsys.readouterr().err
    assert "RuntimeError: GET https://***@example.org/x.csv failed" in shown and "Traceback" in shown and CANARY not in shown


@pytest.mark.parametrize("pieces", [1, 7, 10**6])
def test_the_log_of_a_cell_holds_none(pieces, tmp_path):
    said = "".join(f"line {number}\r{text}\n" for number, text in enumerate(BY_FORM.values()) if "KEY" not in text)
    said += "é end"
    content = said.encode()

    class Output(io.RawIOBase):
        def __init__(self):
            self.parts = [content[place : place + pieces] for place in range(0, len(content), pieces)]

        def read1(self, _):
            return self.parts.pop(0) if self.parts else b""

    with open(tmp_path / "log", "wb", buffering=0) as log:
        study_cell.keep_log(Output(), log)
    kept = (tmp_path / "log").read_bytes().decode()
    assert CANARY not in kept and kept == redacted(said) and kept.endswith("é end") and "\r" in kept


def test_a_log_that_cannot_be_written_stops_no_cell():
    class Full:
        def write(self, _):
            raise OSError(28, "No space left on device")

    output = io.BufferedReader(io.BytesIO(b"a\n" * 100_000))
    study_cell.keep_log(output, Full())
    assert output.read() == b"", "the process would wait for ever for somebody to read what it says"


@pytest.mark.slow
def test_the_whole_log_of_a_cell(tmp_path, monkeypatch):
    script = f"import sys; print('a', {TOKEN!r}); "
    script += f"sys.stderr.write('error: {BY_FORM['a token in a URL']} is bad'); sys.exit(2)"
    plan = {
        "study": "s", "folder": str(tmp_path), "gpus": [], "places": 1,
        "cells": {"a": {"command": [sys.executable, "-c", script], "after": [], "log": str(tmp_path / "a.log")}},
    }  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, "-m", "attnfaith.study.cell", "plan.json", "a"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 1
    outcome = json.loads((tmp_path / "cells" / "a" / "outcome.json").read_text())
    assert (tmp_path / "a.log").read_text() == "a ***\nerror: git+https://***@github.com/a/b.git is bad"
    assert outcome["status"] == "failed" and outcome["why"] == "git+https://***@github.com/a/b.git is bad"


def test_logs_of_launched_processes_are_shown_without(tmp_path, monkeypatch, capsys):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher import api

    class Failure:
        local_rank, exitcode, error_file_data = 1, 3, {"message": "x"}

    def failing(config, _):
        def start(*_arguments):
            place = Path(config.logs_specs.root_log_dir) / "0" / "1"
            place.mkdir(parents=True)
            (place / "stderr.log").write_text(f"lost {BY_FORM['Hub token']}\n")
            error = ChildFailedError.__new__(ChildFailedError)
            error.get_first_failure = lambda: (1, Failure)
            raise error

        return start

    monkeypatch.setattr(api, "elastic_launch", failing)
    level = logging.getLogger("torch.distributed.elastic").level
    assert launch.launch("train", [], 2) == 3
    logging.getLogger("torch.distributed.elastic").setLevel(level)
    shown = capsys.readouterr().err
    assert "lost ***" in shown and CANARY not in shown and launch.LAUNCHED not in os.environ


# ------------------------------------------------------------------------------------------------ what would be pushed


def parquet(columns, metadata=None, schema=None):
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema).replace_schema_metadata(metadata), buffer, compression="zstd")
    return buffer.getvalue()


def png(kind, chunk, after=b""):
    def part(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    ends = [part(b"IDAT", zlib.compress(b"\0\0")), part(b"IEND", b""), after]
    return b"".join([b"\x89PNG\r\n\x1a\n", head, part(kind, chunk), *ends])


HEADER = json.dumps({"__metadata__": {"a": TOKEN}}).encode()
NOTED = pa.schema([pa.field("a", pa.int64(), metadata={"doc": TOKEN})])
HIDING = {
    "words.parquet": parquet({"tokens": [["a", TOKEN]]}),
    "deep.parquet": parquet({"words": [[["a"], [TOKEN]]]}),
    "few.parquet": parquet({"model": pa.array([TOKEN, "b"]).dictionary_encode()}),
    "metadata.parquet": parquet({"a": [1]}, {"attnfaith": TOKEN}),
    "field.parquet": parquet({"a": [1]}, schema=NOTED),
    "text.png": png(b"tEXt", f"Title\0{TOKEN}".encode()),
    "packed.png": png(b"zTXt", b"Title\0\0" + zlib.compress(TOKEN.encode())),
    "words.png": png(b"iTXt", b"Title\0\1\0en\0\0" + zlib.compress(TOKEN.encode())),
    "behind.png": png(b"tEXt", b"a\0b", TOKEN.encode()),
    "model.safetensors": len(HEADER).to_bytes(8, "little") + HEADER,
    "README.md": f"see {TOKEN}".encode(),
    "figure.svg": f"<svg><title>{TOKEN}</title></svg>".encode(),
    "modeling.py": f"x = '{TOKEN}'".encode(),
}


@pytest.mark.parametrize("name", HIDING)
def test_a_token_in_any_part_of_a_file_is_refused(name, monkeypatch, tmp_path):
    (tmp_path / name).write_bytes(HIDING[name])
    for content in (HIDING[name], tmp_path / name):
        with pytest.raises(HubError, match="would hold an access token") as caught:
            refuse_secrets(Repo("dataset", "a/b", {name: content}, "records"), [])
        assert CANARY not in str(caught.value)


def test_values_of_the_environment_and_urls_are_refused_and_texts_may_speak_of_urls(monkeypatch):
    url, words = BY_FORM["user and password in a URL"], {"README.md": b"a plain card"}
    texts = parquet({"tokens": [["a", url]], "n": [1]})
    refuse_secrets(Repo("dataset", "a/b", {**words, "t.parquet": texts}, "records"), [])
    with pytest.raises(HubError, match="README.md of a/b would hold a user or password in a URL"):
        refuse_secrets(Repo("dataset", "a/b", {"README.md": url.encode()}, "records"), [])
    monkeypatch.setenv("OF_A_TOKEN", f"{CANARY}-words")
    with pytest.raises(HubError, match=r"would hold the value of \$OF_A_TOKEN"):
        refuse_secrets(Repo("dataset", "a/b", {"t.parquet": parquet({"t": [f"a {CANARY}-words"]})}, "records"), [])


def test_what_the_package_itself_pushes_is_not_refused():
    from attnfaith.hub.planning import metric_repo

    refuse_secrets(metric_repo("alice"), [])
    for path in sorted((ROOT / "src").rglob("*.py")):
        assert redaction.TOKEN.search(path.read_text(encoding="utf-8")) is None, path
