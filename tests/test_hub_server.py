"""The Hub on loopback: its protocol, its faults, what a killed server leaves, and the real clients against it."""

import base64
import contextlib
import hashlib
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.hub_server import HubServer, Storage, damaged, front_matter, matches_any, valid_name


ALICE, READER, BOB = "hf_alice", "hf_alice_read", "hf_bob"
ALPHABET = bytes(range(256)) * 3
INFO = "/api/models/alice/repo"
HF = str(Path(sys.executable).parent / "hf")  # also where the environment is not activated


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def connect(hub) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(hub.endpoint).netloc, timeout=120)


def ask(hub, method, path, body=None, *, token=ALICE, headers=None, connection=None) -> Answer:
    """One request without any client of Hugging Face."""
    with contextlib.nullcontext(connection) if connection else contextlib.closing(connect(hub)) as link:
        head = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **(headers or {})}
        link.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, head)
        response = link.getresponse()
        return Answer(response.status, response.headers, response.read())


def create(hub, name="repo", kind="model", **fields):
    answer = ask(hub, "POST", "/api/repos/create", {"name": name, "type": kind, "sdk": "gradio", **fields})
    assert answer.status == 200, answer.body


def commit(hub, changes, *, repo="models/alice/repo", revision="main", query="", token=ALICE, title="change", parent=None):
    """Adds {path: content} or an LFS object {path: its sha256}, deletes {path: None}; a path that ends in / is a folder."""
    header = {"summary": title, "description": "", **({} if parent is None else {"parentCommit": parent})}
    lines = [{"key": "header", "value": header}]
    for path, content in changes.items():
        if content is None:
            lines.append({"key": "deletedFolder" if path.endswith("/") else "deletedFile", "value": {"path": path}})
        elif isinstance(content, str):
            lines.append({"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": content}})
        else:
            encoded = base64.b64encode(content).decode()
            lines.append({"key": "file", "value": {"path": path, "content": encoded, "encoding": "base64"}})
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    return ask(hub, "POST", f"/api/{repo}/commit/{revision}{query}", body, token=token)


def send_lfs(hub, content):
    sha256 = hashlib.sha256(content).hexdigest()
    assert ask(hub, "PUT", f"/lfs/{sha256}", content).status == 200
    return sha256


def git_hash(content):
    return (
        subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
        .stdout.decode()
        .strip()
    )


def error_code(answer):
    return answer.status, answer.headers["X-Error-Code"]


# ------------------------------------------------------------------------------------------------ small parts


@pytest.mark.parametrize("name", ["a", "A1", "a.b-c_d", "x" * 96, "_a"])
def test_a_name_that_the_hub_allows(name):
    assert valid_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "a-", "a.", "a--b", "a..b", "a.git", "a/b", "a b", "ä", "x" * 97, "a\n"]
)
def test_a_name_that_the_hub_refuses(hub, name):
    assert not valid_name(name)
    assert ask(hub, "POST", "/api/repos/create", {"name": name, "type": "model"}).status == 400
    assert not list(hub.storage.repos("model"))


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("model.safetensors", "*.safetensors", True),
        ("a/b/model.safetensors", "*.safetensors", True),
        ("a/b/c.txt", "a/b", True),
        ("a/b/c.txt", "b/", True),
        ("a/b/c.txt", "c", False),
        ("model.safetensors.json", "*.safetensors", False),
    ],
)
def test_patterns_of_gitattributes_and_gitignore(path, pattern, expected):
    assert matches_any(path, [pattern]) is expected


def test_front_matter():
    assert front_matter("---\na: [1]\n---\ntext\n---\n") == {"a": [1]}
    assert front_matter("---\r\na: 1\r\n---\r\n") == {"a": 1}
    assert front_matter("text") is front_matter("---\n---\n") is front_matter(" ---\na: 1\n---\n") is None
    for wrong in ("---\na: [\n---\n", "---\n- a\n---\n"):
        with pytest.raises(ValueError):
            front_matter(wrong)


def test_damage_keeps_the_length():
    pieces = [b"abc", b"def"]
    assert b"".join(damaged(pieces)) == b"`bcdef"


# ------------------------------------------------------------------------------------------------ files


def test_hashes_are_those_of_git(hub):
    create(hub)
    large = send_lfs(hub, ALPHABET)
    assert commit(hub, {"a.txt": b"hello\n", "empty": b"", "big.bin": large}).status == 200
    tree = {item["path"]: item for item in ask(hub, "GET", f"{INFO}/tree/main").json}
    assert tree["a.txt"]["oid"] == git_hash(b"hello\n")
    assert tree["empty"]["oid"] == git_hash(b"")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{large}\nsize {len(ALPHABET)}\n".encode()
    assert tree["big.bin"]["oid"] == git_hash(pointer)
    assert tree["big.bin"]["lfs"] == {"oid": large, "size": len(ALPHABET), "pointerSize": len(pointer)}
    assert tree["a.txt"]["size"] == 6
    assert "lfs" not in tree["a.txt"]


@pytest.mark.parametrize("lfs", [False, True])
def test_resolve(hub, lfs):
    create(hub)
    commit(hub, {"a/b.bin": send_lfs(hub, ALPHABET) if lfs else ALPHABET})
    path, head = "/alice/repo/resolve/main/a/b.bin", hub.history("model", "alice/repo")[-1].id
    for method in ("GET", "HEAD"):
        answer = ask(hub, method, path)
        assert answer.status == 200
        assert answer.body == (ALPHABET if method == "GET" else b"")
        assert answer.headers["Content-Length"] == str(len(ALPHABET))
        assert answer.headers["X-Repo-Commit"] == head
        assert answer.headers["X-Linked-Size"] == (str(len(ALPHABET)) if lfs else None)
    etag = answer.headers["ETag"]
    assert etag == f'"{hashlib.sha256(ALPHABET).hexdigest() if lfs else git_hash(ALPHABET)}"'
    same = ask(hub, "GET", path, headers={"If-None-Match": etag})
    assert (same.status, same.body, same.headers["ETag"]) == (304, b"", etag)
    assert ask(hub, "GET", path, headers={"If-None-Match": '"other"'}).status == 200


