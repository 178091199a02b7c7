"""`postbox console`, and a client of its API as a browser is one."""

import contextlib
import http.client
import json
import re
import urllib.parse

from outcome import Failure, wait_until


class Console:
    def __init__(self, bed, *arguments, listen="127.0.0.1:0", dsn=None):
        self.lines = []
        self.process = bed.start("console", [bed.postbox, "console", "--dsn", dsn or bed.cluster.dsn("reader"), "--listen", listen, *arguments],
                                 on_line=self.lines.append)
        wait_until("the console listens", lambda: self.lines or not self.process.running())
        self.port, self.prefix = re.match(r"postbox console listening on http://127\.0\.0\.1:(\d+)(.*)/$", self.lines[0]).groups()
        self.url = f"http://127.0.0.1:{self.port}{self.prefix}/"


class Browser:
    """With the cookie and the CSRF token of one session."""

    def __init__(self, console, host=None):
        self.console = console
        self.host = host or f"127.0.0.1:{console.port}"
        self.cookie = self.csrf = None

    def fetch(self, method, path, body=None, status=200, **headers):
        """The text of the answer. `path` is relative to the page; None is the prefix itself, without a slash."""
        connection = http.client.HTTPConnection("127.0.0.1", int(self.console.port), timeout=30)
        with contextlib.closing(connection):
            sent = {"Host": self.host, **({"Cookie": f"other=1; postbox_console={self.cookie}"} if self.cookie else {}),
                    **({"X-Postbox-CSRF": self.csrf} if self.csrf and method == "POST" else {}),
                    **({"Content-Type": "application/json"} if body is not None else {}), **{name.replace("_", "-"): value for name, value in headers.items()}}
            connection.request(method, self.console.prefix if path is None else f"{self.console.prefix}/{path}",
                               body if body is None or isinstance(body, str) else json.dumps(body),
                               {name: value for name, value in sent.items() if value is not None})
            answer = connection.getresponse()
            text = answer.read().decode()
            self.headers = answer.headers
            if answer.status not in (status if isinstance(status, tuple) else (status,)):
                raise Failure(f"{method} {path}: {answer.status} instead of {status}\n{text}")
            for name in ("Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Cache-Control"):
                if len(answer.headers.get_all(name, [])) != 1:
                    raise Failure(f"{method} {path}: the answer has {name} {len(answer.headers.get_all(name, []))} times")
            return text

    def ask(self, method, path, body=None, status=200, **headers):
        """The JSON of the answer."""
        text = self.fetch(method, path, body, status, **headers)
        return json.loads(text) if text else None

    def get(self, path, status=200, **parameters):
        query = urllib.parse.urlencode({name: value for name, value in parameters.items() if value is not None})
        return self.ask("GET", f"api/{path}" + (f"?{query}" if query else ""), status=status)

    def post(self, path, body, status=200, **headers):
        return self.ask("POST", f"api/{path}", body, status, **headers)

    def log_in(self, status=200, **body):
        answer = self.post("login", body, status)
        if status == 200:
            self.cookie = re.search(r"postbox_console=([0-9a-f]+);", self.headers["Set-Cookie"])[1]
            self.csrf = answer["csrf"]
        return answer


def logged_in(console, role="ops", password="it's \\ops"):
    browser = Browser(console)
    browser.log_in(role=role, password=password)
    return browser
