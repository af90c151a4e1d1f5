"""The web app: pages, the API, and the server that runs them."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import secrets
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from colabel.errors import UsageError
from colabel.labels.verdict_files import user_name
from colabel.labels.verdicts import LONGEST_JUDGE
from colabel.pipeline.folder import RANKERS, Run
from colabel.pipeline.judging import guidelines as run_guidelines
from colabel.serve.api import Desk, Refusal, routes
from colabel.serve.overview import overview
from colabel.serve.security import Guard, is_loopback
from colabel.serve.served import ServedRun

log = logging.getLogger(__name__)

DEFAULT_PORT = 8765
_RANKER_NAMES = {
    "hybrid": "Student and BM25",
    "student": "Student",
    "colbert": "θ, before distillation",
    "prf": "ColBERT-PRF",
    "bm25": "BM25",
}


def create_app(
    run: Run, *, host: str = "127.0.0.1", token: str | None = None, double: float = 0.0, guidelines: str | None = None
) -> Starlette:
    """The app over an opened run.

    Args:
        host: the address it will listen on; where it is no loopback address, a token is needed.
        token: what every request has to show; None: nothing, on a loopback address.
        double: share of the judged pairs that a second judge is shown.
        guidelines: a text for judges; None: that of the run's folder.
    """
    if token is None and not is_loopback(host):
        raise UsageError(f"{host} can be reached by others, so requests need a token; give one with --token")
    hosts = {"localhost", "127.0.0.1", "::1", host.strip("[]").lower()} if is_loopback(host) else set()
    text = run_guidelines(run) if guidelines is None else guidelines
    desk = Desk(ServedRun(run, double=double))
    pages = Environment(
        loader=PackageLoader("colabel.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    pages.globals |= {"collection": run.dataset.name, "judge": user_name()[:LONGEST_JUDGE], "folder": str(run.folder)}
    pages.filters["share"] = _share
    pages.filters["count"] = lambda value: f"{round(value):,}"

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk.start()
        yield
        desk.close()

    def page(name: str, **values: Any) -> Callable[[Request], Any]:
        template = pages.get_template(f"{name}.html.j2")

        async def show(request: Request) -> Response:
            return HTMLResponse(template.render(page=name, **values))

        return show

    async def first_page(request: Request) -> Response:
        try:
            found = await desk.ask(lambda: overview(desk.served))
        except Refusal as refusal:
            return HTMLResponse(str(refusal), refusal.status, {"retry-after": "1"})
        return HTMLResponse(pages.get_template("overview.html.j2").render(page="overview", found=found))

    async def missing_page(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return JSONResponse({"error": "there is no such page" if status == 404 else "this cannot be asked so"}, status)

    async def broken(request: Request, error: Exception) -> Response:
        log.error("a bug in colabel: %s", error, exc_info=error)
        return JSONResponse({"error": "a bug in colabel; see its log"}, 500)

    return Starlette(
        routes=[
            Route("/", first_page),
            Route("/review", page("review", why=desk.served.why, guidelines=text.strip())),
            Route("/search", page("search", rankers={name: _RANKER_NAMES[name] for name in RANKERS})),
            *routes(desk),
            Mount("/static", StaticFiles(packages=[("colabel.serve", "static")])),
        ],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={HTTPException: missing_page, Exception: broken},
        lifespan=lifespan,
    )


def _share(value: float) -> str:
    """A share for people.

    >>> _share(0.5), _share(0.004), _share(float("nan"))
    ('50 %', '0.4 %', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def serve(
    run: Run,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    double: float = 0.0,
    guidelines: str | None = None,
    open_browser: bool = False,
    told: Callable[[str], None] = print,
) -> None:
    """Serve a run until interrupted; ``told`` is given the address, once requests are answered.

    Where the port is taken, the next free one is used. An address that others can reach gets a token.
    """
    import uvicorn

    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(18)
    app = create_app(run, host=host, token=token, double=double, guidelines=guidelines)
    listener = _listener(host, port)
    shown = "localhost" if is_loopback(host) else socket.getfqdn() if host in ("0.0.0.0", "::") else host
    name = f"[{shown}]" if ":" in shown else shown
    address = f"http://{name}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, limit_concurrency=512, timeout_keep_alive=30
    )
    told(address)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket: at the port, or at the next that is free within twenty; 0 is any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in range(port, port + 20) if port else (0,):
        try:
            return socket.create_server((host.strip("[]"), wanted), family=family, backlog=128)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno not in (errno.EACCES, errno.EADDRINUSE):
                said = f"cannot listen on {host}: {error.strerror}; give an address of this machine"
                raise UsageError(said) from None
    raise UsageError(f"ports {port} to {port + 19} are taken; give another with --port")