def test_ranges_are_slices(hub):
    create(hub)
    content = b"0123456789"
    commit(hub, {"digits": content})
    path = "/alice/repo/resolve/main/digits"
    connection = connect(hub)

    def part(text):
        return ask(hub, "GET", path, headers={"Range": f"bytes={text}"}, connection=connection)

    for start in range(12):
        for stop in range(start, 13):
            answer = part(f"{start}-{stop}")
            if start < 10:
                assert (answer.status, answer.body) == (206, content[start : stop + 1])
                assert answer.headers["Content-Range"] == f"bytes {start}-{min(9, stop)}/10"
            else:
                assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */10")
        assert part(f"{start}-").status == (206 if start < 10 else 416)
        assert part(f"{min(start, 9)}-").body == content[min(start, 9) :]
        assert part(f"-{start + 1}").body == content[-start - 1 :]
    assert part("-").status == 200
    connection.close()


def test_the_tree_at_each_level(hub):
    create(hub)
    commit(hub, {"a": b"1", "b/c": b"2", "b/d/e": b"3", "bb": b"4"}, title="first")
    commit(hub, {"b/c": b"5"}, title="second")

    def paths(path="", query=""):
        answer = ask(hub, "GET", f"{INFO}/tree/main{path}{query}")
        return {item["path"]: (item["type"], item.get("lastCommit", {}).get("title")) for item in answer.json}

    everything = {".gitattributes": ("file", None), "a": ("file", None), "b": ("directory", None), "bb": ("file", None)}
    assert paths() == everything
    below = {"b/c": ("file", None), "b/d": ("directory", None)}
    assert paths("/b") == paths("/b/") == below
    assert paths("", "?recursive=true") == everything | below | {"b/d/e": ("file", None)}
    assert paths("/b", "?recursive=1&expand=true") == {
        "b/c": ("file", "second"),
        "b/d": ("directory", "first"),
        "b/d/e": ("file", "first"),
    }
    assert paths("", "?expand=true")[".gitattributes"] == ("file", "initial commit")
    assert paths("", "?expand=true")["b"] == ("directory", "second")
    commit(hub, {"a": b"6"})
    commit(hub, {"a": b"1"}, title="back")
    assert paths("", "?expand=true")["a"] == ("file", "back")
    assert error_code(ask(hub, "GET", f"{INFO}/tree/main/c")) == (404, "EntryNotFound")
    asked = {"paths": ["a", "b/", "nothing"], "expand": True}
    head = {"Content-Type": "application/json"}
    info = ask(hub, "POST", f"{INFO}/paths-info/main", asked, headers=head).json
    assert [(item["path"], item["lastCommit"]["title"]) for item in info] == [("a", "back"), ("b", "second")]
    form = ask(hub, "POST", f"{INFO}/paths-info/main", b"paths=a&paths=b&expand=False").json
    assert [item["path"] for item in form] == ["a", "b"]


@pytest.mark.parametrize("page_size", [1, 3, 7, 100])
def test_pages_together_are_the_whole(tmp_path, page_size):
    with HubServer(tmp_path, page_size=page_size) as hub:
        create(hub)
        names = {f"d/{number:02d}" for number in range(13)}
        commit(hub, dict.fromkeys(names, b""))
        found, pages, path = [], 0, f"{INFO}/tree/main?recursive=True"
        while path:
            answer = ask(hub, "GET", path)
            assert len(answer.json) <= page_size
            assert "recursive=True" in path
            found += [item["path"] for item in answer.json]
            pages += 1
            link = re.fullmatch(rf'<{hub.endpoint}(.*)>; rel="next"', answer.headers["Link"] or "")
            path = link and link[1]
        assert sorted(found) == sorted({*names, "d", ".gitattributes"})
        assert pages == -(-15 // page_size)


# ------------------------------------------------------------------------------------------------ commits


def test_history_is_kept(hub):
    create(hub, kind="dataset")
    repo = "datasets/alice/repo"
    first = commit(hub, {"a": b"1", "d/b": b"2", "d/c": b"3"}, repo=repo, title="first").json["commitOid"]
    second = commit(hub, {"a": b"4", "d/b": None}, repo=repo, title="second").json
    third = commit(hub, {"d/": None}, repo=repo, title="third").json["commitOid"]
    assert second["commitUrl"] == f"{hub.endpoint}/datasets/alice/repo/commit/{second['commitOid']}"
    history = hub.history("dataset", "alice/repo")
    assert [item.title for item in history] == ["initial commit", "first", "second", "third"]
    assert [sorted(item.files)[1:] for item in history] == [[], ["a", "d/b", "d/c"], ["a", "d/c"], ["a"]]
    assert history[1].files["a"] == hashlib.sha256(b"1").hexdigest()
    assert [item.id for item in history[1:]] == [first, second["commitOid"], third]
    assert [item.parent for item in history[1:]] == [item.id for item in history[:-1]]
    assert {item.author for item in history} == {"alice"}
    assert hub.read("dataset", "alice/repo", "a") == b"4"
    assert hub.read("dataset", "alice/repo", "d/b", revision=first) == b"2"
    log = ask(hub, "GET", "/api/datasets/alice/repo/commits/main").json
    assert [item["id"] for item in log] == [item.id for item in history[::-1]]
    old = ask(hub, "GET", f"/datasets/alice/repo/resolve/{first}/a")
    assert (old.body, old.headers["X-Repo-Commit"]) == (b"1", first)
    with pytest.raises(KeyError):
        hub.history("model", "alice/repo")
    with pytest.raises(KeyError):
        hub.history("dataset", "alice/repo", "v1")


@pytest.mark.parametrize(
    "bad",
    [
        {"nothing": None},
        {"folder/": None},
        {"../x": b""},
        {"/x": b""},
        {"a//b": b""},
        {".git/config": b""},
        {"x": "0" * 64},
        {"x": "../commits"},
    ],
)
def test_a_commit_with_one_bad_line_changes_nothing(hub, bad):
    create(hub)
    before = hub.history("model", "alice/repo")
    assert commit(hub, {"good": b"1", **bad}).status in (400, 404)
    assert hub.history("model", "alice/repo") == before


def test_refs(hub):
    create(hub)
    first = commit(hub, {"a": b"1"}).json["commitOid"]
    api = INFO
    assert ask(hub, "POST", f"{api}/tag/main", {"tag": "v1"}).status == 201
    assert ask(hub, "POST", f"{api}/branch/side%2Fone", {"startingPoint": "v1"}).status == 201
    assert ask(hub, "POST", f"{api}/branch/side%2Fone", {}).status == 409
    assert ask(hub, "POST", f"{api}/branch/refs%2Fpr%2F7", {}).status == 400
    second = commit(hub, {"a": b"2"}, revision="side%2Fone").json["commitOid"]
    third = commit(hub, {"a": b"3"}, query="?create_pr=1").json
    fourth = commit(hub, {"b": b"4"}, revision="refs%2Fpr%2F1").json["commitOid"]
    assert third["pullRequestUrl"] == f"{hub.endpoint}/alice/repo/discussions/1"
    assert hub.refs("model", "alice/repo") == {
        "refs/heads/main": first,
        "refs/tags/v1": first,
        "refs/heads/side/one": second,
        "refs/pr/1": fourth,
    }
    assert [item.id for item in hub.history("model", "alice/repo", "refs/pr/1")][1:] == [first, third["commitOid"], fourth]
    assert hub.read("model", "alice/repo", "a", "refs/pr/1") == b"3"
    answer = ask(hub, "GET", f"{api}/refs?include_prs=1").json
    assert [item["ref"] for item in answer["branches"]] == ["refs/heads/main", "refs/heads/side/one"]
    assert answer["tags"] == [{"name": "v1", "ref": "refs/tags/v1", "targetCommit": first}]
    assert answer["pullRequests"] == [{"name": "1", "ref": "refs/pr/1", "targetCommit": fourth}]
    assert "pullRequests" not in ask(hub, "GET", f"{api}/refs").json
    for revision in ("v1", "refs%2Ftags%2Fv1", first, "nothing"):
        assert error_code(commit(hub, {"a": b"5"}, revision=revision)) == (404, "RevisionNotFound")
    assert ask(hub, "DELETE", f"{api}/tag/v1").status == ask(hub, "DELETE", f"{api}/branch/side%2Fone").status == 200
    assert list(hub.refs("model", "alice/repo")) == ["refs/heads/main", "refs/pr/1"]
    for path in (f"{api}/branch/main", f"{api}/tag/v1"):
        assert ask(hub, "DELETE", path).status == 404


def test_a_commit_of_another_repository_is_no_revision(hub):
    create(hub, "one", visibility="private")
    create(hub, "two")
    private = hub.history("model", "alice/one")[-1].id
    assert error_code(ask(hub, "GET", f"/alice/two/resolve/{private}/.gitattributes")) == (404, "RevisionNotFound")


def test_of_commits_on_the_same_parent_one_wins(hub):
    create(hub)
    parent = hub.history("model", "alice/repo")[-1].id
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: commit(hub, {f"f{n}": b"x"}, parent=parent).status, range(8)))
        assert sorted(answers) == [200] + [412] * 7
        assert set(pool.map(lambda n: commit(hub, {f"g{n}": b"x"}).status, range(8))) == {200}
    history = hub.history("model", "alice/repo")
    assert len(history) == 2 + 8
    assert {f"g{number}" for number in range(8)} < set(history[-1].files)


