"""`report RUN --serve`: the page of runs that go on, over HTTP on this machine alone. The browser
asks for the content again and again; it is made anew when files of the runs have changed. Only
three names are answered, behind a token that is drawn anew for each start, so no other file can be
asked for."""
import gzip
import hmac
import http.server
import json
import os
import secrets
import threading
import time

from ada_train.report import live, page

HOSTS = ("127.0.0.1", "localhost", "[::1]")  # a name that leads here by a stranger's DNS is refused
REST = 3      # times as long as the content took to make it is not made again
SHORTEST, LONGEST = 2, 60  # seconds of that
POLICY = ("default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src "
          "'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri 'none'; "
          "form-action 'none'; frame-ancestors 'none'")


class Content:
    """What the page shows now. `make`: gives (HTML, data as JSON); `folders`: of the runs."""

    def __init__(self, make, folders):
        self._make, self._folders = make, folders
        self._lock, self._seen, self._tag, self._body = threading.Lock(), None, "", b""
        self._not_before = 0.0

    def _files(self):
        """Names, sizes and times of the runs' files."""
        found = []
        for folder in self._folders:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.name.endswith((".csv", ".json", ".yaml")):
                        about = entry.stat()
                        found.append((folder, entry.name, about.st_size, about.st_mtime_ns))
        return found

    def now(self):
        """(tag, packed JSON). The tag changes with the content."""
        with self._lock:
            if self._body and time.monotonic() < self._not_before:
                return self._tag, self._body
            files = self._files()
            if files != self._seen:
                start = time.monotonic()
                text, data = self._make()
                self._body = gzip.compress(json.dumps({"html": text, "data": data}).encode("utf-8"))
                self._seen, self._tag = files, f'"{secrets.token_hex(8)}"'
                took = time.monotonic() - start
                self._not_before = time.monotonic() + min(LONGEST, max(SHORTEST, REST * took))
            return self._tag, self._body


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 30
    server_version, sys_version = "ada-train", ""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # addresses hold the token
        pass

    def parse_request(self):
        if not super().parse_request():
            return False
        self.close_connection = True
        if self.command != "GET":
            self._answer(405, "text/plain", b"nothing but GET\n", Allow="GET")
            return False
        return True

    def _answer(self, status, kind, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8",
                            "Content-Length": str(len(body)), "Cache-Control": "no-store",
                            "Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer",
                            "X-Content-Type-Options": "nosniff", "Connection": "close",
                            **{n.replace("_", "-"): v for n, v in headers.items()}}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # the name that http.server asks for
        served = self.server
        host = self.headers.get("Host", "").rsplit(":", 1)[0] or "127.0.0.1"
        token, _, name = self.path.split("?", 1)[0].lstrip("/").partition("/")
        if host not in HOSTS or not hmac.compare_digest(token.encode(), served.token.encode()):
            self._answer(403, "text/plain", b"the address lacks its token; take the one that "
                                            b"ada-train report --serve printed\n")
        elif name == "":
            self._answer(200, "text/html", served.page)
        elif name == "plotly.js":
            self._answer(200, "text/javascript", served.library, Content_Encoding="gzip")
        elif name == "content":
            self._content()
        else:
            self._answer(404, "text/plain", b"there is the page alone\n")

    def _content(self):
        try:
            tag, body = self.server.content.now()
        except Exception as error:  # files that are being written, or are gone: the next may work
            self._answer(503, "text/plain", str(error).encode("utf-8", "replace"))
            return
        if self.headers.get("If-None-Match") == tag:
            self._answer(304, "application/json", b"", ETag=tag)
        else:
            self._answer(200, "application/json", body, ETag=tag, Content_Encoding="gzip")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port, title, runs, make, folders):
        """Raises OSError where the port is taken, live.MissingLibrary."""
        source, version = live.library()
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self.library = gzip.compress(source.encode("utf-8"), 6)
        self.content = Content(make, folders)
        self.page = page.whole(title, live.bar(runs) + '<main id="content"></main>'
                               + live.footer(version) + '<script src="plotly.js"></script>'
                               + f"<script>{live.SCRIPT.read_text('utf-8')}</script>",
                               live.CSS).encode("utf-8")

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"
