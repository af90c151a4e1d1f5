"""The JSON API: each endpoint is an entry with what it takes and gives, from which its description is made as well."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from colabel import __version__
from colabel.errors import ColabelError, DataError
from colabel.serve import api_records as records
from colabel.serve.overview import overview
from colabel.serve.served import ServedRun

MOST_WAITING = 64
"""Requests that may wait for the models; more are asked to try again later."""
_LISTS = ("skip", "filter")  # parameters that may be repeated
T = TypeVar("T")


class Refusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that is answered with a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Desk:
    """Lets requests use the run: one after another, since tokenizers and queues are not for several threads."""

    def __init__(self, served: ServedRun) -> None:
        self.served = served
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="colabel-run")
        self._waiting = 0

    async def ask(self, work: Callable[[], T]) -> T:
        """What ``work`` returns; refused where too many wait already."""
        if self._waiting >= MOST_WAITING:
            raise Refusal(503, f"{MOST_WAITING} requests are waiting already; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def start(self) -> None:
        """Load the models while nobody waits for them."""
        self._thread.submit(self.served.warm_up)

    def close(self) -> None:
        """Finish what is being done, and let go of the file of verdicts."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.served.store.close()


@dataclass(frozen=True)
class Endpoint:
    """A path of the API."""

    method: str
    path: str
    about: str
    takes: type[records.Request]
    gives: type[msgspec.Struct]
    handle: Callable[[Desk, Any], Awaitable[Any]]


def _in_turn(work: Callable[[ServedRun, Any], Any]) -> Callable[[Desk, Any], Awaitable[Any]]:
    """Work that is done in the run's own thread."""
    return lambda desk, asked: desk.ask(lambda: work(desk.served, asked))


async def _search(desk: Desk, asked: records.SearchRequest) -> records.SearchResponse:
    (found,) = await _searches(desk, [asked.query], asked)
    return found


async def _batch(desk: Desk, asked: records.BatchRequest) -> records.BatchResponse:
    return records.BatchResponse(await _searches(desk, asked.queries, asked))


async def _searches(
    desk: Desk, queries: Sequence[str], asked: records.SearchRequest | records.BatchRequest
) -> list[records.SearchResponse]:
    """One search after another, so that others get their turn in between."""
    if not all(query.strip() for query in queries):
        raise Refusal(422, "the query is empty; a query needs at least one word")
    how = asked.ranker, asked.k, asked.min_probability, tuple(asked.filter)
    return [await desk.ask(functools.partial(desk.served.search, query, *how)) for query in queries]


async def _judge(desk: Desk, asked: records.VerdictRequest) -> records.VerdictResponse:
    begun, verdict = time.perf_counter(), desk.served.check(asked)
    kept = await run_in_threadpool(desk.served.store.add, verdict, asked.call)  # on the disk before anything else
    return await desk.ask(lambda: desk.served.kept(kept, begun))


async def _undo(desk: Desk, asked: records.UndoRequest) -> records.UndoResponse:
    undone = await run_in_threadpool(desk.served.take_back, asked.judge, asked.id)
    await desk.ask(desk.served.refresh)
    return undone


async def _health(desk: Desk, asked: records.Request) -> records.Health:
    return await run_in_threadpool(desk.served.health)


ENDPOINTS = (
    Endpoint("GET", "/api/search", "Search with a ranker.", records.SearchRequest, records.SearchResponse,
             _search),
    Endpoint("POST", "/api/search", "Search for several texts.", records.BatchRequest, records.BatchResponse,
             _batch),
    Endpoint("GET", "/api/facets", "What to filter by.", records.NothingRequest, records.FacetsResponse,
             _in_turn(lambda served, _: records.FacetsResponse(served.facets.views()))),
    Endpoint("GET", "/api/suggestions", "The next pairs to judge.", records.SuggestionsRequest,
             records.SuggestionsResponse, _in_turn(ServedRun.suggestions)),
    Endpoint("GET", "/api/verdicts", "The newest verdicts.", records.RecentRequest, records.RecentResponse,
             _in_turn(ServedRun.recent)),
    Endpoint("POST", "/api/verdicts", "Keep a verdict; it is on the disk when the answer comes.",
             records.VerdictRequest, records.VerdictResponse, _judge),
    Endpoint("POST", "/api/verdicts/undo", "Take a verdict back.", records.UndoRequest, records.UndoResponse,
             _undo),
    Endpoint("GET", "/api/overview", "How far the labels are.", records.NothingRequest, records.Overview,
             _in_turn(lambda served, _: overview(served))),
    Endpoint("GET", "/api/health", "Whether the server is well.", records.NothingRequest, records.Health,
             _health),
)  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    """All endpoints and their description."""
    described = msgspec.json.encode(openapi())

    async def description(request: Request) -> Response:
        return Response(described, media_type="application/json")

    by_path: dict[str, dict[str, Endpoint]] = {}
    for one in ENDPOINTS:
        by_path.setdefault(one.path, {})[one.method] = one
    found = [Route(path, _answering(desk, methods), methods=list(methods)) for path, methods in by_path.items()]
    return [*found, Route("/openapi.json", description)]


def _answering(desk: Desk, methods: dict[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        one = methods["GET" if request.method == "HEAD" else request.method]
        try:
            asked = await _asked(one, request)
            return _json(await one.handle(desk, asked))
        except Refusal as refusal:
            headers = {"retry-after": "1"} if refusal.status == 503 else None
            return _json(records.Problem(str(refusal)), refusal.status, headers)
        except ColabelError as error:
            wrong = isinstance(error, DataError) or error.exit_code == 2  # what was asked, not the run
            return _json(records.Problem(str(error)), 422 if wrong else 500)

    return answer


async def _asked(one: Endpoint, request: Request) -> Any:
    """The request as its record: from the body, or from the parameters of the address."""
    try:
        if one.method == "POST":
            return msgspec.json.decode(await request.body(), type=one.takes)
        given: dict[str, Any] = {}
        for name, value in request.query_params.multi_items():
            if name in _LISTS:
                given.setdefault(name, []).append(value)
            elif name in given:
                raise Refusal(400, f"the parameter '{name[:40]}' is given twice")
            else:
                given[name] = value
        return msgspec.convert(given, one.takes, strict=False)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, str(error)) from None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=str), status, headers, "application/json")


def openapi() -> dict[str, Any]:
    """The description of the API, OpenAPI 3.1."""
    types = [kind for one in ENDPOINTS for kind in (one.takes, one.gives)]
    _, components = msgspec.json.schema_components(
        [*types, records.Problem], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        operation: dict[str, Any] = {"summary": one.about, "operationId": f"{one.method} {one.path}"}
        schema = components[one.takes.__name__]
        if one.method == "POST":
            operation["requestBody"] = {"required": True, "content": _content(one.takes)}
        else:
            operation["parameters"] = [
                {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": about}
                for name, about in schema.get("properties", {}).items()
            ]
        reasons = {"400": "Not understood.", "422": "Understood, and it cannot be.", "503": "Too many wait already."}
        operation["responses"] = {"200": _answer("Done.", one.gives)}
        operation["responses"] |= {code: _answer(why, records.Problem) for code, why in reasons.items()}
        paths.setdefault(one.path, {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "colabel serve", "version": __version__, "description": "Search and judge a run."},
        "paths": paths,
        "components": {"schemas": components},
    }


def _answer(why: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": why, "content": _content(kind)}


def _content(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