def test_preupload_says_how_to_send_and_what_is_there(hub):
    create(hub)
    big = send_lfs(hub, ALPHABET)
    commit(hub, {"a.txt": b"1", "b.parquet": big})

    def file(path, sample=b"text", size=4):
        return {"path": path, "sample": base64.b64encode(sample).decode(), "size": size}

    files = [
        file("a.txt"),
        file("sub/b.parquet"),
        file("b.parquet"),
        file("c.png", b"\x89PNG\0"),
        file("huge.txt", size=10 * 2**20 + 1),
        file("out/x.log"),
    ]
    request = {"files": files, "gitIgnore": "# logs\n\nout/\n"}
    answer = ask(hub, "POST", f"{INFO}/preupload/main", request).json
    modes = {item["path"]: item["uploadMode"] for item in answer["files"]}
    assert [path for path, mode in modes.items() if mode == "lfs"] == ["sub/b.parquet", "b.parquet", "c.png", "huge.txt"]
    assert [item["path"] for item in answer["files"] if item["shouldIgnore"]] == ["out/x.log"]
    assert {item["path"]: item["oid"] for item in answer["files"] if "oid" in item} == {
        "a.txt": git_hash(b"1"),
        "b.parquet": big,
    }


def test_lfs_objects_are_sent_once_and_checked(hub):
    create(hub)
    sha256 = hashlib.sha256(ALPHABET).hexdigest()
    wanted = {"operation": "upload", "objects": [{"oid": sha256, "size": len(ALPHABET)}]}
    batch = "/alice/repo.git/info/lfs/objects/batch"
    actions = ask(hub, "POST", batch, wanted).json["objects"][0]["actions"]
    upload, verify = (actions[name]["href"].removeprefix(hub.endpoint) for name in ("upload", "verify"))
    assert ask(hub, "POST", verify, wanted["objects"][0], token=None).status == 404
    assert commit(hub, {"big": sha256}).status == 400
    wrong = ask(hub, "PUT", upload, ALPHABET + b"x", token=None)
    assert wrong.status == 400
    assert sha256 in wrong.headers["X-Error-Message"]
    assert ask(hub, "PUT", upload, iter([ALPHABET[:100], ALPHABET[100:]]), token=None).status == 200  # in chunks
    assert ask(hub, "POST", verify, {"size": len(ALPHABET) + 1}, token=None).status == 404
    assert ask(hub, "POST", verify, wanted["objects"][0], token=None).status == 200
    assert "actions" not in ask(hub, "POST", batch, wanted).json["objects"][0]
    assert commit(hub, {"big": sha256}).status == 200
    assert hub.read("model", "alice/repo", "big") == ALPHABET
    assert not list((hub.root / "incoming").iterdir())


# ------------------------------------------------------------------------------------------------ who may do what


