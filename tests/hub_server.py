"""A Hub on loopback that speaks the Hugging Face protocol to the unpatched clients: for tests.

Models, data sets and Spaces; users with write and read tokens; private repositories; branches, tags and pull requests; LFS;
ranges and ETags; pages; and faults on demand. What was pushed stays readable: `HubServer.history`, `.refs`, `.read`,
`.requests`.

On disk, under the root (one server a root):
    blobs/<sha256>                       contents of files, never changed
    commits/<id>.json                    parent, author, title, files; never changed
    repos/<kind>/<owner>/<name>.json     visibility and refs; replaced as a whole, and that is the moment a change happens
    incoming/                            what has not wholly arrived; emptied at start
Nothing is kept in memory between requests, so a server that is killed at any moment and started again serves whole commits.

What differs from the real Hub: plain HTTP, so that clients report a 401 without an error code as HfHubHTTPError where HTTPS
would give RepositoryNotFoundError; no Xet (clients need HF_HUB_DISABLE_XET=1); LFS objects are sent in one part, are
answered without a redirect, and one that is known from any repository need not be sent again; no organisations.
"""

import base64
import contextlib
import fnmatch
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import yaml


KINDS = ("model", "dataset", "space")
PIECE = 2**16
REGULAR_LIMIT = 10 * 2**20  # larger files are LFS whatever their name
LFS_SUFFIXES = ("arrow", "bin", "gz", "npz", "parquet", "pt", "safetensors", "zip")
LFS_ATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)


class User(NamedTuple):
    name: str
    role: str  # of the token: "write" or "read"


class Request(NamedTuple):
    method: str
    path: str  # with the query
    status: int | None  # None: the connection was cut before an answer
    user: str | None  # None: without a token, or before it was looked at


class Commit(NamedTuple):
    id: str
    title: str
    date: str
    files: dict[str, str]  # path: sha256 of the content
    message: str
    author: str
    parent: str | None


@dataclass
class Fault:
    """What `HubServer.fault` plans for the next `times` requests that match."""

    match: str
    times: int
    status: int | None
    retry_after: int | None
    cut_after_bytes: int | None
    wrong_hash: bool
    delay: float
    expired: bool
    conflict: bool
    answer_lost: bool


NO_FAULT = Fault("", 0, None, None, None, False, 0, False, False, False)


class Refusal(Exception):
    """An answer other than success; `code` goes into X-Error-Code, from which clients choose their exception."""

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: dict | None = None, body: dict | None = None
    ):
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message.encode("ascii", "replace").decode(), **(headers or {})}
        if code is not None:
            self.headers["X-Error-Code"] = code
        self.body = {"error": message, **(body or {})}


class Cut(Exception):
    """The connection ends here, without an answer or within one."""


# ------------------------------------------------------------------------------------------------ on disk


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def valid_name(name: str) -> bool:
    """The Hub's rule for owners and repositories."""
    return bool(re.fullmatch(r"\w(?:[\w.-]{0,94}\w)?", name, re.ASCII)) and not re.search(r"--|\.\.|\.git$", name)


