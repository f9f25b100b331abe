"""A Hub on loopback that speaks the Hugging Face protocol to the unpatched clients: for tests.

Models, data sets and Spaces; users with write and read tokens; private repositories; branches and pull requests; LFS. What
was pushed stays readable: `HubServer.history`, `.read`, `.requests`. Its data are on disk, so that forked processes see
them: `blobs/<sha256>`, `commits/<id>.json`, and `repos/<kind>/<owner>/<name>.json` with visibility and refs, whose
replacement is the moment a change happens.

The real Hub differs: HTTPS (here clients report a 401 without an error code as HfHubHTTPError), Xet (clients need
HF_HUB_DISABLE_XET=1), LFS objects in parts and by redirect, organisations, pages of long lists.
"""

import base64
import fnmatch
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from attnfaith.files import write_atomically


KINDS = ("model", "dataset", "space")
LFS_SUFFIXES = ("arrow", "bin", "gz", "npz", "parquet", "pt", "safetensors", "zip")
LFS_ATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)


class User(NamedTuple):
    name: str
    role: str  # of the token: "write" or "read"


class Request(NamedTuple):
    method: str
    path: str  # with the query
    status: int
    user: str | None  # None: without a token


class Commit(NamedTuple):
    id: str
    title: str
    files: dict[str, str]  # path: sha256 of the content


class Refusal(Exception):
    """An answer other than success; `code` goes into X-Error-Code, from which clients choose their exception."""

    def __init__(self, status: int, message: str, code: str | None = None, **body):
        super().__init__(message)
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


# ------------------------------------------------------------------------------------------------ on disk


class Storage:
    """Blobs, commits and repositories under one folder; see the head of the file."""

    def __init__(self, root: Path):
        self.root = root

    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / sha256

    def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        write_atomically(self.blob(sha256), content)
        return sha256

    def entry(self, sha256: str, *, lfs: bool) -> dict:
        """What a commit says of a file whose content has arrived."""
        content = self.blob(sha256).read_bytes()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
        stored = pointer if lfs else content
        oid = hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()
        return {"sha256": sha256, "size": len(content), "oid": oid, "lfs": lfs}

    def repo_path(self, kind: str, repo_id: str) -> Path:
        return self.root / "repos" / kind / f"{repo_id}.json"

    def repo(self, kind: str, repo_id: str) -> dict | None:
        path = self.repo_path(kind, repo_id)
        return json.loads(path.read_text()) if path.exists() else None

    def repos(self, kind: str) -> Iterator[tuple[str, dict]]:
        for path in sorted((self.root / "repos" / kind).glob("*/*.json")):
            yield f"{path.parent.name}/{path.stem}", json.loads(path.read_text())

    def save(self, kind: str, repo_id: str, repo: dict) -> None:
        write_atomically(self.repo_path(kind, repo_id), json.dumps(repo))

    def commit(self, repo: dict, ref: str, parent: str | None, title: str, files: dict) -> str:
        """Adds a commit to the repository and points `ref` to it; it counts once the repository is saved."""
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        commit = {"repo": repo["key"], "parent": parent, "date": date, "title": title, "files": dict(sorted(files.items()))}
        content = json.dumps(commit).encode()
        repo["refs"][ref] = hashlib.sha1(content).hexdigest()
        write_atomically(self.root / "commits" / f"{repo['refs'][ref]}.json", content)
        return repo["refs"][ref]

    def read_commit(self, commit_id: str) -> dict:
        return {"id": commit_id, **json.loads((self.root / "commits" / f"{commit_id}.json").read_text())}

    def resolve(self, repo: dict, revision: str) -> str | None:
        """The commit that a branch, ref or commit id of the repository names; None if there is none."""
        for ref in (revision, f"refs/heads/{revision}"):
            if ref in repo["refs"]:
                return repo["refs"][ref]
        if re.fullmatch(r"[0-9a-f]{40}", revision) and (self.root / "commits" / f"{revision}.json").exists():
            return revision if self.read_commit(revision)["repo"] == repo["key"] else None
        return None


# ------------------------------------------------------------------------------------------------ protocol