@pytest.mark.parametrize(
    ("token", "public", "private", "check", "push", "pull_request", "made"),
    [
        (ALICE, 200, 200, 200, 200, 200, 200),
        (READER, 200, 200, 403, 403, 403, 403),
        (BOB, 200, 404, 403, 403, 200, 403),
        (None, 200, 401, 401, 401, 401, 401),
        ("hf_wrong", 401, 401, 401, 401, 401, 401),
    ],
)
def test_tokens(hub, token, public, private, check, push, pull_request, made):
    create(hub)
    create(hub, "hidden", visibility="private")
    before = hub.history("model", "alice/repo")
    assert ask(hub, "GET", INFO, token=token).status == public
    assert ask(hub, "GET", "/alice/repo/resolve/main/.gitattributes", token=token).status == public
    for path in ("/api/models/alice/hidden", "/alice/hidden/resolve/main/.gitattributes", "/api/models/alice/hidden/refs"):
        assert ask(hub, "GET", path, token=token).status == private
    names = [item["id"] for item in ask(hub, "GET", "/api/models?author=alice", token=token).json] if public == 200 else []
    assert names == ([] if public != 200 else ["alice/hidden", "alice/repo"] if private == 200 else ["alice/repo"])
    assert ask(hub, "GET", f"{INFO}/auth-check/write", token=token).status == check
    assert commit(hub, {"a": b"1"}, query="?create_pr=1", token=token).status == pull_request
    assert hub.history("model", "alice/repo") == before
    assert commit(hub, {"a": b"1"}, token=token).status == push
    assert (hub.history("model", "alice/repo") == before) == (push != 200)
    new = {"name": "new", "organization": "alice", "type": "space", "sdk": "static"}
    assert ask(hub, "POST", "/api/repos/create", new, token=token).status == made
    for method, path, body in (
        ("PUT", f"{INFO}/settings", {"visibility": "private"}),
        ("POST", f"{INFO}/tag/main", {"tag": "v1"}),
        ("POST", f"{INFO}/branch/side", {}),
        ("DELETE", "/api/repos/delete", {"name": "repo", "organization": "alice"}),
    ):
        assert ask(hub, method, path, body, token=token).status in ((200, 201) if check == 200 else (check,))


def test_a_stranger_adds_to_their_own_pull_request_only(hub):
    create(hub)
    for token in (ALICE, BOB):
        assert commit(hub, {"a": token.encode()}, query="?create_pr=1", token=token).status == 200
    assert commit(hub, {"a": b"2"}, revision="refs%2Fpr%2F1", token=BOB).status == 403
    assert commit(hub, {"a": b"2"}, revision="refs%2Fpr%2F2", token=BOB).status == 200
    assert commit(hub, {"a": b"3"}, revision="refs%2Fpr%2F2", token=ALICE).status == 200


def test_a_repository_that_is_not_there(hub):
    for path in (
        "/api/models/alice/x",
        "/alice/x/resolve/main/a",
        "/api/models/x",
        "/x/resolve/main/a",
        "/api/models/%2e%2e/x",
    ):
        answer = ask(hub, "GET", path)
        assert error_code(answer) == (404, "RepoNotFound")
    assert error_code(ask(hub, "GET", "/api/models/alice/x", token=None)) == (401, "RepoNotFound")
    create(hub)
    assert error_code(ask(hub, "GET", f"{INFO}/revision/v9")) == (404, "RevisionNotFound")
    missing = ask(hub, "GET", "/alice/repo/resolve/main/x")
    assert error_code(missing) == (404, "EntryNotFound")
    assert missing.headers["X-Repo-Commit"] == hub.history("model", "alice/repo")[-1].id
    assert error_code(ask(hub, "GET", "/datasets/alice/repo/resolve/main/x")) == (404, "RepoNotFound")


def test_made_and_deleted_and_made_again(hub):
    create(hub)
    old = commit(hub, {"a": b"1"}).json["commitOid"]
    again = ask(hub, "POST", "/api/repos/create", {"name": "repo", "type": "model"})
    assert (again.status, again.json["url"]) == (409, f"{hub.endpoint}/alice/repo")
    for visibility, status in (("private", 404), ("public", 200)):
        assert ask(hub, "PUT", f"{INFO}/settings", {"visibility": visibility}).json == {"visibility": visibility}
        assert ask(hub, "GET", INFO, token=BOB).status == status
    assert ask(hub, "POST", "/api/repos/create", {"name": "s", "type": "space"}).status == 400
    assert ask(hub, "POST", "/api/repos/create", {"name": "s", "type": "bucket"}).status == 400
    assert ask(hub, "DELETE", "/api/repos/delete", {"name": "repo"}).status == 200
    assert ask(hub, "DELETE", "/api/repos/delete", {"name": "repo"}).status == 404
    create(hub)
    assert [item.title for item in hub.history("model", "alice/repo")] == ["initial commit"]
    assert ask(hub, "GET", f"/alice/repo/resolve/{old}/a").status == 404


def test_cards_are_read(hub):
    create(hub)
    card = (
        "---\ntags: [attention]\nlicense: mit\nlibrary_name: transformers\npipeline_tag: text-classification\n---\n# Card\n"
    )
    commit(hub, {"README.md": card.encode()})
    info = ask(hub, "GET", INFO).json
    assert (info["tags"], info["pipeline_tag"], info["cardData"]["license"]) == (["attention"], "text-classification", "mit")
    assert set(ask(hub, "GET", f"{INFO}?expand=sha&expand=tags").json) == {"_id", "id", "sha", "tags"}
    for content, status in ((card, 200), ("# Card", 200), ("---\na: [\n---\n", 400)):
        answer = ask(hub, "POST", "/api/validate-yaml", {"content": content, "repoType": "model"})
        assert answer.status == status
        assert [bool(answer.json[key]) for key in ("errors", "warnings")] == [status == 400, content == "# Card"]
    commit(hub, {"README.md": b"---\na: [\n---\n"})
    assert ask(hub, "GET", INFO).json["cardData"] == {}


# ------------------------------------------------------------------------------------------------ faults


def test_a_connection_serves_on_after_a_refusal(hub):
    """A body that nobody has read would be taken for the next request."""
    create(hub)
    hub.fault("commit/main", status=500)
    connection = connect(hub)
    for path, status in ((f"{INFO}/commit/main", 500), (f"{INFO}/unknown", 404)):
        assert ask(hub, "POST", path, b"x" * 300_000, connection=connection).status == status
        assert ask(hub, "GET", INFO, connection=connection).status == 200
    connection.close()


def test_planned_statuses(hub):
    hub.fault(r"GET .*whoami", status=429, retry_after=7)
    hub.fault("whoami", status=503, times=2)
    answers = [ask(hub, "GET", "/api/whoami-v2") for _ in range(4)]
    assert [answer.status for answer in answers] == [429, 503, 503, 200]
    assert [answer.headers["Retry-After"] for answer in answers] == ["7", None, None, None]
    assert [(item.method, item.path, item.status) for item in hub.requests] == [
        ("GET", "/api/whoami-v2", status) for status in (429, 503, 503, 200)
    ]
    assert hub.requests[-1].user == "alice"


