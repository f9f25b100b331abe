"""A Hub on loopback that speaks the protocol of Hugging Face to the unpatched clients, for tests.

It holds models, data sets and Spaces in memory, public and private. The real Hub also has HTTPS, Xet, organisations,
branches, pull requests and pages of long lists.
"""

import base64
import hashlib
import json
import os
import re
import secrets
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit


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
    "lfs_batch": rf"POST {WEB}\.git/info/lfs/objects/batch",
    "lfs_receive": "PUT /lfs/(?P<sha256>[0-9a-f]{64})",
    "resolve": f"(GET|HEAD) {WEB}/resolve/{REVISION}/(?P<path>.+)",
}


class Refusal(Exception):
    """An answer other than success; clients choose their exception by `code`."""

    def __init__(self, status, message, code=None, **body):
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}


class Handler(BaseHTTPRequestHandler):
    """One connection. The methods named in ROUTES answer a request or raise Refusal."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of a small answer leave together
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self):
        self.hub, url = self.server.hub, urlsplit(self.path)
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
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.user = self.hub.users.get(token)
        if token and self.user is None:
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
        self.hub.requests.append(self.path)
        self.send_response(status)
        for name, value in {"X-Request-Id": secrets.token_hex(8), "Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")
        self.wfile.flush()

    def repo(self, kind, repo_id, *, write=False):
        """Return the repository; for users who may not see it there is none."""
        repo, owner = self.hub.held.get((kind, repo_id)), self.user == repo_id.split("/")[0]
        if repo is None or (repo.private and not owner):
            raise Refusal(404 if self.user else 401, "Repository not found", "RepoNotFound")
        if write and not owner:
            raise Refusal(403, "Forbidden")
        return repo

    def commit_of(self, kind, repo_id, revision):
        commits = self.repo(kind, repo_id).commits
        for commit in commits[-1:] if revision in ("main", "refs/heads/main") else commits:
            if revision in ("main", "refs/heads/main", commit.id):
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def whoami(self):
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
        self.send({"type": "user", "id": self.user, "name": self.user, "fullname": self.user, "orgs": [], "auth": token})

    def create(self):
        request = json.loads(self.body)
        kind, repo_id = request.get("type") or "model", f"{request.get('organization') or self.user}/{request['name']}"
        if self.user != repo_id.split("/")[0]:
            raise Refusal(403, "You do not have the rights to write under this namespace")
        url = f"{self.hub.endpoint}{'' if kind == 'model' else f'/{kind}s'}/{repo_id}"
        if (kind, repo_id) in self.hub.held:
            raise Refusal(409, f"You already created this {kind} repo", url=url)
        private = request.get("visibility") == "private" or bool(request.get("private"))
        self.hub.held[kind, repo_id] = SimpleNamespace(private=private, sdk=request.get("sdk"), commits=[])
        self.hub.add_commit(kind, repo_id, "initial commit", {".gitattributes": self.hub.put(b"")})
        self.send({"url": url, "name": repo_id, "id": repo_id})

    def validate_yaml(self):
        self.send({"errors": [], "warnings": []})

    def info(self, kind, repo_id, revision="main"):
        repo, commit = self.repo(kind, repo_id), self.commit_of(kind, repo_id, revision)
        files = commit.entries.items()
        siblings = [{"rfilename": path, "size": entry["size"], "blobId": entry["oid"]} for path, entry in files]
        date = "2026-01-01T00:00:00.000Z"
        facts = {"_id": repo_id, "id": repo_id, "modelId": repo_id, "author": repo_id.split("/")[0], "sha": commit.id}
        facts |= {"createdAt": date, "lastModified": date, "private": repo.private, "gated": False, "disabled": False}
        self.send({**facts, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings, "sdk": repo.sdk})

    def tree(self, kind, repo_id, revision, path=""):
        entries = self.commit_of(kind, repo_id, revision).entries
        prefix, deep = f"{path.strip('/')}/".lstrip("/"), self.query.get("recursive", "").lower() in ("1", "true")
        items = {}
        for name in (name for name in entries if name.startswith(prefix)):
            entry, (first, *more) = entries[name], name.removeprefix(prefix).split("/")
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
        commit = self.commit_of(kind, repo_id, revision)
        if (entry := commit.entries.get(path)) is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        headers = {"X-Repo-Commit": commit.id, "ETag": f'"{entry["oid"]}"', "Content-Type": "application/octet-stream"}
        self.send(self.hub.blobs[entry["sha256"]], headers=headers)

    def preupload(self, kind, repo_id, revision):
        """Answer how each file is to be sent, with the hash of what is there, so that unchanged files are not sent."""
        self.repo(kind, repo_id, write=True)
        commit, answers = self.commit_of(kind, repo_id, revision), []
        for file in json.loads(self.body)["files"]:
            large = file["path"].endswith((".parquet", ".safetensors"))
            answers.append({"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False})
            if entry := commit.entries.get(file["path"]):
                answers[-1]["oid"] = entry["sha256" if large else "oid"]
        self.send({"files": answers, "commitOid": commit.id})

    def lfs_batch(self, repo_id, kind):
        """Answer where to send large files that have not arrived yet."""
        self.repo(kind, repo_id, write=True)
        objects = [{**file, "authenticated": True} for file in json.loads(self.body)["objects"]]
        for file in (file for file in objects if file["oid"] not in self.hub.blobs):
            file["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{file['oid']}", "header": {}}}
        answer = {"transfer": "basic", "objects": objects, "hash_algo": "sha256"}
        self.send(answer, headers={"Content-Type": "application/vnd.git-lfs+json"})

    def lfs_receive(self, sha256):
        self.hub.put(self.body)
        self.send({})

    def commit(self, kind, repo_id, revision):
        """Make all changes of the request or none."""
        self.repo(kind, repo_id, write=True)
        parent, head = self.commit_of(kind, repo_id, revision), {}
        entries = dict(parent.entries)
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                head = value
            elif line["key"] == "file":
                entries[value["path"]] = self.hub.put(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                entries[value["path"]] = self.hub.put(self.hub.blobs[value["oid"]])
            else:
                del entries[value["path"]]
        if head.get("parentCommit", parent.id) != parent.id:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        sha = self.hub.add_commit(kind, repo_id, head.get("summary", ""), entries)
        self.send({"success": True, "commitUrl": f"{self.hub.endpoint}/{repo_id}/commit/{sha}", "commitOid": sha})


class HubServer:
    """A Hub at `endpoint` while the `with` block lasts. `users` are by token: alice (hf_alice) and bob (hf_bob).

    requests: the paths of all requests. Raises RuntimeError at the end of the block where the server failed on a request.
    """

    def __init__(self, port=0):
        self.users, self.held, self.blobs = {"hf_alice": "alice", "hf_bob": "bob"}, {}, {}
        self.requests, self.errors, self.lock = [], [], threading.RLock()
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
        if self.errors and error is None:
            raise RuntimeError("the Hub server failed on a request:\n" + "\n".join(self.errors))

    def environment(self, home, *, token="hf_alice"):
        """Return the environment of a process that uses this Hub alone, its caches in `home`. token: None for no token."""
        theirs = ("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        environment |= {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"}
        environment |= {f"HF_HUB_DISABLE_{name}": "1" for name in ("XET", "TELEMETRY", "PROGRESS_BARS")}
        return environment if token is None else {**environment, "HF_TOKEN": token}

    def put(self, content):
        """Keep a content; return the entry of a file that has it."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"sha256": sha256, "size": len(content), "oid": oid}

    def add_commit(self, kind, repo_id, title, entries):
        commit = SimpleNamespace(id=secrets.token_hex(20), title=title, entries=dict(sorted(entries.items())))
        self.held[kind, repo_id].commits.append(commit)
        return commit.id

    def history(self, kind, repo_id):
        """Return every commit (id, title, entries by path), the newest last."""
        return self.held[kind, repo_id].commits

    def read(self, kind, repo_id, path):
        """Return the content of a file."""
        return self.blobs[self.history(kind, repo_id)[-1].entries[path]["sha256"]]
