"""A Hub on loopback that speaks the Hugging Face protocol to the unpatched clients: for tests.

Models, data sets and Spaces; users with write and read tokens; private repositories; branches and pull requests. Its
data are on disk, so that forked processes see them: blobs/<sha256> and repos/<kind>/<owner>/<name>.json, whose replacement
is the moment a change happens. The real Hub differs: HTTPS, Xet, LFS, organisations, pages of long lists.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from attnfaith.support.files import write_atomically


KINDS = ("model", "dataset", "space")
REPO = "(?P<kind>models|datasets|spaces)/(?P<repo_id>[^/]+/[^/]+?)"
WEB = "(?:/(?P<kind>datasets|spaces))?/(?P<repo_id>[^/]+/[^/]+?)"
REVISION = "(?P<revision>[^/]+)"
ROUTES = {
    "whoami": "GET /api/whoami-v2",
    "create": "POST /api/repos/create",
    "validate_yaml": "POST /api/validate-yaml",
    "info": f"(GET|HEAD) /api/{REPO}(/revision/{REVISION})?",
    "tree": f"GET /api/{REPO}/tree/{REVISION}(/(?P<path>.*))?",
    "preupload": f"POST /api/{REPO}/preupload/{REVISION}",
    "commit": f"POST /api/{REPO}/commit/{REVISION}",
    "branch": f"POST /api/{REPO}/branch/{REVISION}",
    "lfs_batch": rf"POST {WEB}\.git/info/lfs/objects/batch",
    "lfs_receive": "PUT /lfs/(?P<sha256>[0-9a-f]{64})",
    "resolve": f"(GET|HEAD) {WEB}/resolve/{REVISION}/(?P<path>.+)",
}


class Refusal(Exception):
    """An answer other than success; `code` goes into X-Error-Code, from which clients choose their exception."""

    def __init__(self, status, message, code=None, **body):
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}


class Handler(BaseHTTPRequestHandler):
    """One connection. Methods named in ROUTES answer a request or raise Refusal."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of a small answer leave together
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self):
        self.hub, self.user, url = self.server.hub, None, urlsplit(self.path)
        try:
            self.body = self.received()
            self.query = {name: words[0] for name, words in parse_qs(url.query, keep_blank_values=True).items()}
            with self.hub.lock:
                self.serve(f"{self.command} {url.path}")
        except Refusal as refusal:
            self.send(refusal.body, refusal.status, refusal.headers)
        except ConnectionError:  # the client has gone
            self.close_connection = True
        except Exception:
            self.hub.errors.append(f"{self.command} {self.path}\n{traceback.format_exc()}")
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def received(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def serve(self, request):
        if self.hub.expires and re.search(self.hub.expires, request):
            self.hub.expires = None
            raise Refusal(401, 'User Access Token "test" is expired')
        if authorization := self.headers.get("Authorization"):
            self.user = self.hub.users.get(authorization.removeprefix("Bearer "))
            if self.user is None:
                raise Refusal(401, "Invalid credentials in Authorization header")
        for name, pattern in ROUTES.items():
            if match := re.fullmatch(pattern, request):
                values = {key: unquote(value) for key, value in match.groupdict().items() if value is not None}
                if "repo_id" in values:
                    values["kind"] = values.get("kind", "models").removesuffix("s")
                return getattr(self, name)(**values)
        raise Refusal(404, f"There is no such repository or endpoint: {request}", "RepoNotFound")

    def send(self, content, status=200, headers=()):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.hub.requests.append(SimpleNamespace(path=self.path, status=status))
        self.send_response(status)
        for name, value in {"X-Request-Id": secrets.token_hex(8), "Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")
        self.wfile.flush()

    def writer(self):
        if self.user is None or self.user[1] != "write":
            raise Refusal(403 if self.user else 401, "This token may not write")
        return self.user[0]

    def repo(self, kind, repo_id, *, write=False):
        """The repository, if whoever asks may see it; otherwise it does not exist for them."""
        repo, owner = self.hub.repo(kind, repo_id), self.user is not None and self.user[0] == repo_id.split("/")[0]
        if repo is None or (repo["private"] and not owner):
            raise Refusal(404 if self.user else 401, "Repository not found", "RepoNotFound")
        if write and self.writer() and not owner and not self.query.get("create_pr"):
            raise Refusal(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return repo

    def at(self, repo, revision):
        if (commit := self.hub.commit_of(repo, revision)) is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    # -------------------------------------------------------------------------------------------- account, repositories

    def whoami(self):
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        name, role = self.user
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": role}}
        self.send({"type": "user", "id": name, "name": name, "fullname": name, "orgs": [], "auth": token})

    def create(self):
        request = json.loads(self.body)
        kind, repo_id = request.get("type") or "model", f"{request.get('organization') or self.writer()}/{request['name']}"
        if self.writer() != repo_id.split("/")[0]:
            raise Refusal(403, "You do not have the rights to write under this namespace")
        url = f"{self.hub.endpoint}{'' if kind == 'model' else f'/{kind}s'}/{repo_id}"
        if self.hub.repo(kind, repo_id) is not None:
            raise Refusal(409, f"You already created this {kind} repo", url=url)
        private = request.get("visibility") == "private" or bool(request.get("private"))
        repo = {"private": private, "sdk": request.get("sdk"), "refs": {}}
        self.hub.add_commit(kind, repo_id, repo, "main", [], "initial commit", {".gitattributes": self.hub.put(b"")})
        self.send({"url": url, "name": repo_id, "id": repo_id})

    def validate_yaml(self):
        """A card whose metadata are no YAML is refused here, before any file is sent."""
        block = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", json.loads(self.body)["content"], re.DOTALL | re.MULTILINE)
        try:
            yaml.safe_load(block[1] if block else "")
        except yaml.YAMLError as error:
            raise Refusal(400, "Invalid metadata") from error
        self.send({"errors": [], "warnings": []})

    def info(self, kind, repo_id, revision="main"):
        repo = self.repo(kind, repo_id)
        commit = self.at(repo, revision)
        siblings = []
        for path, entry in commit["files"].items():
            siblings.append({"rfilename": path, "size": entry["size"], "blobId": entry["oid"]})
        date = "2026-01-01T00:00:00.000Z"
        facts = {"_id": repo_id, "id": repo_id, "modelId": repo_id, "author": repo_id.split("/")[0], "sha": commit["id"]}
        facts |= {"createdAt": date, "lastModified": date, "private": repo["private"], "gated": False, "disabled": False}
        self.send({**facts, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings, "sdk": repo["sdk"]})

    def branch(self, kind, repo_id, revision):
        repo = self.repo(kind, repo_id, write=True)
        if revision in repo["refs"]:
            raise Refusal(409, f"Reference already exists: {revision}")
        repo["refs"][revision] = repo["refs"]["main"]
        self.hub.save(kind, repo_id, repo)
        self.send({}, 201)

    # -------------------------------------------------------------------------------------------- reading

    def tree(self, kind, repo_id, revision, path=""):
        files = self.at(self.repo(kind, repo_id), revision)["files"]
        prefix, deep = f"{path.strip('/')}/".lstrip("/"), self.query.get("recursive", "").lower() in ("1", "true")
        items = {}
        for name in (name for name in files if name.startswith(prefix)):
            entry, (first, *more) = files[name], name.removeprefix(prefix).split("/")
            folders = [first, *more][:-1] if deep else [first] if more else []
            for depth in range(len(folders)):
                folder = prefix + "/".join(folders[: depth + 1])
                items[folder] = {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "path": folder}
            if deep or not more:
                items[name] = {"type": "file", "oid": entry["oid"], "size": entry["size"], "path": name}
        if prefix and not items:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound")
        self.send(list(items.values()))

    def resolve(self, repo_id, revision, path, kind):
        commit = self.at(self.repo(kind, repo_id), revision)
        if (entry := commit["files"].get(path)) is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        content, status = self.hub.blob(entry["sha256"]).read_bytes(), 200
        headers = {"X-Repo-Commit": commit["id"], "ETag": f'"{entry["oid"]}"'}
        if part := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop = int(part[1]), min(len(content), int(part[2]) + 1) if part[2] else len(content)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            content, status = content[start:stop], 206
        self.send(content, status, {**headers, "Content-Type": "application/octet-stream"})

    # -------------------------------------------------------------------------------------------- writing

    def preupload(self, kind, repo_id, revision):
        """How each file is to be sent, and the hash of what is there already, so that unchanged files stay away."""
        commit, answers = self.at(self.repo(kind, repo_id, write=True), revision), []
        for file in json.loads(self.body)["files"]:
            large = file["path"].endswith((".parquet", ".safetensors"))
            answer = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
            if entry := commit["files"].get(file["path"]):
                answer["oid"] = entry["sha256" if large else "oid"]
            answers.append(answer)
        self.send({"files": answers, "commitOid": commit["id"]})

    def lfs_batch(self, repo_id, kind):
        """Where to send large files that have not arrived yet."""
        self.repo(kind, repo_id), self.writer()
        objects = [{**wanted, "authenticated": True} for wanted in json.loads(self.body)["objects"]]
        for wanted in objects:
            if not self.hub.blob(wanted["oid"]).exists():
                wanted["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}", "header": {}}}
        answer = {"transfer": "basic", "objects": objects, "hash_algo": "sha256"}
        self.send(answer, headers={"Content-Type": "application/vnd.git-lfs+json"})

    def lfs_receive(self, sha256):
        self.hub.put(self.body)
        self.send({})

    def commit(self, kind, repo_id, revision):
        """All changes of the request or none: they hold from the moment the repository's file is replaced."""
        repo = self.repo(kind, repo_id, write=True)
        parent, head = self.at(repo, revision), {}
        files = dict(parent["files"])
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                head = value
            elif line["key"] == "file":
                files[value["path"]] = self.hub.put(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.put(self.hub.blob(value["oid"]).read_bytes())
            else:
                del files[value["path"]]
        if head.get("parentCommit", parent["id"]) != parent["id"]:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        ref, offered = revision, None
        if self.query.get("create_pr"):
            number = 1 + sum(name.startswith("refs/pr/") for name in repo["refs"])
            ref, offered = f"refs/pr/{number}", f"{self.hub.endpoint}/{repo_id}/discussions/{number}"
        sha = self.hub.add_commit(kind, repo_id, repo, ref, repo["refs"][revision], head.get("summary", ""), files)
        url = f"{self.hub.endpoint}/{repo_id}/commit/{sha}"
        self.send({"success": True, "commitUrl": url, "commitOid": sha, "pullRequestUrl": offered})


class HubServer:
    """A Hub at `endpoint`, from `with` to its end; users alice (token hf_alice) and bob (hf_bob), and those of `add_user`.

    root: the folder of the data; None for one that is deleted at the end. port: 0 for any free one. requests: what was asked
    so far. expires: a regular expression; the next request "METHOD /path" that it matches finds its token expired.

    Raises RuntimeError at the end of `with` if the server itself has failed on a request.
    """

    def __init__(self, root=None, *, port=0):
        self.held, self.root = contextlib.ExitStack(), Path(root or tempfile.mkdtemp(prefix="hub-"))
        if root is None:
            self.held.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.users = {"hf_alice": ("alice", "write"), "hf_bob": ("bob", "write")}
        self.requests, self.errors, self.expires, self.lock = [], [], None, threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.hub, self.server.daemon_threads = self, True
        self.server.handle_error = lambda *_: None  # a client may leave at any time
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, kind, error, trace):
        self.server.shutdown()
        self.server.server_close()
        self.held.close()
        if self.errors and error is None:
            raise RuntimeError("the Hub server failed on a request:\n" + "\n".join(self.errors))

    def add_user(self, name, token, role="write"):
        """Lets the token act as the user; role "read" may not change anything."""
        self.users[token] = (name, role)

    def environment(self, home, *, token="hf_alice"):
        """The environment of a process that uses this Hub and nothing else.

        home: folder for the caches of the Hugging Face libraries. token: None for no token at all.
        """
        ours = ("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        own |= {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "NO_PROXY": "127.0.0.1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        }
        own |= {f"HF_HUB_DISABLE_{name}": "1" for name in ("XET", "TELEMETRY", "PROGRESS_BARS")}
        return own if token is None else {**own, "HF_TOKEN": token}

    # -------------------------------------------------------------------------------------------- on disk

    def blob(self, sha256):
        return self.root / "blobs" / sha256

    def put(self, content):
        """Keep a content; what a commit says of a file that has it."""
        sha256 = hashlib.sha256(content).hexdigest()
        write_atomically(self.blob(sha256), content)
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"sha256": sha256, "size": len(content), "oid": oid}

    def repos(self, kind):
        """The names of all repositories."""
        return [f"{path.parent.name}/{path.stem}" for path in sorted((self.root / "repos" / kind).glob("*/*.json"))]

    def repo(self, kind, repo_id):
        path = self.root / "repos" / kind / f"{repo_id}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def save(self, kind, repo_id, repo):
        write_atomically(self.root / "repos" / kind / f"{repo_id}.json", json.dumps(repo))

    def add_commit(self, kind, repo_id, repo, ref, history, title, files):
        commit = {"id": secrets.token_hex(20), "title": title, "files": dict(sorted(files.items()))}
        repo["refs"][ref] = [*history, commit]
        self.save(kind, repo_id, repo)
        return commit["id"]

    def commit_of(self, repo, revision):
        """The commit that a branch, ref or commit id of the repository names; None if there is none."""
        commits = {commit["id"]: commit for history in repo["refs"].values() for commit in history}
        history = repo["refs"].get(revision.removeprefix("refs/heads/"))
        return history[-1] if history else commits.get(revision)

    def history(self, kind, repo_id, revision="main"):
        """Every commit (id, title, files {path: sha256}) of a branch or pull request ("refs/pr/1"), the newest last.

        Raises KeyError where there is no such repository or revision.
        """
        if (repo := self.repo(kind, repo_id)) is None:
            raise KeyError(f"there is no {kind} {repo_id}")
        return [
            SimpleNamespace(
                id=commit["id"], title=commit["title"], files={p: e["sha256"] for p, e in commit["files"].items()}
            )
            for commit in repo["refs"][revision]
        ]

    def read(self, kind, repo_id, path, revision="main"):
        """The content of a file. Raises KeyError where there is no such repository, revision or file."""
        return self.blob(self.history(kind, repo_id, revision)[-1].files[path]).read_bytes()
