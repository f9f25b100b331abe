"""A Hub on loopback for the unpatched clients: models, data sets and Spaces in memory, of one user, alice."""

import asyncio
import base64
import hashlib
import json
import os
import secrets
import threading
import traceback
from types import SimpleNamespace

import yaml
from aiohttp import web


USER, TOKEN = "alice", "hf_alice"
REPO = "/api/{kind:models|datasets|spaces}/{owner}/{name}"
REPOSITORY, COMMIT = web.RequestKey("repository", SimpleNamespace), web.RequestKey("commit", SimpleNamespace)
FILE = "/{owner}/{name}/resolve/{revision}/{path:.+}"


def oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def missing(code):
    """A 404; by its code clients choose their exception."""
    return web.HTTPNotFound(text="{}", headers={"X-Error-Code": code, "X-Error-Message": code})


class HubServer:
    """A Hub at `endpoint` while the `with` block lasts. requests: the paths of all requests.

    A repository has its commits, each {path: content}. The methods that answer a request return JSON or a response.
    """

    def __init__(self):
        self.repos, self.requests, self.errors, self.loop = {}, [], [], asyncio.new_event_loop()

    def __enter__(self):
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.start(), self.loop).result()
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.runner.cleanup(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        assert self.errors == []

    async def start(self):
        app = web.Application(client_max_size=2**30, middlewares=[self.answer])
        app.add_routes([
            web.get("/api/whoami-v2", self.whoami),
            web.post("/api/validate-yaml", self.validate),
            web.post("/api/repos/create", self.create),
            web.get(REPO, self.info),
            web.get(f"{REPO}/revision/{{revision}}", self.info),
            web.get(f"{REPO}/tree/{{revision}}", self.tree),
            web.get(f"{REPO}/tree/{{revision}}/{{path:.*}}", self.tree),
            web.post(f"{REPO}/preupload/{{revision}}", self.preupload),
            web.post(f"{REPO}/commit/{{revision}}", self.commit),
            web.get(FILE, self.resolve),
            web.get(f"/{{kind:datasets|spaces}}{FILE}", self.resolve),
        ])  # fmt: skip
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    @web.middleware
    async def answer(self, request, handler):
        self.requests.append(request.path)
        values = request.match_info
        try:
            if "name" in values:
                key = values.get("kind", "models").removesuffix("s"), f"{values['owner']}/{values['name']}"
                repo = request[REPOSITORY] = self.repos.get(key)
                if repo is None or (repo.private and request.headers.get("Authorization") != f"Bearer {TOKEN}"):
                    raise missing("RepoNotFound")
                named = {"main": repo.commits[-1], **{commit.id: commit for commit in repo.commits}}
                request[COMMIT] = named.get(values.get("revision", "main").removeprefix("refs/heads/"))
                if request[COMMIT] is None:
                    raise missing("RevisionNotFound")
            content = await handler(request)
            return content if isinstance(content, web.Response) else web.json_response(content)
        except Exception as error:
            if not isinstance(error, web.HTTPException):
                self.errors.append(f"{request.method} {request.path}\n{traceback.format_exc()}")
            raise

    async def whoami(self, request):
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
        return {"type": "user", "id": USER, "name": USER, "fullname": USER, "orgs": [], "auth": token}

    async def validate(self, request):
        return {"errors": [], "warnings": []}

    async def create(self, request):
        body = await request.json()
        key = kind, repo_id = body.get("type") or "model", f"{USER}/{body['name']}"
        answer = {"url": f"{self.endpoint}{'' if kind == 'model' else f'/{kind}s'}/{repo_id}", "id": repo_id}
        if key in self.repos:
            return web.json_response(answer, status=409)
        private = body.get("visibility") == "private" or bool(body.get("private"))
        self.repos[key] = SimpleNamespace(id=repo_id, private=private, sdk=body.get("sdk"), commits=[])
        self.add_commit(self.repos[key], {".gitattributes": b""})
        return answer

    async def info(self, request):
        repo, commit = request[REPOSITORY], request[COMMIT]
        card = commit.files.get("README.md", b"---\n---\n").decode()
        return {
            **{"_id": repo.id, "id": repo.id, "sha": commit.id, "sdk": repo.sdk, "private": repo.private},
            **{"tags": (yaml.safe_load(card.split("---\n")[1]) or {}).get("tags", []), "downloads": 0, "likes": 0},
            "siblings": [{"rfilename": path, "size": len(content)} for path, content in commit.files.items()],
        }

    async def tree(self, request):
        path, deep = request.match_info.get("path", ""), request.query.get("recursive", "").lower() in ("1", "true")
        prefix, items = f"{path.strip('/')}/".lstrip("/"), {}
        for name, content in request[COMMIT].files.items():
            parts = name.removeprefix(prefix).split("/") if name.startswith(prefix) else []
            for depth in range(1, len(parts) if deep else min(2, len(parts))):
                folder = prefix + "/".join(parts[:depth])
                items[folder] = {"type": "directory", "oid": folder, "path": folder}
            if parts and (deep or len(parts) == 1):
                items[name] = {"type": "file", "oid": oid(content), "size": len(content), "path": name}
        if prefix and not items:
            raise missing("EntryNotFound")
        return list(items.values())

    async def resolve(self, request):
        content = request[COMMIT].files.get(request.match_info["path"])
        if content is None:
            raise missing("EntryNotFound")
        return web.Response(body=content, headers={"X-Repo-Commit": request[COMMIT].id, "ETag": f'"{oid(content)}"'})

    async def preupload(self, request):
        there, body = request[COMMIT].files, await request.json()
        files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in body["files"]]
        for file in files:
            if file["path"] in there:
                file["oid"] = oid(there[file["path"]])
        return {"files": files, "commitOid": request[COMMIT].id}

    async def commit(self, request):
        files = dict(request[COMMIT].files)
        for line in map(json.loads, (await request.text()).splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] != "header":
                del files[line["value"]["path"]]
        sha = self.add_commit(request[REPOSITORY], files)
        return {"success": True, "commitUrl": f"{self.endpoint}/{request[REPOSITORY].id}/commit/{sha}", "commitOid": sha}

    def add_commit(self, repo, files):
        repo.commits.append(SimpleNamespace(id=secrets.token_hex(20), files=dict(sorted(files.items()))))
        return repo.commits[-1].id

    def files(self, kind, repo_id):
        """Return {path: content} of a repository as it is now."""
        files = self.repos[kind, repo_id].commits[-1].files
        return {path: content for path, content in files.items() if path != ".gitattributes"}

    def environment(self, home, **variables):
        """Return the environment of a process that uses this Hub alone, its caches in `home`; variables: others of it."""
        theirs = ("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        environment |= {f"HF_HUB_DISABLE_{name}": "1" for name in ("XET", "TELEMETRY", "PROGRESS_BARS")}
        return environment | {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"} | variables