def test_a_fault_waits_for_its_request(hub):
    create(hub)
    hub.fault("POST .*/commit/.*create_pr", conflict=True)
    assert commit(hub, {"a": b"1"}).status == 200
    assert commit(hub, {"a": b"2"}, query="?create_pr=1").status == 412
    assert list(hub.refs("model", "alice/repo")) == ["refs/heads/main"]
    assert commit(hub, {"a": b"2"}, query="?create_pr=1").status == 200


def test_a_fault_must_be_one(hub):
    with pytest.raises(ValueError, match="a fault needs one of status"):
        hub.fault("GET")
    with pytest.raises(TypeError):
        hub.fault("GET", status_code=500)


@pytest.mark.parametrize("cut", [0, 1, 100, 70_000, 199_999])
def test_a_download_is_cut_where_planned(hub, cut):
    create(hub)
    content = random.Random(0).randbytes(200_000)
    commit(hub, {"big": send_lfs(hub, content)})
    hub.fault("resolve", cut_after_bytes=cut)
    with pytest.raises(http.client.IncompleteRead) as error:
        ask(hub, "GET", "/alice/repo/resolve/main/big")
    assert error.value.partial == content[:cut]
    assert ask(hub, "GET", "/alice/repo/resolve/main/big").body == content


GONE = (ConnectionError, http.client.RemoteDisconnected)


@pytest.mark.parametrize("cut", [0, 100, 10**9])
def test_an_upload_is_cut_and_leaves_nothing(hub, cut):
    create(hub)
    before = hub.history("model", "alice/repo")
    content = random.Random(0).randbytes(200_000)
    sha256 = hashlib.sha256(content).hexdigest()
    hub.fault("POST|PUT", cut_after_bytes=cut, times=2)
    with pytest.raises(GONE):
        ask(hub, "PUT", f"/lfs/{sha256}", content)
    with pytest.raises(GONE):
        commit(hub, {"a": b"1"})
    assert [item.status for item in hub.requests[-2:]] == [None, None]
    assert not hub.storage.blob(sha256).exists()
    assert hub.history("model", "alice/repo") == before
    assert not list((hub.root / "incoming").iterdir())