class Storage:
    """Blobs, commits and repositories under one folder; see the head of the file."""

    def __init__(self, root: Path):
        self.root = root
        shutil.rmtree(root / "incoming", ignore_errors=True)
        for folder in ("blobs", "commits", "repos", "incoming"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def replace(self, path: Path, pieces: Iterable[bytes], *, sha256: str | None = None) -> None:
        """Writes all of the file or, if the pieces end in an exception or in another hash than `sha256`, nothing."""
        handle, temporary = tempfile.mkstemp(dir=self.root / "incoming")
        digest = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    file.write(piece)
            if sha256 not in (None, digest.hexdigest()):
                raise Refusal(400, f"The content has sha256 {digest.hexdigest()}, not {sha256}")
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / sha256

    def entry(self, content: bytes) -> dict:
        """Keeps the content of a regular file; what a commit says of it."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.replace(self.blob(sha256), [content])
        return {"sha256": sha256, "size": len(content), "oid": git_oid(content), "lfs": False}

    def lfs_entry(self, sha256: str) -> dict:
        """What a commit says of an LFS object that has arrived."""
        size = self.blob(sha256).stat().st_size
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
        return {"sha256": sha256, "size": size, "oid": git_oid(pointer.encode()), "lfs": True, "pointer": len(pointer)}

    def repo_path(self, kind: str, repo_id: str) -> Path:
        return self.root / "repos" / kind / f"{repo_id}.json"

    def repo(self, kind: str, repo_id: str) -> dict | None:
        if not all(valid_name(part) for part in repo_id.split("/")) or not self.repo_path(kind, repo_id).exists():
            return None
        return json.loads(self.repo_path(kind, repo_id).read_text())

    def repos(self, kind: str) -> Iterator[tuple[str, dict]]:
        for path in sorted((self.root / "repos" / kind).glob("*/*.json")):
            yield f"{path.parent.name}/{path.stem}", json.loads(path.read_text())

    def save(self, kind: str, repo_id: str, repo: dict) -> None:
        self.replace(self.repo_path(kind, repo_id), [json.dumps(repo).encode()])

    def commit(self, repo: dict, ref: str, parent: str | None, author: str, title: str, message: str, files: dict) -> str:
        """Adds a commit to the repository and points `ref` to it; it counts once the repository is saved."""
        content = json.dumps(
            {
                "repo": repo["key"],
                "parent": parent,
                "author": author,
                "date": now(),
                "title": title,
                "message": message,
                "files": dict(sorted(files.items())),
            }
        ).encode()
        commit_id = hashlib.sha1(content).hexdigest()
        self.replace(self.root / "commits" / f"{commit_id}.json", [content])
        repo["refs"][ref] = commit_id
        return commit_id

    def read_commit(self, commit_id: str) -> dict:
        return {"id": commit_id, **json.loads((self.root / "commits" / f"{commit_id}.json").read_text())}

    def log(self, commit_id: str | None) -> Iterator[dict]:
        """The commit and those before it, newest first."""
        while commit_id is not None:
            commit = self.read_commit(commit_id)
            yield commit
            commit_id = commit["parent"]

    def resolve(self, repo: dict, revision: str) -> str | None:
        """The commit that a branch, tag, ref or commit id of the repository names; None if there is none."""
        for ref in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if ref in repo["refs"]:
                return repo["refs"][ref]
        if re.fullmatch(r"[0-9a-f]{40}", revision) and (self.root / "commits" / f"{revision}.json").exists():
            return revision if self.read_commit(revision)["repo"] == repo["key"] else None
        return None


def front_matter(card: str) -> dict | None:
    """The metadata at the head of a README.md; None if there are none.

    Raises:
        ValueError: they are no YAML, or no mapping; the message says where.
    """
    block = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", card, re.DOTALL | re.MULTILINE)
    if block is None:
        return None
    try:
        metadata = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("the metadata must be a mapping")
    return metadata or None


def matches_any(path: str, patterns: Iterable[str]) -> bool:
    """Whether a .gitignore or .gitattributes with these plain patterns means the path."""
    parts = PurePosixPath(path).parts
    candidates = {*parts, *("/".join(parts[: end + 1]) for end in range(len(parts)))}
    return any(fnmatch.fnmatch(name, pattern.strip("/")) for pattern in patterns for name in candidates)


def damaged(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same number of bytes with another hash."""
    for number, piece in enumerate(pieces):
        yield piece if number else bytes([piece[0] ^ 1]) + piece[1:]


def blob_pieces(path: Path, start: int, stop: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while start < stop:
            piece = file.read(min(PIECE, stop - start))
            start += len(piece)
            yield piece


# ------------------------------------------------------------------------------------------------ protocol


class Handler(BaseHTTPRequestHandler):
    """One connection. Methods named in ROUTES answer a request or raise Refusal; they change the disk under `hub.lock`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of a small answer leave together
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.hub: HubServer = self.server.hub
        self.storage = self.hub.storage
        self.hub.connections.add(self.connection)

    def finish(self):
        self.hub.connections.discard(self.connection)
        super().finish()

    def log_message(self, *arguments):
        pass

    def answer(self):
        """Answers one request, or does to it what a fault says."""
        self.fault = self.hub.next_fault(f"{self.command} {self.path}")
        self.user = None
        self.body = self.received()
        self.query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        try:
            try:
                self.serve()
            except Refusal as refusal:
                self.send_json(refusal.body, status=refusal.status, headers=refusal.headers)
        except Cut:
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client was faster
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
        except ConnectionError:  # the client has gone
            self.close_connection = True
        except Exception:
            self.hub.errors.append(f"{self.command} {self.path}\n{traceback.format_exc()}")
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def serve(self):
        if self.fault.delay and self.hub.closed.wait(self.fault.delay):
            raise Cut
        if self.fault.cut_after_bytes is not None and self.command in ("POST", "PUT"):
            received = itertools.accumulate(len(piece) for piece in self.body)
            any(size >= self.fault.cut_after_bytes for size in received)
            self.note(None)
            raise Cut
        if self.fault.status is not None:
            wait = self.fault.retry_after
            raise Refusal(
                self.fault.status,
                f"Planned answer {self.fault.status}",
                headers={} if wait is None else {"Retry-After": str(wait)},
            )
        if self.fault.expired:
            raise Refusal(401, 'User Access Token "test" is expired')
        self.user = self.authenticated()
        if self.fault.conflict:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        path = urlsplit(self.path).path
        for methods, pattern, name in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in methods.split():
                values = {key: unquote(value) for key, value in found.groupdict(default="").items()}
                if "kind" in values:
                    values["kind"] = values["kind"].removesuffix("s") or "model"
                return getattr(self, name)(**values)
        raise Refusal(404, f"There is no such repository or endpoint: {self.command} {path}", "RepoNotFound")

    def authenticated(self) -> User | None:
        authorization = self.headers.get("Authorization")
        if authorization is None:
            return None
        user = self.hub.users.get(authorization.removeprefix("Bearer "))
        if user is None:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return user

    # -------------------------------------------------------------------------------------------- bodies and answers

    def received(self) -> Iterator[bytes]:
        """The body of the request in pieces, whichever way it is framed.

        Raises:
            ConnectionError: the client went away in the middle.
        """
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.arrived(self.rfile.readline()).split(b";")[0], 16):
                yield from self.pieces(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            yield from self.pieces(int(self.headers.get("Content-Length", 0)))

    def pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.arrived(self.rfile.read(min(size, PIECE)))
            size -= len(piece)
            yield piece

    def arrived(self, content: bytes) -> bytes:
        if not content:
            raise ConnectionResetError("the client went away in the middle of its request")
        return content

    def drain(self):
        """The rest of the request must be read, or it would be taken for the next one."""
        for _ in self.body:
            pass

    def json(self) -> dict:
        try:
            return json.loads(b"".join(self.body) or b"{}")
        except ValueError as error:
            raise Refusal(400, f"The body is no JSON: {error}") from error

    def flag(self, name: str) -> bool:
        return self.query.get(name, [""])[0].lower() in ("1", "true")

    def note(self, status: int | None):
        self.hub.requests.append(Request(self.command, self.path, status, self.user and self.user.name))

    def send(self, status: int, headers: dict, pieces: Iterable[bytes] = ()):
        """Sends an answer whose headers give its length; cut off where a fault says so."""
        self.drain()
        if self.fault.answer_lost:
            self.note(None)
            raise Cut
        self.note(status)
        self.send_response(status)
        for name, value in {"X-Request-Id": secrets.token_hex(8), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        left = math.inf if self.fault.cut_after_bytes is None else self.fault.cut_after_bytes
        for piece in () if self.command == "HEAD" else pieces:
            self.wfile.write(piece[: min(left, len(piece))])
            left -= len(piece)
            if left < 0:
                raise Cut
        self.wfile.flush()

    def send_json(self, value, *, status: int = 200, headers: dict | None = None):
        content = json.dumps(value, default=str).encode()
        head = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(content)), **(headers or {})}
        self.send(status, head, [content])

    def send_page(self, items: list, size: int):
        """Part of the items, from the cursor in the query; the header Link leads to the next part."""
        start = int(self.query.get("cursor", ["0"])[0])
        stop = start + min(int(self.query.get("limit", [size])[0]), self.hub.page_size or size)
        headers = {"X-Total-Count": str(len(items))}
        if stop < len(items):
            query = urlencode({**self.query, "cursor": stop}, doseq=True)
            headers["Link"] = f'<{self.hub.endpoint}{urlsplit(self.path).path}?{query}>; rel="next"'
        self.send_json(items[start:stop], headers=headers)

    # -------------------------------------------------------------------------------------------- who may do what

    def writer(self) -> User:
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        if self.user.role != "write":
            raise Refusal(403, "This token is read-only: use one with the role write")
        return self.user

    def owner(self, repo_id: str, what: str) -> User:
        if self.writer().name != repo_id.split("/")[0]:
            raise Refusal(403, f'You do not have the rights to {what} under the namespace "{repo_id.split("/")[0]}"')
        return self.user

    def repo(self, kind: str, repo_id: str) -> dict:
        """The repository, if whoever asks may see it; otherwise it does not exist for them."""
        repo = self.storage.repo(kind, repo_id)
        if repo is None or (repo["private"] and (self.user is None or self.user.name != repo_id.split("/")[0])):
            raise Refusal(401 if self.user is None else 404, "Repository not found", "RepoNotFound")
        return repo

    def at(self, repo: dict, revision: str) -> dict:
        commit_id = self.storage.resolve(repo, revision)
        if commit_id is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.storage.read_commit(commit_id)

    def url(self, kind: str, repo_id: str) -> str:
        return f"{self.hub.endpoint}{'' if kind == 'model' else f'/{kind}s'}/{repo_id}"

    # -------------------------------------------------------------------------------------------- account, repositories

    def whoami(self):
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        token = {"displayName": "test", "role": self.user.role, "createdAt": now()}
        self.send_json(
            {
                "type": "user",
                "id": hashlib.sha1(self.user.name.encode()).hexdigest()[:24],
                "name": self.user.name,
                "fullname": self.user.name,
                "email": f"{self.user.name}@example.org",
                "emailVerified": True,
                "isPro": False,
                "canPay": False,
                "orgs": [],
                "auth": {"type": "access_token", "accessToken": token},
            }
        )

    def named(self, request: dict) -> tuple[str, str]:
        """Kind and id of the repository that a request to create or delete names."""
        kind, name = request.get("type") or "model", str(request.get("name"))
        owner = request.get("organization") or self.writer().name
        if kind not in KINDS:
            raise Refusal(400, f"Invalid repository type {kind!r}: must be one of {', '.join(KINDS)}")
        if not valid_name(name):
            raise Refusal(400, f"Invalid repository name {name!r}")
        return kind, f"{owner}/{name}"

    def create(self):
        request = self.json()
        kind, repo_id = self.named(request)
        user = self.owner(repo_id, f"create a {kind}")
        if kind == "space" and request.get("sdk") not in ("gradio", "docker", "static"):
            raise Refusal(400, 'A Space needs an "sdk": gradio, docker or static')
        with self.hub.lock:
            if self.storage.repo(kind, repo_id) is not None:
                raise Refusal(409, f"You already created this {kind} repo", body={"url": self.url(kind, repo_id)})
            repo = {
                "key": secrets.token_hex(12),
                "created": now(),
                "private": request.get("visibility") == "private" or bool(request.get("private")),
                "sdk": request.get("sdk"),
                "refs": {},
            }
            files = {".gitattributes": self.storage.entry(LFS_ATTRIBUTES.encode())}
            self.storage.commit(repo, "refs/heads/main", None, user.name, "initial commit", "", files)
            self.storage.save(kind, repo_id, repo)
        self.send_json({"url": self.url(kind, repo_id), "name": repo_id, "id": repo["key"]})

    def validate_yaml(self):
        """A card whose metadata are no YAML is refused here, before any file is sent."""
        try:
            metadata = front_matter(self.json()["content"])
        except ValueError as error:
            raise Refusal(400, "Invalid metadata", body={"errors": [{"message": str(error)}], "warnings": []}) from error
        warnings = [] if metadata else [{"message": "empty or missing yaml metadata in repo card"}]
        self.send_json({"errors": [], "warnings": warnings})

    def describe(self, kind: str, repo_id: str, repo: dict, commit: dict) -> dict:
        card = commit["files"].get("README.md")
        try:
            metadata = (card and front_matter(self.storage.blob(card["sha256"]).read_text())) or {}
        except ValueError:
            metadata = {}
        siblings = []
        for path, entry in commit["files"].items():
            sibling = {"rfilename": path}
            if self.flag("blobs"):
                sibling |= {"size": entry["size"], "blobId": entry["oid"]}
                if entry["lfs"]:
                    sibling["lfs"] = {"size": entry["size"], "sha256": entry["sha256"], "pointerSize": entry["pointer"]}
            siblings.append(sibling)
        described = {
            "_id": repo["key"],
            "id": repo_id,
            "author": repo_id.split("/")[0],
            "sha": commit["id"],
            "createdAt": repo["created"],
            "lastModified": commit["date"],
            "private": repo["private"],
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": metadata.get("tags") or [],
            "cardData": metadata,
            "siblings": siblings,
        }
        if kind == "model":
            described["modelId"] = repo_id
            described |= {key: metadata[key] for key in ("library_name", "pipeline_tag", "model-index") if key in metadata}
        if kind == "space":
            described["sdk"] = repo["sdk"]
        if "expand" in self.query:
            described = {key: described[key] for key in ("_id", "id", *self.query["expand"]) if key in described}
        return described

    def info(self, kind: str, repo_id: str, revision: str = "main"):
        repo = self.repo(kind, repo_id)
        self.send_json(self.describe(kind, repo_id, repo, self.at(repo, revision)))

    # -------------------------------------------------------------------------------------------- reading

    def file_item(self, path: str, entry: dict) -> dict:
        item = {"type": "file", "oid": entry["oid"], "size": entry["size"], "path": path}
        if entry["lfs"]:
            item["lfs"] = {"oid": entry["sha256"], "size": entry["size"], "pointerSize": entry["pointer"]}
        return item

    def folder_item(self, path: str, files: dict) -> dict:
        inside = json.dumps([(name, entry["oid"]) for name, entry in files.items() if name.startswith(f"{path}/")])
        return {"type": "directory", "oid": hashlib.sha1(inside.encode()).hexdigest(), "size": 0, "path": path}

    def tree(self, kind: str, repo_id: str, revision: str, path: str):
        commit = self.at(self.repo(kind, repo_id), revision)
        prefix = f"{path.strip('/')}/" if path.strip("/") else ""
        files = {name: entry for name, entry in commit["files"].items() if name.startswith(prefix)}
        if prefix and not files:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound", {"X-Repo-Commit": commit["id"]})
        items = {}
        for name, entry in files.items():
            parts = name.removeprefix(prefix).split("/")
            for depth in range(1, len(parts) if self.flag("recursive") else min(2, len(parts))):
                folder = prefix + "/".join(parts[:depth])
                items.setdefault(folder, self.folder_item(folder, files))
            if self.flag("recursive") or len(parts) == 1:
                items[name] = self.file_item(name, entry)
        found = list(items.values())
        self.send_page(found, 1000)

    def refs(self, kind: str, repo_id: str):
        repo = self.repo(kind, repo_id)
        found = {"heads": [], "tags": [], "pr": []}
        for ref, commit_id in repo["refs"].items():
            group, name = ref.removeprefix("refs/").split("/", 1)
            found[group].append({"name": name, "ref": ref, "targetCommit": commit_id})
        answer = {"branches": found["heads"], "tags": found["tags"], "converts": []}
        self.send_json(answer | ({"pullRequests": found["pr"]} if self.flag("include_prs") else {}))

    def resolve(self, kind: str, repo_id: str, revision: str, path: str):
        commit = self.at(self.repo(kind, repo_id), revision)
        entry = commit["files"].get(path)
        if entry is None:
            raise Refusal(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit["id"]})
        size, start, stop, status = entry["size"], 0, entry["size"], 200
        etag = f'"{entry["sha256"] if entry["lfs"] else entry["oid"]}"'
        headers = {
            "X-Repo-Commit": commit["id"],
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'inline; filename="{PurePosixPath(path).name}"',
        }
        if entry["lfs"]:
            headers |= {"X-Linked-Size": str(size), "X-Linked-Etag": etag}
        if self.headers.get("If-None-Match") in (etag, "*"):
            return self.send(304, headers)
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked and any(asked.groups()):
            first, last = asked.groups()
            start = int(first) if first else max(0, size - int(last))
            stop = min(size, int(last) + 1) if first and last else size
            if start >= stop:
                raise Refusal(416, "The range is outside the file", headers={"Content-Range": f"bytes */{size}"})
            status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{size}"
        content = blob_pieces(self.storage.blob(entry["sha256"]), start, stop)
        content = damaged(content) if self.fault.wrong_hash else content
        self.send(status, headers | {"Content-Length": str(stop - start)}, content)

    # -------------------------------------------------------------------------------------------- writing

    def may_commit(self, repo: dict, repo_id: str, revision: str) -> str:
        """The ref that a commit to this revision moves; anybody may open a pull request and add to their own.

        Raises:
            Refusal: no such branch or pull request (404), or it belongs to somebody else (403).
        """
        user = self.writer()
        ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        if ref not in repo["refs"] or ref.startswith("refs/tags/"):
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        theirs = user.name != repo_id.split("/")[0]
        if theirs and ref.startswith("refs/pr/"):
            theirs = self.storage.read_commit(repo["refs"][ref])["author"] != user.name
        if theirs and not self.flag("create_pr"):
            raise Refusal(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return ref

    def preupload(self, kind: str, repo_id: str, revision: str):
        """How each file is to be sent, and the hash of what is there already, so that unchanged files stay away."""
        request = self.json()
        repo = self.repo(kind, repo_id)
        commit = self.at(repo, self.may_commit(repo, repo_id, revision))
        files = commit["files"]
        patterns = []
        if ".gitattributes" in files:
            attributes = self.storage.blob(files[".gitattributes"]["sha256"]).read_text().splitlines()
            patterns = [line.split()[0] for line in attributes if "filter=lfs" in line.split()]
        ignored = [line for line in (request.get("gitIgnore") or "").splitlines() if line.strip() and line[0] != "#"]
        answers = []
        for file in request["files"]:
            binary = b"\0" in base64.b64decode(file["sample"])
            large = binary or file["size"] > REGULAR_LIMIT or matches_any(file["path"], patterns)
            answer = {"path": file["path"], "uploadMode": "lfs" if large else "regular"}
            answer["shouldIgnore"] = matches_any(file["path"], ignored)
            if known := files.get(file["path"]):
                answer["oid"] = known["sha256"] if known["lfs"] else known["oid"]
            answers.append(answer)
        self.send_json({"files": answers, "commitOid": commit["id"]})

    def lfs_batch(self, kind: str, repo_id: str):
        """Where to send LFS objects that have not arrived yet."""
        request = self.json()
        self.repo(kind, repo_id)
        self.writer()
        objects = []
        for wanted in request["objects"]:
            answer = {"oid": wanted["oid"], "size": wanted["size"], "authenticated": True}
            if not self.storage.blob(wanted["oid"]).exists():
                answer["actions"] = {
                    "upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}", "header": {}},
                    "verify": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}/verify", "header": {}},
                }
            objects.append(answer)
        content_type = {"Content-Type": "application/vnd.git-lfs+json"}
        self.send_json({"transfer": "basic", "objects": objects, "hash_algo": "sha256"}, headers=content_type)

    def lfs_receive(self, sha256: str):
        content = damaged(self.body) if self.fault.wrong_hash else self.body
        self.storage.replace(self.storage.blob(sha256), content, sha256=sha256)
        self.send_json({})

    def lfs_verify(self, sha256: str):
        blob = self.storage.blob(sha256)
        if not blob.exists() or blob.stat().st_size != self.json().get("size"):
            raise Refusal(404, f"The object {sha256} has not arrived")
        self.send_json({})

    def commit(self, kind: str, repo_id: str, revision: str):
        """All changes of the request or none: they hold from the moment the repository's file is replaced."""
        try:
            lines = [json.loads(line) for line in b"".join(self.body).splitlines() if line.strip()]
        except ValueError as error:
            raise Refusal(400, f"A line of the body is no JSON: {error}") from error
        with self.hub.lock:
            repo = self.repo(kind, repo_id)
            ref = self.may_commit(repo, repo_id, revision)
            parent = repo["refs"][ref]
            head, files = {}, dict(self.storage.read_commit(parent)["files"])
            for line in lines:
                if line["key"] == "header":
                    head = line["value"]
                else:
                    self.change(files, line["key"], line["value"])
            if head.get("parentCommit", parent) != parent:
                raise Refusal(412, "A commit has happened since. Please refresh and try again.")
            pull_request = None
            if self.flag("create_pr"):
                number = 1 + sum(name.startswith("refs/pr/") for name in repo["refs"])
                ref, pull_request = f"refs/pr/{number}", f"{self.url(kind, repo_id)}/discussions/{number}"
            title, message = head.get("summary", ""), head.get("description", "")
            commit_id = self.storage.commit(repo, ref, parent, self.user.name, title, message, files)
            self.storage.save(kind, repo_id, repo)
        url = f"{self.url(kind, repo_id)}/commit/{commit_id}"
        self.send_json({"success": True, "commitUrl": url, "commitOid": commit_id, "pullRequestUrl": pull_request})

    def change(self, files: dict, key: str, value: dict) -> None:
        """Applies one line of a commit to the files."""
        path = value["path"]
        if key.startswith("deleted"):
            folder = f"{path.rstrip('/')}/"
            gone = [name for name in files if (name.startswith(folder) if key == "deletedFolder" else name == path)]
            if not gone:
                raise Refusal(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for name in gone:
                del files[name]
            return
        parts = path.split("/")
        if any(part in ("", ".", "..", ".git") for part in parts) or "\0" in path:
            raise Refusal(400, f"Invalid path {path!r}")
        if key == "file":
            files[path] = self.storage.entry(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if not re.fullmatch(r"[0-9a-f]{64}", value["oid"]) or not self.storage.blob(value["oid"]).exists():
                raise Refusal(400, f"An LFS pointer pointed to a file that does not exist: {path}")
            files[path] = self.storage.lfs_entry(value["oid"])
        else:
            raise Refusal(400, f"Unknown operation {key!r}")

    def branch(self, kind: str, repo_id: str, name: str):
        starting_point = self.json().get("startingPoint", "main")
        if name.startswith("refs/"):
            raise Refusal(400, f"Invalid reference for a branch: {name}")
        self.change_ref(kind, repo_id, f"refs/heads/{name}", starting_point)

    def change_ref(self, kind: str, repo_id: str, ref: str, revision: str):
        with self.hub.lock:
            repo = self.repo(kind, repo_id)
            self.owner(repo_id, "change references")
            if self.command == "DELETE":
                if ref not in repo["refs"] or ref == "refs/heads/main":
                    raise Refusal(404, f"Cannot delete {ref}", "RevisionNotFound")
                del repo["refs"][ref]
            else:
                if ref in repo["refs"]:
                    raise Refusal(409, f"Reference already exists: {ref}")
                repo["refs"][ref] = self.at(repo, revision)["id"]
            self.storage.save(kind, repo_id, repo)
        self.send_json({}, status=200 if self.command == "DELETE" else 201)


KIND = "(?P<kind>models|datasets|spaces)"
REPO = "(?P<repo_id>[^/]+/[^/]+?)"
REVISION = "(?P<revision>[^/]+)"
WEB = f"(?:/{KIND.replace('models|', '')})?/{REPO}"
ROUTES = [
    ("GET", "/api/whoami-v2", "whoami"),
    ("POST", "/api/repos/create", "create"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("GET HEAD", f"/api/{KIND}/{REPO}", "info"),
    ("GET HEAD", f"/api/{KIND}/{REPO}/revision/{REVISION}", "info"),
    ("GET", f"/api/{KIND}/{REPO}/refs", "refs"),
    ("GET", f"/api/{KIND}/{REPO}/tree/{REVISION}(?:/(?P<path>.*))?", "tree"),
    ("POST", f"/api/{KIND}/{REPO}/preupload/{REVISION}", "preupload"),
    ("POST", f"/api/{KIND}/{REPO}/commit/{REVISION}", "commit"),
    ("POST DELETE", f"/api/{KIND}/{REPO}/branch/(?P<name>[^/]+)", "branch"),
    ("POST", rf"{WEB}\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", "/lfs/(?P<sha256>[0-9a-f]{64})", "lfs_receive"),
    ("POST", "/lfs/(?P<sha256>[0-9a-f]{64})/verify", "lfs_verify"),
    ("GET HEAD", f"{WEB}/resolve/{REVISION}/(?P<path>.+)", "resolve"),
]


# ------------------------------------------------------------------------------------------------ server


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client may leave at any time
            self.hub.errors.append(traceback.format_exc())


class HubServer:
    """A Hub at `endpoint`, from `with` to its end; see the head of the file.

    Users are alice (token hf_alice; hf_alice_read may only read) and bob (hf_bob); `add_user` adds others.

    Args:
        root: the folder of the data, kept; None for one that is deleted at the end. What an earlier server left is served.
        port: 0 for any free one.
        page_size: at most so many items in an answer that is given in pages; None for the Hub's own sizes.

    Attributes:
        requests: what was asked so far, in order of the answers.

    Raises:
        RuntimeError: at the end of `with`, if the server itself has failed on a request.
    """

    def __init__(self, root: Path | None = None, *, port: int = 0, page_size: int | None = None):
        self.temporary = tempfile.TemporaryDirectory(prefix="hub-", ignore_cleanup_errors=True) if root is None else None
        self.root = Path(self.temporary.name if root is None else root)
        self.page_size = page_size
        self.storage = Storage(self.root)
        self.users: dict[str, User] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.errors: list[str] = []
        self.connections: set[socket.socket] = set()
        self.lock = threading.RLock()
        self.closed = threading.Event()
        for name, token, role in (
            ("alice", "hf_alice", "write"),
            ("alice", "hf_alice_read", "read"),
            ("bob", "hf_bob", "write"),
        ):
            self.add_user(name, token, role)
        self.server = Server(("127.0.0.1", port), Handler)
        self.server.hub = self
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        if self.temporary is not None:
            self.temporary.cleanup()
        if self.errors and error is None:
            raise RuntimeError("the Hub server failed on a request:\n" + "\n".join(self.errors))

    def add_user(self, name: str, token: str, role: str = "write") -> None:
        """Lets the token act as the user; role "read" may not change anything."""
        self.users[token] = User(name, role)

    def environment(self, home: Path, *, token: str | None = "hf_alice") -> dict[str, str]:
        """The environment of a process that is to use this Hub and nothing else.

        Args:
            home: folder for the caches of the Hugging Face libraries.
            token: None for no token at all.
        """
        ours = ("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "NO_PROXY": "127.0.0.1",
            **({} if token is None else {"HF_TOKEN": token}),
        }

    def fault(
        self,
        match: str,
        *,
        times: int = 1,
        status: int | None = None,
        retry_after: int | None = None,
        cut_after_bytes: int | None = None,
        wrong_hash: bool = False,
        delay: float = 0,
        expired: bool = False,
        conflict: bool = False,
        answer_lost: bool = False,
    ) -> None:
        """Plans a fault for the next `times` requests in whose "METHOD /path?query" the regular expression is found.

        Of several faults that match, the one planned first is used up first. Nothing of a request that gets a fault takes
        place, except with delay alone, answer_lost, wrong_hash in a download, and a cut download.

        Args:
            status: the answer, such as 429, 500 or 503; retry_after (seconds) becomes its header Retry-After.
            cut_after_bytes: the connection ends after so many bytes: of the body that is sent with POST or PUT (all of it if
                it is shorter), of the body that is answered to GET.
            wrong_hash: one byte arrives changed: in a downloaded file, or in an LFS object that is sent, which is refused.
            delay: seconds before anything else happens.
            expired: 401, the token has expired.
            conflict: 412, as if somebody else had committed in between.
            answer_lost: the request takes place, but the connection ends before the answer.
        """
        if not (status or cut_after_bytes is not None or wrong_hash or delay or expired or conflict or answer_lost):
            raise ValueError(
                "a fault needs one of status, cut_after_bytes, wrong_hash, delay, expired, conflict, answer_lost"
            )
        self.faults.append(
            Fault(match, times, status, retry_after, cut_after_bytes, wrong_hash, delay, expired, conflict, answer_lost)
        )

    def next_fault(self, request: str) -> Fault:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.match, request):
                    fault.times -= 1
                    return fault
        return NO_FAULT

    def existing(self, kind: str, repo_id: str) -> dict:
        repo = self.storage.repo(kind, repo_id)
        if repo is None:
            raise KeyError(f"there is no {kind} {repo_id}")
        return repo

    def history(self, kind: str, repo_id: str, revision: str = "main") -> list[Commit]:
        """Every commit of a branch, tag, pull request ("refs/pr/1") or commit id, the newest last.

        Raises:
            KeyError: there is no such repository or revision.
        """
        commit_id = self.storage.resolve(self.existing(kind, repo_id), revision)
        if commit_id is None:
            raise KeyError(f"there is no revision {revision} of {kind} {repo_id}")
        log = [
            Commit(
                id=commit["id"],
                title=commit["title"],
                date=commit["date"],
                files={path: entry["sha256"] for path, entry in commit["files"].items()},
                message=commit["message"],
                author=commit["author"],
                parent=commit["parent"],
            )
            for commit in self.storage.log(commit_id)
        ]
        return log[::-1]

    def refs(self, kind: str, repo_id: str) -> dict[str, str]:
        """Commit ids by full name: "refs/heads/main", "refs/tags/v1", "refs/pr/1"."""
        return self.existing(kind, repo_id)["refs"]

    def read(self, kind: str, repo_id: str, path: str, revision: str = "main") -> bytes:
        """The content of a file.

        Raises:
            KeyError: there is no such repository, revision or file.
        """
        return self.storage.blob(self.history(kind, repo_id, revision)[-1].files[path]).read_bytes()
