"""A stand-in for the Hugging Face Hub on this machine, with the requests that elmore causes."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

Files = dict[str, bytes]

_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_API = re.compile(r"/api/models/([^/]+/[^/]+)/(\w+)/([^/?]+).*")


class Hub:
    """Repositories: the files of each commit, and the commit of each branch and tag."""

    def __init__(self) -> None:
        self.url = ""
        self.commits: dict[str, dict[str, Files]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []

    def commit(self, repo: str, files: Files, *refs: str) -> str:
        """Add a commit, to which branches and tags then point; return its hash."""
        content = repr((repo, sorted(files.items()), len(self.commits.get(repo, ()))))
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.commits.setdefault(repo, {})[sha] = files
        self.refs.setdefault(repo, {}).update(dict.fromkeys(refs, sha))
        return sha

    def find(self, repo: str, revision: str) -> str | None:
        """Return the commit of a branch, a tag or a hash."""
        sha = self.refs.get(repo, {}).get(revision, revision)
        return sha if sha in self.commits.get(repo, {}) else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path)
        self.hub.requests.append(f"{self.command} {path}")
        if match := _RESOLVE.fullmatch(path):
            repo, revision, name = match.groups()
            if not (sha := self._find(repo, revision)):
                return
            body = self.hub.commits[repo][sha].get(name)
            if body is None:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
                return
            etag = hashlib.sha1(body).hexdigest()
            self._send(200, body, {"ETag": f'"{etag}"', "X-Repo-Commit": sha})
        elif match := _API.fullmatch(path):
            repo, what, revision = match.groups()
            if not (sha := self._find(repo, revision)):
                return
            files = self.hub.commits[repo][sha]
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": sha}
                for name, body in files.items()
            ]
            siblings = [{"rfilename": name} for name in files]
            info = {"id": repo, "sha": sha, "private": False, "tags": [], "siblings": siblings}
            self._send_json(tree if what == "tree" else info)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def do_POST(self) -> None:
        path = unquote(self.path)
        self.hub.requests.append(f"POST {path}")
        body = self._read()
        if path == "/api/repos/create":
            request = json.loads(body)
            repo = f"{request.get('organization') or 'user'}/{request['name']}"
            if repo not in self.hub.commits:
                self.hub.commit(repo, {}, "main")
            self._send_json({"url": f"{self.hub.url}/{repo}", "id": repo})
        elif path == "/api/validate-yaml":
            self._send_json({"errors": [], "warnings": []})
        elif match := _API.fullmatch(path):
            repo, what, branch = match.groups()
            if what == "preupload":
                names = [file["path"] for file in json.loads(body)["files"]]
                files = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
                self._send_json({"files": files})
            elif what == "commit":
                sha = self._commit(repo, branch, [json.loads(x) for x in body.splitlines()])
                url = f"{self.hub.url}/{repo}/commit/{sha}"
                self._send_json({"commitUrl": url, "commitOid": sha, "success": True})
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _commit(self, repo: str, branch: str, lines: list[dict[str, Any]]) -> str:
        files = dict(self.hub.commits[repo][self.hub.refs[repo][branch]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        return self.hub.commit(repo, files, branch)

    def _find(self, repo: str, revision: str) -> str | None:
        sha = self.hub.find(repo, revision)
        if sha is None:
            code = "RevisionNotFound" if repo in self.hub.commits else "RepoNotFound"
            self._send(404, b"", {"X-Error-Code": code})
        return sha

    def _read(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Run a hub without repositories on a free port of the loopback interface."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
