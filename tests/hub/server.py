"""A Hub on loopback for the unpatched clients: models, data sets and Spaces in memory, of one user, alice."""

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

import yaml


USER, TOKEN = "alice", "hf_alice"
AUTH = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
PLAIN = {
    "GET /api/whoami-v2": {"type": "user", "id": USER, "name": USER, "fullname": USER, "orgs": [], "auth": AUTH},
    "POST /api/validate-yaml": {"errors": [], "warnings": []},
}
REPO, REVISION = "(?P<kind>models|datasets|spaces)/(?P<repo_id>[^/]+/[^/]+?)", "(?P<revision>[^/]+)"
WEB = "(?:/(?P<kind>datasets|spaces))?/(?P<repo_id>[^/]+/[^/]+?)"
ROUTES = {
    "create": "POST /api/repos/create",
    "info": f"(GET|HEAD) /api/{REPO}(/revision/{REVISION})?",
    "tree": f"GET /api/{REPO}/tree/{REVISION}(/(?P<path>.*))?",
    "preupload": f"POST /api/{REPO}/preupload/{REVISION}",
    "commit": f"POST /api/{REPO}/commit/{REVISION}",
    "resolve": f"(GET|HEAD) {WEB}/resolve/{REVISION}/(?P<path>.+)",
}


class Refusal(Exception):
    """An answer other than success: status, message, and the code by which clients choose their exception, or an address."""