@pytest.mark.parametrize("head", [("Content-Length", "768"), ("Transfer-Encoding", "chunked")])
def test_a_client_that_goes_away_leaves_nothing(hub, head):
    create(hub)
    parts = {"Content-Length": [ALPHABET[:-1]], "Transfer-Encoding": [b"300\r\n", ALPHABET, b"\r\n"]}  # no last chunk
    sha256 = hashlib.sha256(ALPHABET).hexdigest()
    connection = connect(hub)
    connection.putrequest("PUT", f"/lfs/{sha256}")
    connection.putheader(*head)
    connection.endheaders()
    for part in parts[head[0]]:
        connection.send(part)
    deadline = time.monotonic() + 120
    while not list((hub.root / "incoming").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    connection.close()
    while list((hub.root / "incoming").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline
    assert not hub.storage.blob(sha256).exists()
    assert ask(hub, "GET", "/api/whoami-v2").status == 200


def test_a_lost_answer_is_of_a_commit_that_took_place(hub):
    create(hub)
    hub.fault("POST .*/commit/", answer_lost=True)
    with pytest.raises(GONE):
        commit(hub, {"a": b"1"}, title="lost")
    assert hub.history("model", "alice/repo")[-1].title == "lost"
    assert hub.requests[-1].status is None


def test_a_wrong_hash(hub):
    create(hub)
    hub.fault("PUT /lfs/", wrong_hash=True)
    sha256 = hashlib.sha256(ALPHABET).hexdigest()
    assert ask(hub, "PUT", f"/lfs/{sha256}", ALPHABET).status == 400
    assert not hub.storage.blob(sha256).exists()
    commit(hub, {"big": send_lfs(hub, ALPHABET)})
    hub.fault("resolve", wrong_hash=True)
    wrong, right = (ask(hub, "GET", "/alice/repo/resolve/main/big") for _ in range(2))
    assert wrong.headers["ETag"] == right.headers["ETag"] == f'"{sha256}"'
    assert right.body == ALPHABET
    assert len(wrong.body) == len(ALPHABET)
    assert hashlib.sha256(wrong.body).hexdigest() != sha256


def test_a_slow_answer_and_an_expired_token(hub):
    hub.fault("whoami", delay=0.3)
    hub.fault("whoami", expired=True)
    start = time.monotonic()
    assert ask(hub, "GET", "/api/whoami-v2").status == 200
    assert time.monotonic() - start >= 0.3
    answer = ask(hub, "GET", "/api/whoami-v2")
    assert answer.status == 401
    assert "expired" in answer.json["error"]
    assert ask(hub, "GET", "/api/whoami-v2").status == 200


def test_the_end_does_not_wait_for_a_slow_answer(tmp_path):
    with HubServer(tmp_path) as hub:
        hub.fault("whoami", delay=60)
        asked = threading.Thread(target=lambda: pytest.raises(GONE, ask, hub, "GET", "/api/whoami-v2"))
        asked.start()
        while hub.faults[0].times:
            time.sleep(0.01)
        start = time.monotonic()
    asked.join()
    assert time.monotonic() - start < 50


# ------------------------------------------------------------------------------------------------ on disk


def whole(hub):
    """Every ref leads to commits whose contents are all there."""
    for kind in ("model", "dataset", "space"):
        for repo_id, _ in hub.storage.repos(kind):
            for ref in hub.refs(kind, repo_id):
                for item in hub.history(kind, repo_id, ref):
                    for sha256 in item.files.values():
                        assert hashlib.sha256(hub.storage.blob(sha256).read_bytes()).hexdigest() == sha256
    return True


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    storage, path = Storage(tmp_path), tmp_path / "file"
    storage.replace(path, [b"old"])

    def pieces(error=None):
        yield b"n"
        assert path.read_bytes() == b"old"
        if error:
            raise error
        yield b"ew"

    with pytest.raises(ConnectionResetError):
        storage.replace(path, pieces(ConnectionResetError()))
    with path.open("rb") as reader:
        storage.replace(path, pieces())
        assert reader.read() == b"old"  # who reads while it is replaced sees one or the other
    assert path.read_bytes() == b"new"
    assert not list((tmp_path / "incoming").iterdir())


def test_another_server_serves_what_the_first_left(tmp_path):
    with HubServer(tmp_path) as hub:
        create(hub)
        commit(hub, {"a": b"1", "big": send_lfs(hub, ALPHABET)}, title="kept")
        history, port = hub.history("model", "alice/repo"), hub.server.server_port
    with pytest.raises(ConnectionRefusedError):
        ask(hub, "GET", INFO)
    (tmp_path / "incoming" / "half").write_bytes(b"half")
    with HubServer(tmp_path, port=port) as again:
        assert again.endpoint == hub.endpoint
        assert again.history("model", "alice/repo") == history
        assert ask(again, "GET", "/alice/repo/resolve/main/big").body == ALPHABET
        assert whole(again)
    assert not list((tmp_path / "incoming").iterdir())


def test_without_a_folder_nothing_is_left():
    with HubServer() as hub:
        create(hub)
        root = hub.root
        assert root.exists()
    assert not root.exists()


def test_a_failure_of_the_server_itself_is_not_lost(tmp_path):
    with pytest.raises(RuntimeError, match="JSONDecodeError"), HubServer(tmp_path) as hub:
        create(hub)
        hub.storage.repo_path("model", "alice/repo").write_text("{")
        with pytest.raises(GONE):
            ask(hub, "GET", INFO)


@pytest.fixture
def served(tmp_path, repository):
    """Starts the server as a command; gives the process and the endpoint that it has printed."""
    started = []

    def start():
        command = [sys.executable, "-m", "tests.hub_server", "--root", str(tmp_path / "hub")]
        process = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        exports = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
        return process, SimpleNamespace(endpoint=exports["HF_ENDPOINT"])

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_serves_until_interrupted(served):
    process, remote = served()
    assert ask(remote, "GET", "/api/whoami-v2").json["name"] == "alice"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == ("", "stopped\n")
    assert process.returncode == 0


@pytest.mark.slow
def test_a_killed_server_leaves_whole_commits(served, tmp_path):
    """Whatever was answered is there, and each commit holds all of its files."""
    moments, acknowledged = random.Random(7), 0
    for _ in range(10):
        process, remote = served()
        timer = threading.Timer(moments.uniform(0, 0.3), process.kill)
        answers = []
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            ask(remote, "POST", "/api/repos/create", {"name": "repo", "type": "model"})
            timer.start()
            while True:
                big = send_lfs(remote, moments.randbytes(20_000))
                files = {"big": big, "sha256": big.encode(), f"folder/{big}": b""}
                answers.append(commit(remote, files).json["commitOid"])
        process.wait()
        with HubServer(tmp_path / "hub") as hub:
            history = hub.history("model", "alice/repo")
            assert whole(hub)
            assert set(answers) <= {item.id for item in history}
            for item in history[1:]:
                assert hub.storage.blob(item.files["sha256"]).read_text() == item.files["big"]
                assert f"folder/{item.files['big']}" in item.files
        acknowledged += len(answers)
    assert acknowledged <= len(history) - 1 <= acknowledged + 10
    assert acknowledged


# ------------------------------------------------------------------------------------------------ the real clients


@pytest.fixture
def client(hub, tmp_path, warm_python):
    """Runs a command, or a script in Python, as a process that uses the Hub; returns what it has written."""

    def run(command, *, token=ALICE, code=0, **environment):
        command = [warm_python, "-c", command] if isinstance(command, str) else command
        environment = hub.environment(tmp_path / "home", token=token) | environment
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_huggingface_hub(hub, client, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello")
    (folder / "empty").touch()
    (folder / "sub/b.json").write_text("{}")
    (folder / "w.safetensors").write_bytes(ALPHABET)
    client(r"""if True:
        import io
        from pathlib import Path
        from huggingface_hub import *
        from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

        api, repo, folder = HfApi(), "alice/model", Path("folder")
        assert api.whoami()["name"] == "alice" and api.whoami()["auth"]["accessToken"]["role"] == "write"
        assert api.create_repo(repo).repo_id == repo
        api.create_repo(repo, exist_ok=True)
        first = api.upload_folder(folder_path=folder, repo_id=repo, commit_message="folder")
        assert api.upload_folder(folder_path=folder, repo_id=repo, commit_message="again").oid == first.oid
        api.upload_file(path_or_fileobj=b"x\0", path_in_repo="c", repo_id=repo, commit_message="file")
        second = api.create_commit(repo, commit_message="commit", parent_commit=api.model_info(repo).sha, operations=[
            CommitOperationAdd("d.txt", b"d"), CommitOperationAdd("e.bin", io.BytesIO(b"e" * 1000)),
            CommitOperationDelete("a.txt"), CommitOperationDelete("sub/"),
            CommitOperationCopy("w.safetensors", "v.safetensors")])
        files = [".gitattributes", "c", "d.txt", "e.bin", "empty", "v.safetensors", "w.safetensors"]
        assert api.list_repo_files(repo) == files == [item.path for item in api.list_repo_tree(repo, expand=True)]
        assert api.list_repo_tree(repo, "sub", revision=first.oid).__next__().path == "sub/b.json"
        sibling = api.model_info(repo, files_metadata=True).siblings[-1]
        assert sibling.lfs.size == sibling.size == 768
        assert [item.path for item in api.get_paths_info(repo, ["c", "nothing"])] == ["c"]
        assert api.file_exists(repo, "c") and not api.file_exists(repo, "x")
        assert api.repo_exists(repo) and not api.repo_exists("alice/x") and not api.repo_exists(repo, repo_type="dataset")
        for error, call in (
            (RepositoryNotFoundError, lambda: api.model_info("alice/x")),
            (RevisionNotFoundError, lambda: api.model_info(repo, revision="x")),
            (EntryNotFoundError, lambda: hf_hub_download(repo, "x")),
            (EntryNotFoundError, lambda: list(api.list_repo_tree(repo, "x"))),
        ):
            try:
                call()
            except error:
                continue
            raise AssertionError(error)
        api.create_tag(repo, tag="v1", revision=first.oid)
        api.create_branch(repo, branch="side", revision="v1")
        request = api.create_commit(repo, [CommitOperationAdd("p", b"p")], commit_message="request", create_pr=True)
        assert request.pr_num == 1 and request.pr_revision == "refs/pr/1"
        api.upload_file(path_or_fileobj=b"q", path_in_repo="q", repo_id=repo, revision="refs/pr/1")
        refs = api.list_repo_refs(repo, include_pull_requests=True)
        assert [len(group) for group in (refs.branches, refs.tags, refs.pull_requests)] == [2, 1, 1]
        assert Path(hf_hub_download(repo, "a.txt", revision="v1")).read_text() == "hello"
        assert Path(hf_hub_download(repo, "q", revision="refs/pr/1")).read_text() == "q"
        assert Path(hf_hub_download(repo, "d.txt", local_dir="local")).read_text() == "d"
        there = Path(snapshot_download(repo))
        assert sorted(path.name for path in there.iterdir()) == files
        assert (there / "v.safetensors").read_bytes() == (folder / "w.safetensors").read_bytes()
        assert api.verify_repo_checksums(repo).mismatches == []
        titles = [item.title for item in api.list_repo_commits(repo)]
        assert titles == ["commit", "file", "folder", "initial commit"]
        files = HfFileSystem()
        assert files.read_text(f"{repo}/d.txt") == "d" and files.glob(f"{repo}/*.txt") == [f"{repo}/d.txt"]
        assert files.read_bytes(f"{repo}/v.safetensors", start=3, end=6) == b"\3\4\5"

        data = ModelCardData(license="mit", tags=["attention"], model_name="m", eval_results=[EvalResult(
            "text-classification", "imdb", "IMDB", "kendall_tau", 0.5)])
        ModelCard("---\n" + data.to_yaml() + "\n---\n# Card").push_to_hub(repo)
        assert ModelCard.load(repo).data.eval_results[0].metric_value == 0.5
        metadata_update(repo, {"tags": ["faithfulness"]}, overwrite=True)
        assert api.model_info(repo).tags == ["faithfulness"]
        try:
            api.upload_file(path_or_fileobj=b"---\na: [\n---\n", path_in_repo="README.md", repo_id=repo)
            raise AssertionError
        except ValueError as error:
            assert "Invalid metadata in README.md" in str(error)

        api.create_repo("hidden", repo_type="space", space_sdk="gradio", private=True)
        assert [item.id for item in api.list_spaces(author="alice")] == ["alice/hidden"]
        stranger = HfApi(token="hf_bob")
        assert not stranger.repo_exists("alice/hidden", repo_type="space") and not list(stranger.list_spaces())
        api.update_repo_settings("alice/hidden", repo_type="space", private=False)
        assert stranger.space_info("alice/hidden").sdk == "gradio"
        api.delete_repo("alice/hidden", repo_type="space")
        assert not api.repo_exists("alice/hidden", repo_type="space")
    """)
    assert [item.title for item in hub.history("model", "alice/model")][:4] == ["initial commit", "folder", "file", "commit"]
    assert hub.history("model", "alice/model", "refs/pr/1")[-2].title == "request"
    assert sum(item.method == "PUT" and "/lfs/" in item.path for item in hub.requests) == 3  # w.safetensors, c, e.bin


def test_huggingface_hub_with_pages_of_two(tmp_path):
    script = """if True:
        from huggingface_hub import HfApi, snapshot_download
        api = HfApi()
        for name in ("a", "b", "c"):
            api.create_repo(name, repo_type="dataset")
        for number in range(4):
            path = f"d/{number}/x"
            api.upload_file(path_or_fileobj=b"x", path_in_repo=path, repo_id="alice/a", repo_type="dataset")
        assert len(list(api.list_repo_tree("alice/a", repo_type="dataset", recursive=True))) == 10
        assert len(api.list_repo_commits("alice/a", repo_type="dataset")) == 5
        assert len(list(api.list_datasets())) == 3 and len(list(api.list_datasets(limit=2))) == 2
        snapshot_download("alice/a", repo_type="dataset", local_dir="all")
    """
    with HubServer(tmp_path / "hub", page_size=2) as hub:
        environment = hub.environment(tmp_path / "home")
        subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)
    assert len(list((tmp_path / "all").glob("d/*/x"))) == 4
    assert any("cursor=2" in item.path for item in hub.requests)


@pytest.mark.slow
def test_what_a_client_makes_of_each_fault(hub, client):
    create(hub)
    contents = [random.Random(size).randbytes(size) for size in (11_000_000, 300_000, 200_000)]
    cut, damaged_later, refused = (f"PUT /lfs/{hashlib.sha256(content).hexdigest()}" for content in contents)
    hub.fault(cut, cut_after_bytes=1000)
    hub.fault(cut, status=503)
    hub.fault("GET .*/0.bin", cut_after_bytes=10_600_000)  # clients keep pieces of 10 MiB
    hub.fault("GET .*/1.bin", wrong_hash=True)
    hub.fault(refused, wrong_hash=True)
    hub.fault("POST .*/preupload/busy", status=429, retry_after=2)
    hub.fault("POST .*/commit/down", status=500)
    hub.fault("POST .*/commit/race", conflict=True)
    hub.fault("POST .*/commit/lost", answer_lost=True)
    hub.fault("POST .*/commit/late", expired=True)
    hub.fault("HEAD .*/slow.txt", delay=60)
    client(
        """if True:
        import random, time
        from pathlib import Path
        from huggingface_hub import *
        from huggingface_hub.errors import *

        api, repo = HfApi(), "alice/repo"
        contents = [random.Random(size).randbytes(size) for size in (11_000_000, 300_000, 200_000)]

        def push(name, content=b"text", **options):
            return api.create_commit(repo, [CommitOperationAdd(name, content)], commit_message=name, **options)

        def fails(kind, says, call):
            try:
                call()
            except kind as error:
                assert says in f"{error} {error.__cause__}", (error, error.__cause__)
                return error
            raise AssertionError(says)

        # an upload that is cut, then refused, is sent again; a download that is cut goes on where it ended
        push("0.bin", contents[0])
        assert Path(hf_hub_download(repo, "0.bin")).read_bytes() == contents[0]

        # a download whose length is right: only comparing hashes shows that it is damaged
        push("1.bin", contents[1])
        assert Path(hf_hub_download(repo, "1.bin")).read_bytes() != contents[1]
        assert [item["path"] for item in api.verify_repo_checksums(repo).mismatches] == ["1.bin"]
        fails(RuntimeError, "The content has sha256", lambda: push("2.bin", contents[2]))

        for branch in ("busy", "down", "race", "lost", "late"):
            api.create_branch(repo, branch=branch)
        start = time.monotonic()
        push("x", revision="busy")
        assert time.monotonic() - start >= 2
        assert fails(HfHubHTTPError, "500", lambda: push("x", revision="down")).response.status_code == 500
        error = fails(HfHubHTTPError, "A commit has happened since", lambda: push("x", revision="race"))
        assert error.response.status_code == 412
        fails(Exception, "disconnected", lambda: push("x", revision="lost"))
        assert api.file_exists(repo, "x", revision="lost")
        assert fails(HfHubHTTPError, "expired", lambda: push("x", revision="late")).response.status_code == 401
        push("slow.txt")
        start = time.monotonic()
        assert Path(hf_hub_download(repo, "slow.txt")).read_bytes() == b"text"
        assert time.monotonic() - start < 60  # it has not waited, but asked again
        """,
        HF_HUB_ETAG_TIMEOUT="1",
    )
    sent = [(f"PUT {item.path}", item.status) for item in hub.requests if item.method == "PUT"]
    assert sent == [(cut, None), (cut, 503), (cut, 200), (damaged_later, 200), (refused, 400)]
    asked = [item.status for item in hub.requests if item.method == "GET" and item.path.endswith("/0.bin")]
    assert asked == [200, 206]
    tips = {ref: commit_id for ref, commit_id in hub.refs("model", "alice/repo").items() if ref != "refs/heads/main"}
    moved = [ref for ref, commit_id in tips.items() if hub.history("model", "alice/repo", ref)[-1].title == "x"]
    assert moved == ["refs/heads/busy", "refs/heads/lost"]


@pytest.mark.slow
def test_the_hf_command(hub, client, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("hello")
    assert "alice" in client([HF, "auth", "whoami"])
    client([HF, "upload", "alice/data", "folder", ".", "--repo-type", "dataset", "--private", "--commit-message", "by hand"])
    assert hub.history("dataset", "alice/data")[-1].title == "by hand"
    assert hub.storage.repo("dataset", "alice/data")["private"]
    client([HF, "download", "alice/data", "--repo-type", "dataset", "--local-dir", "copy"])
    assert (tmp_path / "copy/a.txt").read_text() == "hello"
    assert "Invalid user token" in client([HF, "auth", "whoami"], token="hf_wrong", code=1)


@pytest.mark.slow
def test_transformers(hub, client, tmp_path):
    """A configuration and a tokenizer pushed and loaded; code that travels with a private model."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}')
    (tmp_path / "own/own.py").write_text(
        "from transformers import PreTrainedConfig\n\n\nclass Own(PreTrainedConfig):\n    model_type = 'own'\n    size = 3\n"
    )
    client("""if True:
        from huggingface_hub import create_repo, upload_folder
        from tokenizers import Tokenizer, models
        from transformers import AutoConfig, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

        BertConfig(hidden_size=4, num_attention_heads=1).push_to_hub("alice/tiny")
        words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "film": 2}, unk_token="<unk>"))
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").push_to_hub("alice/tiny")
        assert AutoConfig.from_pretrained("alice/tiny").hidden_size == 4
        assert AutoTokenizer.from_pretrained("alice/tiny")("film").input_ids == [2]

        create_repo("alice/own", private=True)
        upload_folder(repo_id="alice/own", folder_path="own")
        try:
            AutoConfig.from_pretrained("alice/own", trust_remote_code=True, token="hf_bob")
            raise AssertionError
        except OSError as error:
            assert "alice/own is not a local folder and is not a valid model identifier" in str(error), error
        assert AutoConfig.from_pretrained("alice/own", trust_remote_code=True).size == 3
    """)
    assert {"config.json", "tokenizer.json"} < set(hub.history("model", "alice/tiny")[-1].files)


METRIC = """
import datasets
import evaluate