class Handler(BaseHTTPRequestHandler):
    """One connection. Methods named in ROUTES answer a request or raise Refusal; they change the disk under `hub.lock`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of a small answer leave together
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def answer(self):
        self.hub: HubServer = self.server.hub
        self.storage, self.user = self.hub.storage, None
        try:
            self.body = self.received()
            self.query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            self.serve()
        except Refusal as refusal:
            self.send_json(refusal.body, status=refusal.status, headers=refusal.headers)
        except ConnectionError:  # the client has gone
            self.close_connection = True
        except Exception:
            self.hub.errors.append(f"{self.command} {self.path}\n{traceback.format_exc()}")
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def received(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def serve(self):
        if self.hub.expires and re.search(self.hub.expires, f"{self.command} {self.path}"):
            self.hub.expires = None
            raise Refusal(401, 'User Access Token "test" is expired')
        if authorization := self.headers.get("Authorization"):
            self.user = self.hub.users.get(authorization.removeprefix("Bearer "))
            if self.user is None:
                raise Refusal(401, "Invalid credentials in Authorization header")
        path = urlsplit(self.path).path
        for methods, pattern, name in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in methods.split():
                values = {key: unquote(value) for key, value in found.groupdict(default="").items()}
                if "kind" in values:
                    values["kind"] = values["kind"].removesuffix("s") or "model"
                return getattr(self, name)(**values)
        raise Refusal(404, f"There is no such repository or endpoint: {self.command} {path}", "RepoNotFound")

    def json(self) -> dict:
        return json.loads(self.body or b"{}")

    def flag(self, name: str) -> bool:
        return self.query.get(name, [""])[0].lower() in ("1", "true")

    def send(self, status: int, headers: dict, content: bytes = b""):
        self.hub.requests.append(Request(self.command, self.path, status, self.user and self.user.name))
        self.send_response(status)
        for name, value in {"X-Request-Id": secrets.token_hex(8), "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(content)
        self.wfile.flush()

    def send_json(self, value, *, status: int = 200, headers: dict | None = None):
        self.send(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, json.dumps(value).encode())

    # -------------------------------------------------------------------------------------------- who may do what

    def writer(self) -> User:
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        if self.user.role != "write":
            raise Refusal(403, "This token is read-only: use one with the role write")
        return self.user

    def owner(self, repo_id: str) -> None:
        if self.writer().name != repo_id.split("/")[0]:
            raise Refusal(403, f"You do not have the rights to write under the namespace of {repo_id}")

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
        token = {"displayName": "test", "role": self.user.role}
        user = {"type": "user", "id": self.user.name, "name": self.user.name, "fullname": self.user.name, "orgs": []}
        self.send_json({**user, "auth": {"type": "access_token", "accessToken": token}})

    def create(self):
        request = self.json()
        kind, name = request.get("type") or "model", request["name"]
        repo_id = f"{request.get('organization') or self.writer().name}/{name}"
        self.owner(repo_id)
        if kind == "space" and request.get("sdk") not in ("gradio", "docker", "static"):
            raise Refusal(400, 'A Space needs an "sdk": gradio, docker or static')
        with self.hub.lock:
            if self.storage.repo(kind, repo_id) is not None:
                raise Refusal(409, f"You already created this {kind} repo", url=self.url(kind, repo_id))
            private = request.get("visibility") == "private" or bool(request.get("private"))
            repo = {"key": secrets.token_hex(12), "private": private, "sdk": request.get("sdk"), "refs": {}}
            attributes = self.storage.entry(self.storage.put(LFS_ATTRIBUTES.encode()), lfs=False)
            self.storage.commit(repo, "refs/heads/main", None, "initial commit", {".gitattributes": attributes})
            self.storage.save(kind, repo_id, repo)
        self.send_json({"url": self.url(kind, repo_id), "name": repo_id, "id": repo["key"]})

    def validate_yaml(self):
        """A card whose metadata are no YAML is refused here, before any file is sent."""
        block = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", self.json()["content"], re.DOTALL | re.MULTILINE)
        try:
            yaml.safe_load(block[1] if block else "")
        except yaml.YAMLError as error:
            raise Refusal(400, "Invalid metadata") from error
        self.send_json({"errors": [], "warnings": []})

    def info(self, kind: str, repo_id: str, revision: str = "main"):
        repo = self.repo(kind, repo_id)
        commit = self.at(repo, revision)
        siblings = []
        for path, entry in commit["files"].items():
            sibling = {"rfilename": path}
            if self.flag("blobs"):
                sibling |= {"size": entry["size"], "blobId": entry["oid"]}
                if entry["lfs"]:
                    sibling["lfs"] = {"size": entry["size"], "sha256": entry["sha256"], "pointerSize": 130}
            siblings.append(sibling)
        described = {"_id": repo["key"], "id": repo_id, "author": repo_id.split("/")[0], "sha": commit["id"]}
        described |= {"createdAt": commit["date"], "lastModified": commit["date"], "private": repo["private"]}
        described |= {"gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings}
        self.send_json(described | {"modelId": repo_id} if kind == "model" else described | {"sdk": repo["sdk"]})

    def branch(self, kind: str, repo_id: str, name: str):
        self.owner(repo_id)
        with self.hub.lock:
            repo = self.repo(kind, repo_id)
            if f"refs/heads/{name}" in repo["refs"]:
                raise Refusal(409, f"Reference already exists: {name}")
            repo["refs"][f"refs/heads/{name}"] = self.at(repo, self.json().get("startingPoint", "main"))["id"]
            self.storage.save(kind, repo_id, repo)
        self.send_json({}, status=201)

    # -------------------------------------------------------------------------------------------- reading

    def tree(self, kind: str, repo_id: str, revision: str, path: str):
        commit = self.at(self.repo(kind, repo_id), revision)
        prefix = f"{path.strip('/')}/" if path.strip("/") else ""
        files = {name: entry for name, entry in commit["files"].items() if name.startswith(prefix)}
        if prefix and not files:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound")
        items = {}
        for name, entry in files.items():
            parts = name.removeprefix(prefix).split("/")
            for depth in range(1, len(parts) if self.flag("recursive") else min(2, len(parts))):
                folder = prefix + "/".join(parts[:depth])
                items[folder] = {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "path": folder}
            if self.flag("recursive") or len(parts) == 1:
                items[name] = {"type": "file", "oid": entry["oid"], "size": entry["size"], "path": name}
                if entry["lfs"]:
                    items[name]["lfs"] = {"oid": entry["sha256"], "size": entry["size"], "pointerSize": 130}
        self.send_json(list(items.values()))

    def resolve(self, kind: str, repo_id: str, revision: str, path: str):
        commit = self.at(self.repo(kind, repo_id), revision)
        entry = commit["files"].get(path)
        if entry is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        etag = f'"{entry["sha256"] if entry["lfs"] else entry["oid"]}"'
        headers = {"X-Repo-Commit": commit["id"], "ETag": etag, "Content-Type": "application/octet-stream"}
        content, status = self.storage.blob(entry["sha256"]).read_bytes(), 200
        if entry["lfs"]:
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": etag}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, size = int(asked[1]), len(content)
            stop = min(size, int(asked[2]) + 1) if asked[2] else size
            status, content = 206, content[start:stop]
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self.send(status, headers, content)

    # -------------------------------------------------------------------------------------------- writing

    def may_commit(self, repo: dict, repo_id: str, revision: str) -> str:
        """The ref that a commit to this revision moves; anybody may open a pull request."""
        ref = f"refs/heads/{revision}"
        if ref not in repo["refs"]:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if self.writer().name != repo_id.split("/")[0] and not self.flag("create_pr"):
            raise Refusal(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return ref

    def preupload(self, kind: str, repo_id: str, revision: str):
        """How each file is to be sent, and the hash of what is there already, so that unchanged files stay away."""
        repo = self.repo(kind, repo_id)
        commit = self.at(repo, self.may_commit(repo, repo_id, revision))
        answers = []
        for file in self.json()["files"]:
            name = PurePosixPath(file["path"]).name
            large = b"\0" in base64.b64decode(file["sample"]) or any(
                fnmatch.fnmatch(name, f"*.{end}") for end in LFS_SUFFIXES
            )
            answer = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
            if held := commit["files"].get(file["path"]):
                answer["oid"] = held["sha256"] if held["lfs"] else held["oid"]
            answers.append(answer)
        self.send_json({"files": answers, "commitOid": commit["id"]})

    def lfs_batch(self, kind: str, repo_id: str):
        """Where to send LFS objects that have not arrived yet."""
        self.repo(kind, repo_id)
        self.writer()
        objects = []
        for wanted in self.json()["objects"]:
            answer = {"oid": wanted["oid"], "size": wanted["size"], "authenticated": True}
            if not self.storage.blob(wanted["oid"]).exists():
                answer["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}", "header": {}}}
            objects.append(answer)
        headers = {"Content-Type": "application/vnd.git-lfs+json"}
        self.send_json({"transfer": "basic", "objects": objects, "hash_algo": "sha256"}, headers=headers)

    def lfs_receive(self, sha256: str):
        if hashlib.sha256(self.body).hexdigest() != sha256:
            raise Refusal(400, f"The content has another sha256 than {sha256}")
        self.storage.put(self.body)
        self.send_json({})

    def commit(self, kind: str, repo_id: str, revision: str):
        """All changes of the request or none: they hold from the moment the repository's file is replaced."""
        with self.hub.lock:
            repo = self.repo(kind, repo_id)
            ref = self.may_commit(repo, repo_id, revision)
            parent = repo["refs"][ref]
            head, files = {}, dict(self.storage.read_commit(parent)["files"])
            for line in map(json.loads, self.body.splitlines()):
                value = line["value"]
                if line["key"] == "header":
                    head = value
                elif line["key"] == "file":
                    files[value["path"]] = self.storage.entry(
                        self.storage.put(base64.b64decode(value["content"])), lfs=False
                    )
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.storage.entry(value["oid"], lfs=True)
                elif line["key"] == "deletedFile":
                    del files[value["path"]]
                else:
                    raise Refusal(400, f"Unknown operation {line['key']!r}")
            if head.get("parentCommit", parent) != parent:
                raise Refusal(412, "A commit has happened since. Please refresh and try again.")
            pull_request = None
            if self.flag("create_pr"):
                number = 1 + sum(name.startswith("refs/pr/") for name in repo["refs"])
                ref, pull_request = f"refs/pr/{number}", f"{self.url(kind, repo_id)}/discussions/{number}"
            commit_id = self.storage.commit(repo, ref, parent, head.get("summary", ""), files)
            self.storage.save(kind, repo_id, repo)
        url = f"{self.url(kind, repo_id)}/commit/{commit_id}"
        self.send_json({"success": True, "commitUrl": url, "commitOid": commit_id, "pullRequestUrl": pull_request})


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
    ("GET", f"/api/{KIND}/{REPO}/tree/{REVISION}(?:/(?P<path>.*))?", "tree"),
    ("POST", f"/api/{KIND}/{REPO}/preupload/{REVISION}", "preupload"),
    ("POST", f"/api/{KIND}/{REPO}/commit/{REVISION}", "commit"),
    ("POST", f"/api/{KIND}/{REPO}/branch/(?P<name>[^/]+)", "branch"),
    ("POST", rf"{WEB}\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", "/lfs/(?P<sha256>[0-9a-f]{64})", "lfs_receive"),
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
    """A Hub at `endpoint`, from `with` to its end; users alice (token hf_alice) and bob (hf_bob), and those of `add_user`.

    root: the folder of the data; None for one that is deleted at the end. port: 0 for any free one. requests: what was asked
    so far. expires: a regular expression; the next request "METHOD /path" that it matches finds its token expired.

    Raises RuntimeError at the end of `with` if the server itself has failed on a request.
    """

    def __init__(self, root: Path | None = None, *, port: int = 0):
        self.temporary = tempfile.mkdtemp(prefix="hub-") if root is None else None
        self.storage = Storage(Path(root or self.temporary))
        self.users = {"hf_alice": User("alice", "write"), "hf_bob": User("bob", "write")}
        self.requests: list[Request] = []
        self.expires: str | None = None
        self.errors: list[str] = []
        self.lock = threading.RLock()
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
        self.server.shutdown()
        self.server.server_close()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
        if self.errors and error is None:
            raise RuntimeError("the Hub server failed on a request:\n" + "\n".join(self.errors))

    def add_user(self, name: str, token: str, role: str = "write") -> None:
        """Lets the token act as the user; role "read" may not change anything."""
        self.users[token] = User(name, role)

    def environment(self, home: Path, *, token: str | None = "hf_alice") -> dict[str, str]:
        """The environment of a process that uses this Hub and nothing else.

        home: folder for the caches of the Hugging Face libraries. token: None for no token at all.
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

    def history(self, kind: str, repo_id: str, revision: str = "main") -> list[Commit]:
        """Every commit of a branch, pull request ("refs/pr/1") or commit id, the newest last.

        Raises KeyError where there is no such repository or revision.
        """
        repo = self.storage.repo(kind, repo_id)
        commit_id = repo and self.storage.resolve(repo, revision)
        if not commit_id:
            raise KeyError(f"there is no {kind} {repo_id} at {revision}")
        commits = []
        while commit_id is not None:
            commit = self.storage.read_commit(commit_id)
            files = {path: entry["sha256"] for path, entry in commit["files"].items()}
            commits.append(Commit(commit_id, commit["title"], files))
            commit_id = commit["parent"]
        return commits[::-1]

    def read(self, kind: str, repo_id: str, path: str, revision: str = "main") -> bytes:
        """The content of a file. Raises KeyError where there is no such repository, revision or file."""
        return self.storage.blob(self.history(kind, repo_id, revision)[-1].files[path]).read_bytes()
