"""Who may ask what: hosts, origins, the token, sizes, and the headers that keep a browser in bounds.

The app has no accounts. On a loopback address, nobody but this machine can reach it, and two tricks remain: a page of
another site that sends requests (refused by its origin), and a name of another site that points to this machine
(refused by its host). On any other address, every request needs a token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 64 * 1024
"""Bytes of a request's body."""
COOKIE = "colabel-token"
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE = ("GET", "HEAD")
_ASK = """<!doctype html><html lang="en"><meta charset="utf-8"><title>colabel: token</title>
<link rel="stylesheet" href="/static/app.css"><main class="narrow"><h1>A token is needed</h1>
<p>Open the address that <code>colabel serve</code> printed, or enter its token.</p>
<form method="get" action="/" class="row"><label>Token <input name="token" autocomplete="off" required></label>
<button>Open</button></form></main></html>"""


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("[::1]"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses requests before they reach the app, and adds headers to what it answers.

    Args:
        hosts: names by which the app may be called, without the port; empty: any, which needs a token.
        token: None: none is needed.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], token: str | None) -> None:
        self.app, self.hosts, self.token = app, frozenset(hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) or self._token_refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        await self.app(scope, receive, sending)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Hosts, origins, and sizes."""
        host = headers.get("host", "")
        plain = all(letter.isalnum() or letter in ".-_:[]" for letter in host)  # nothing that parsers take differently
        name = urlsplit(f"//{host}").hostname if plain else None
        if name is None or (self.hosts and name not in self.hosts):
            return JSONResponse({"error": "this host name is not served here"}, 421)
        if scope["method"] in _SAFE:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and urlsplit(origin).netloc != host) or site not in ("same-origin", "none"):
            return JSONResponse({"error": "requests from other sites are refused"}, 403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return JSONResponse({"error": "expected content-type application/json"}, 415)
        sent = "transfer-encoding" in headers  # a body of unknown length
        length = headers.get("content-length", "" if sent else "0")  # which the server holds requests to
        if not length.isdigit() or int(length) > MOST_BYTES:
            said = f"a request may have {MOST_BYTES:,} bytes, and says how many in content-length"
            return JSONResponse({"error": said}, 413, {"connection": "close"})
        return None

    def _token_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if self.token is None or scope["path"].startswith("/static/"):
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        held = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if self._fits(held) or (scheme.lower() == "bearer" and self._fits(bearer.strip())):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), "")
        if scope["method"] in _SAFE and self._fits(given) and scope["path"] in ("/", "/review", "/search"):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            answer = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", secure=scope["scheme"] == "https")
            return answer
        if scope["path"].startswith("/api/") or scope["path"] == "/openapi.json":
            return JSONResponse({"error": "a token is needed"}, 401, {"www-authenticate": "Bearer"})
        return HTMLResponse(_ASK, 401)

    def _fits(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())