class Handler(BaseHTTPRequestHandler):
    """One connection. The methods named in ROUTES return the answer, and headers, or raise Refusal."""

    protocol_version = "HTTP/1.1"
    log_message = staticmethod(lambda *_: None)

    def answer(self):
        try:
            self.body, url = self.received(), urlsplit(self.path)
            self.query = {name: words[0] for name, words in parse_qs(url.query, keep_blank_values=True).items()}
            with self.server.lock:
                answer = self.serve(f"{self.command} {url.path}")
            self.send(*(answer if isinstance(answer, tuple) else (answer,)))
        except Refusal as refusal:
            status, message, code = refusal.args
            self.send({"error": message, "url": code}, {"X-Error-Message": message, "X-Error-Code": code}, status)
        except Exception as error:
            if not isinstance(error, ConnectionError):  # else the client has gone
                self.server.errors.append(f"{self.command} {self.path}\n{traceback.format_exc()}")
            self.close_connection = True

    do_GET = do_HEAD = do_POST = answer

    def received(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            content += self.rfile.read(size + 2)[:size]
        self.rfile.readline()
        return content

    def serve(self, request):
        if request in PLAIN:
            return PLAIN[request]
        for name, pattern in ROUTES.items():
            if match := re.fullmatch(pattern, request):
                values = {key: unquote(value) for key, value in match.groupdict().items() if value is not None}
                if "repo_id" in values:
                    key = values.pop("kind", "models").removesuffix("s"), values.pop("repo_id")
                    self.repo = self.server.repos.get(key)
                    user = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                    if self.repo is None or (self.repo.private and not user):
                        raise Refusal(404, "Repository not found", "RepoNotFound")
                return getattr(self, name)(**values)
        raise Refusal(404, f"There is no such repository or endpoint: {request}", "RepoNotFound")

    def send(self, content, headers=(), status=200):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.server.requests.append(self.path)
        self.send_response(status)
        for name, value in {"X-Request-Id": secrets.token_hex(8), "Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    def commit_of(self, revision):
        for commit in reversed(self.repo.commits):
            if revision in ("main", "refs/heads/main", commit.id):
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def create(self):
        request = json.loads(self.body)
        key = kind, repo_id = request.get("type") or "model", f"{USER}/{request['name']}"
        url = f"{self.server.endpoint}{'' if kind == 'model' else f'/{kind}s'}/{repo_id}"
        if key in self.server.repos:
            raise Refusal(409, f"You already created this {kind} repo", url)
        private = request.get("visibility") == "private" or bool(request.get("private"))
        repo = self.server.repos[key] = SimpleNamespace(id=repo_id, private=private, sdk=request.get("sdk"), commits=[])
        self.server.add_commit(repo, {".gitattributes": self.server.put(b"")})
        return {"url": url, "id": repo_id}

    def info(self, revision="main"):
        repo, commit = self.repo, self.commit_of(revision)
        files = [{"rfilename": path, "size": entry["size"]} for path, entry in commit.entries.items()]
        facts = {"_id": repo.id, "id": repo.id, "sha": commit.id, "sdk": repo.sdk, "private": repo.private}
        card = self.server.blobs[commit.entries["README.md"]["oid"]] if "README.md" in commit.entries else b"---\n---"
        tags = (yaml.safe_load(card.decode().split("---\n")[1]) or {}).get("tags", [])
        return {**facts, "siblings": files, "tags": tags, "downloads": 0, "likes": 0}

    def tree(self, revision, path=""):
        prefix, deep = f"{path.strip('/')}/".lstrip("/"), self.query.get("recursive", "").lower() in ("1", "true")
        items = {}
        for name, entry in self.commit_of(revision).entries.items():
            parts = name.removeprefix(prefix).split("/") if name.startswith(prefix) else []
            for depth in range(1, len(parts) if deep else min(2, len(parts))):
                folder = prefix + "/".join(parts[:depth])
                items[folder] = {"type": "directory", "oid": folder, "path": folder}
            if parts and (deep or len(parts) == 1):
                items[name] = {"type": "file", "oid": entry["oid"], "size": entry["size"], "path": name}
        if prefix and not items:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound")
        return list(items.values())

    def resolve(self, revision, path):
        commit = self.commit_of(revision)
        if (entry := commit.entries.get(path)) is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        return self.server.blobs[entry["oid"]], {"X-Repo-Commit": commit.id, "ETag": f'"{entry["oid"]}"'}

    def preupload(self, revision):
        commit, paths = self.commit_of(revision), [file["path"] for file in json.loads(self.body)["files"]]
        files = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
        for file in files:
            if file["path"] in commit.entries:
                file["oid"] = commit.entries[file["path"]]["oid"]
        return {"files": files, "commitOid": commit.id}

    def commit(self, revision):
        entries = dict(self.commit_of(revision).entries)
        for key, value in ((line["key"], line["value"]) for line in map(json.loads, self.body.splitlines())):
            if key == "file":
                entries[value["path"]] = self.server.put(base64.b64decode(value["content"]))
            elif key != "header":
                del entries[value["path"]]
        sha = self.server.add_commit(self.repo, entries)
        return {"success": True, "commitUrl": f"{self.server.endpoint}/{self.repo.id}/commit/{sha}", "commitOid": sha}


class HubServer(ThreadingHTTPServer):
    """A Hub at `endpoint` while the `with` block lasts. requests: the paths of all requests. errors: its own failures."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos, self.blobs, self.requests, self.errors, self.lock = {}, {}, [], [], threading.RLock()
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def environment(self, home, **variables):
        """Return the environment of a process that uses this Hub alone, its caches in `home`; variables: others of it."""
        theirs = ("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        environment |= {f"HF_HUB_DISABLE_{name}": "1" for name in ("XET", "TELEMETRY", "PROGRESS_BARS")}
        return environment | {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"} | variables

    def files(self, kind, repo_id):
        """Return {path: content} of a repository as it is now."""
        entries = self.repos[kind, repo_id].commits[-1].entries
        return {path: self.blobs[entry["oid"]] for path, entry in entries.items() if path != ".gitattributes"}

    def put(self, content):
        """Keep a content; return the entry of a file that has it."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        self.blobs[oid] = content
        return {"size": len(content), "oid": oid}

    def add_commit(self, repo, entries):
        repo.commits.append(SimpleNamespace(id=secrets.token_hex(20), entries=dict(sorted(entries.items()))))
        return repo.commits[-1].id