from .counting import agree


class Share(evaluate.Metric):
    def _info(self):
        types = datasets.Features(predictions=datasets.Value("int64"), references=datasets.Value("int64"))
        return evaluate.MetricInfo(description="", citation="", features=types)

    def _compute(self, predictions, references):
        return {"share": agree(predictions, references) / len(predictions)}
"""


@pytest.mark.slow
def test_datasets_and_evaluate(hub, client, tmp_path):
    (tmp_path / "space").mkdir()
    (tmp_path / "space/share.py").write_text(METRIC)
    (tmp_path / "space/counting.py").write_text("def agree(a, b):\n    return sum(x == y for x, y in zip(a, b))\n")
    client("""if True:
        import evaluate
        from datasets import Dataset, DatasetDict, get_dataset_config_names, load_dataset
        from huggingface_hub import create_repo, upload_folder

        rows = Dataset.from_dict({"text": ["a", "b", "c", "d"] * 5, "label": [0, 1, 0, 1] * 5})
        both = DatasetDict(train=rows, test=rows.select(range(4)))
        both.push_to_hub("alice/data", num_shards={"train": 3, "test": 1})
        rows.select(range(2)).push_to_hub("alice/data", config_name="table", split="results")
        assert get_dataset_config_names("alice/data") == ["default", "table"]
        loaded = load_dataset("alice/data")
        assert loaded["train"].to_dict() == rows.to_dict() and len(loaded["test"]) == 4
        assert load_dataset("alice/data", "table", split="results")["text"][:] == ["a", "b"]
        assert next(iter(load_dataset("alice/data", split="train", streaming=True))) == rows[0]
        files = "hf://datasets/alice/data/data/train-*.parquet"
        assert len(load_dataset("parquet", data_files=files, split="train")) == 20

        create_repo("alice/share", repo_type="space", space_sdk="gradio")
        upload_folder(repo_id="alice/share", repo_type="space", folder_path="space")
        share = evaluate.load("alice/share")
        assert share.compute(predictions=[1, 2, 3, 4], references=[1, 2, 3, 5]) == {"share": 0.75}
    """)
    files = hub.history("dataset", "alice/data")[-1].files
    assert sum(path.startswith("data/train-") for path in files) == 3
    assert b"config_name: table" in hub.read("dataset", "alice/data", "README.md")
