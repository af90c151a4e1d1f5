"""The JSON API and its pages, called within this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from colabel import Run, open_run, run
from colabel.errors import UsageError
from colabel.labels import Verdict, VerdictStore
from colabel.serve import create_app
from colabel.serve.api import ENDPOINTS, openapi
from colabel.serve.security import MOST_BYTES

HOME = "http://localhost:8765"


def judge(client: TestClient, answer: str = "yes", **more: object) -> dict[str, object]:
    pair = client.get("/api/suggestions", params={"judge": "ann"}).json()["pairs"][0]
    body = {"judge": "ann", "query_id": pair["query_id"], "passage_id": pair["candidate"]["passage_id"], **more}
    found = client.post("/api/verdicts", json=body if "grade" in more else {**body, "answer": answer})
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


@pytest.mark.parametrize("ranker", ["hybrid", "student", "colbert", "prf", "bm25"])
def test_search_is_that_of_the_run(client: TestClient, opened: Run, ranker: str) -> None:
    found = client.get("/api/search", params={"query": "ice of the glacier", "ranker": ranker, "k": 5}).json()
    theirs = opened.search("ice of the glacier", 5, ranker=ranker)
    assert [hit["passage_id"] for hit in found["hits"]] == [one for one in theirs.ids[0].tolist() if one]
    assert found["hits"][0]["score"] == pytest.approx(float(theirs.scores[0, 0]))
    whole = "".join(part["text"] for part in found["hits"][0]["text"])
    assert whole == opened.dataset.passages.get(found["hits"][0]["passage_id"]).text
    assert any(part.get("mark") == "query" for hit in found["hits"] for part in hit["text"])
    assert found["query_id"].startswith("typed-")


def test_a_known_query_has_its_labels_and_verdicts(client: TestClient, opened: Run) -> None:
    text = opened.dataset.queries["q0"].upper() + "  "
    found = client.get("/api/search", params={"query": text, "ranker": "bm25", "k": 40}).json()
    assert found["query_id"] == "q0"
    labels = {hit["passage_id"]: hit["label"] for hit in found["hits"] if hit["label"] is not None}
    assert labels == {one: grade for one, grade in opened.dataset.labels("train")["q0"].items() if one in labels}
    body = {"judge": "ann", "query": text, "passage_id": "d7", "answer": "no"}
    assert client.post("/api/verdicts", json=body).json()["verdict"]["query_id"] == "q0"
    again = client.get("/api/search", params={"query": text, "ranker": "student", "k": 40}).json()
    assert {hit["passage_id"]: hit["verdict"] for hit in again["hits"]}["d7"] is False
    body = {"judge": "ann", "query": "quite new", "passage_id": "d7", "answer": "yes"}
    kept = client.post("/api/verdicts", json=body).json()["verdict"]
    assert kept["query_id"].startswith("typed-") and kept["query"] == "quite new"


def test_a_verdict_is_kept_rescored_listed_and_undone(client: TestClient, opened: Run) -> None:
    first = client.get("/api/suggestions", params={"judge": "ann"}).json()
    assert first == client.get("/api/suggestions", params={"judge": "ann"}).json()
    pair = first["pairs"][0]
    assert pair["query"] and pair["candidate"]["text"] and pair["labelled"] and pair["reasons"]
    assert [one["system"] for one in pair["ranks"]] == ["BM25", "θ", "teacher"]
    assert "source" not in json.dumps(first) and "random" not in json.dumps(first), "blind"
    kept = judge(client)
    assert kept["rescored"] is True
    stored = VerdictStore(opened.folder / "verdicts").current()
    assert [(one.judge, one.answer, one.source) for one in stored] == [("ann", "yes", "missing")]
    then = client.get("/api/suggestions", params={"judge": "ann"}).json()
    assert then["pairs"][0] != pair and then["judged"] == 1
    assert [one["id"] for one in client.get("/api/verdicts", params={"judge": "ann"}).json()["verdicts"]] == [1]
    undone = client.post("/api/verdicts/undo", json={"judge": "ann"}).json()["undone"]
    assert undone["id"] == 1
    assert client.post("/api/verdicts/undo", json={"judge": "ann"}).json() == {"undone": None}
    assert client.get("/api/suggestions", params={"judge": "ann"}).json() == first


def test_a_repeated_call_counts_once_and_grades_are_answers(client: TestClient, opened: Run) -> None:
    assert judge(client, grade=2)["verdict"]["answer"] == "yes"  # type: ignore[index]
    assert judge(client, grade=0)["verdict"]["answer"] == "no"  # type: ignore[index]
    body = {"judge": "bob", "query_id": "q1", "passage_id": "d1", "answer": "no", "call": "abcdefgh"}
    numbers = {client.post("/api/verdicts", json=body).json()["verdict"]["id"] for _ in range(3)}
    assert len(numbers) == 1 and len(opened.verdicts()) == 3


def test_passages_of_another_process_are_seen(client: TestClient, opened: Run) -> None:
    asked = {"query": "melt water in the old fjord", "k": 50}
    before = client.get("/api/search", params=asked).json()["hits"]
    pair = client.get("/api/suggestions", params={"judge": "ann"}).json()["pairs"][0]
    gone = pair["candidate"]["passage_id"]
    new = {"id": "new", "text": "melt water in the old fjord", "kind": "lake", "depth": 9}
    open_run(opened.folder).change(add=[new], delete=[gone])
    for ranker in ("hybrid", "student", "bm25"):
        hits = client.get("/api/search", params={**asked, "ranker": ranker}).json()["hits"]
        assert gone not in {hit["passage_id"] for hit in hits}
        (hit,) = [hit for hit in hits if hit["passage_id"] == "new"]
        assert "".join(part["text"] for part in hit["text"]) == new["text"]
        assert any(part.get("mark") == "query" for part in hit["text"])
    assert {hit["passage_id"] for hit in before} - {hit["passage_id"] for hit in hits}
    only = client.get("/api/search", params={**asked, "filter": "kind=lake"}).json()["hits"]
    assert [hit["passage_id"] for hit in only] == ["new"]
    refused = client.get("/api/search", params={**asked, "ranker": "colbert"})
    assert (refused.status_code, "hybrid" in refused.json()["error"]) == (422, True)
    listed = client.get("/api/suggestions", params={"judge": "ann", "k": 20}).json()["pairs"]
    shown = {one["candidate"]["passage_id"] for one in listed} | {
        label["passage_id"] for one in listed for label in one["labelled"]
    }
    assert listed and gone not in shown
    body = {"judge": "ann", "query": asked["query"], "passage_id": "new", "answer": "yes"}
    assert client.post("/api/verdicts", json=body).status_code == 200
    assert client.get("/").status_code == 200


def test_verdicts_of_another_process_are_seen(client: TestClient, opened: Run) -> None:
    pair = client.get("/api/suggestions", params={"judge": "ann"}).json()["pairs"][0]
    other = VerdictStore(opened.folder / "verdicts")
    other.add(Verdict(pair["query_id"], pair["candidate"]["passage_id"], "no", "bob", source="missing"))
    assert client.get("/api/suggestions", params={"judge": "ann"}).json()["pairs"][0] != pair
    assert client.get("/api/overview").json()["judges"][0]["judge"] == "bob"


def test_find_and_skip(client: TestClient) -> None:
    def ask(**params: object) -> dict[str, object]:
        return client.get("/api/suggestions", params={"judge": "ann", **params}).json()  # type: ignore[no-any-return]

    found = ask(find="FJORD", k=5)["pairs"]
    assert {one["query_id"] for one in found} == {"q5"}  # type: ignore[index, attr-defined]
    assert ask(find="q5")["pairs"][0]["query_id"] == "q5"  # type: ignore[index]
    assert ask(find="nowhere")["why"] == "No pair is left whose query has these words."
    everything = [f"q{number}" for number in range(10)]
    assert "skipped" in ask(skip=everything)["why"]  # type: ignore[operator]


def test_the_overview_counts(client: TestClient) -> None:
    before = client.get("/api/overview").json()
    assert (before["queries"], before["labels"], before["judged"]) == (10, 11, 0)
    assert before["missing"]["candidates"] > 0 and before["missing"]["estimate"] is None
    assert (before["step"]["link"], before["step"]["command"]) == ("/review", "")
    for number in range(12):
        judge(client, answer="yes" if number % 2 else "no")
    after = client.get("/api/overview").json()
    assert after["missing"]["sample"]["of"] >= 1 and after["missing"]["estimate"] >= after["missing"]["found"] > 0
    assert after["suggestions"]["of"] + after["missing"]["sample"]["of"] + after["doubtful"]["of"] >= 12
    assert after["judges"] == [{**after["judges"][0], "judge": "ann", "yes": 6, "no": 6, "unsure": 0}]
    assert sum(one["value"] for one in after["days"]) == 12
    assert after["trainings"][0]["name"] == "now" and "nDCG@10" in after["trainings"][0]["means"]
    assert after["step"]["link"] == "/review" and after["step"]["command"].startswith("colabel run ")
    page = client.get("/").text
    assert "Wilson" in page and ">12<" in page


def test_pages_load_nothing_from_outside_and_escape_everything(opened: Run) -> None:
    odd = '"><script>alert(1)</script>'
    opened.__dict__["dataset"] = replace(opened.dataset, name=odd)
    with TestClient(create_app(opened), base_url=HOME) as client:
        client.post(
            "/api/verdicts", json={"judge": odd, "query_id": "q1", "passage_id": "d1", "answer": "yes"}
        ).raise_for_status()
        for path in ("/", "/review", "/search"):
            page = client.get(path)
            assert page.status_code == 200 and "alert(1)" in page.text
            assert "<script>" not in page.text and "style=" not in page.text and " onclick" not in page.text
            assert "script-src 'self'" in page.headers["content-security-policy"]
            for part in ("http://", "https://"):
                assert part not in page.text.replace("http://www.w3.org/2000/svg", "")
        for name in ("app.css", "common.js", "review.js", "search.js", "icon.svg"):
            assert client.get(f"/static/{name}").status_code == 200
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/nothing", "/static/app.py"):
            assert client.get(path).status_code == 404, path


def test_other_hosts_and_origins_are_refused(client: TestClient) -> None:
    assert client.get("/api/health", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/api/health", headers={"host": "localhost@evil.example"}).status_code == 421
    for host in ("127.0.0.1:8765", "localhost", "[::1]:8765"):
        assert client.get("/api/health", headers={"host": host}).status_code == 200, host
    body = {"judge": "ann"}
    for headers, status in (
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": HOME, "sec-fetch-site": "same-origin"}, 200),
        ({}, 200),
    ):
        assert client.post("/api/verdicts/undo", json=body, headers=headers).status_code == status, headers
    plain = client.post("/api/verdicts/undo", content=json.dumps(body), headers={"content-type": "text/plain"})
    assert plain.status_code == 415


def test_bounds_are_told_clearly(client: TestClient) -> None:
    def search(**params: object) -> int:
        found = client.get("/api/search", params=params)
        assert found.status_code == 200 or found.json()["error"]
        return found.status_code

    assert search(query="ice " * 250) == 200
    assert [search(query="x" * 1001), search(query=""), search(), search(query="ice", k=0)] == [400] * 4
    assert [search(query="ice", k=101), search(query="ice", ranker="best"), search(query="ice", more=1)] == [400] * 3
    assert search(query=" \t ") == 422
    assert client.get("/api/search?query=a&query=b").status_code == 400
    post = "/api/verdicts"
    for body, status in (
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 60_000, 400),
        (b'{"judge": "\xff"}', 400),
        (b"x" * (MOST_BYTES + 1), 413),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d1", "answer": "perhaps"}', 400),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d1", "grade": 4}', 400),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d 1", "answer": "yes"}', 400),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d1"}', 422),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d1", "answer": "yes", "grade": 1}', 422),
        (b'{"judge": "ann", "query_id": "q99", "passage_id": "d1", "answer": "yes"}', 422),
        (b'{"judge": "ann", "query_id": "q1", "passage_id": "d99", "answer": "yes"}', 422),
        (b'{"judge": "ann", "passage_id": "d1", "answer": "yes"}', 422),
        (b'{"judge": "ann", "query": "  ", "passage_id": "d1", "answer": "yes"}', 422),
        (b'{"judge": " ", "query_id": "q1", "passage_id": "d1", "answer": "yes"}', 422),
    ):
        found = client.post(post, content=body, headers={"content-type": "application/json"})
        assert (found.status_code, bool(found.json()["error"])) == (status, True), body[:80]
    chunked = client.post(post, content=iter([b"x" * 40_000] * 3), headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    assert client.delete("/api/verdicts", headers={"content-type": "application/json"}).status_code == 405


def test_another_address_needs_a_token(opened: Run) -> None:
    with pytest.raises(UsageError, match="token"):
        create_app(opened, host="0.0.0.0")
    app = create_app(opened, host="0.0.0.0", token="s3cret")
    with TestClient(app, base_url="http://box.example:8765", follow_redirects=False) as client:
        assert client.get("/api/health").status_code == 401
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/api/health", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api/health", headers={"authorization": "Bearer s3cret"}).status_code == 200
        assert "token is needed" in client.get("/").text
        assert client.get("/?token=wrong").status_code == 401
        opening = client.get("/review?token=s3cret&x=1")
        assert (opening.status_code, opening.headers["location"]) == (303, "/review?x=1")
        cookie = opening.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert client.get("/review").status_code == 200, "the cookie is enough from now on"
        assert client.post("/api/verdicts/undo", json={"judge": "ann"}).status_code == 200


def test_the_description_names_every_endpoint_and_bound() -> None:
    found = openapi()
    assert {(path, method.upper()) for path, one in found["paths"].items() for method in one} == {
        (one.path, one.method) for one in ENDPOINTS
    }
    parameters = {one["name"]: one["schema"] for one in found["paths"]["/api/search"]["get"]["parameters"]}
    assert (parameters["k"]["maximum"], parameters["query"]["maxLength"]) == (100, 1000)
    assert json.loads(msgspec.json.encode(found)) == json.loads(json.dumps(found))


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(["ann", "q1", "d1", "yes"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_request_breaks_the_server(client: TestClient, data: st.DataObject) -> None:
    """What is drawn from the description, and what is not, is answered with 200 or a sentence."""
    one = data.draw(st.sampled_from(ENDPOINTS))
    names = [*one.takes.__struct_fields__, "other"]
    asked = data.draw(st.dictionaries(st.sampled_from(names), _VALUES, max_size=5))
    if one.method == "POST":
        found = client.post(one.path, json=asked)
    else:
        found = client.get(
            one.path, params={name: "" if value is None else str(value) for name, value in asked.items()}
        )
    assert found.status_code in (200, 400, 422), (one.path, asked, found.text)
    assert found.json() is not None
    if found.status_code == 200:
        msgspec.json.decode(found.content, type=one.gives)


def test_a_run_without_a_teacher_can_be_searched_and_judged(made: Path, tmp_path: Path) -> None:
    run(open_run(made).recipe, tmp_path / "run", teacher="hard-query")
    with TestClient(create_app(open_run(tmp_path / "run")), base_url=HOME) as client:
        found = client.get("/api/suggestions", params={"judge": "ann"}).json()
        assert found["pairs"] == [] and "no teacher" in found["why"]
        assert client.get("/api/search", params={"query": "ice"}).json()["hits"]
        body = {"judge": "ann", "query_id": "q1", "passage_id": "d1", "answer": "yes"}
        assert client.post("/api/verdicts", json=body).status_code == 200
        assert client.get("/api/overview").json()["missing"] is None
        assert client.get("/").status_code == 200


def test_filters_leave_passages_and_facets_offer_them(client: TestClient, opened: Run) -> None:
    facets = {one["column"]: one for one in client.get("/api/facets").json()["facets"]}
    assert {one["name"]: one["value"] for one in facets["kind"]["values"]} == {"cave": 20, "fjord": 20}

    def found(*filters: str, ranker: str = "bm25") -> list[dict[str, object]]:
        asked = [("query", "ice glacier cave"), ("ranker", ranker), ("k", "40"), *(("filter", one) for one in filters)]
        answer = client.get("/api/search", params=asked)
        assert answer.status_code == 200, answer.text
        return [hit["metadata"] for hit in answer.json()["hits"]]

    for ranker in ("hybrid", "student", "colbert", "prf", "bm25"):
        hits = found("kind=fjord", "depth>=60", "depth<=80", ranker=ranker)
        assert hits and all(one["kind"] == "fjord" and 60 <= one["depth"] <= 80 for one in hits)  # type: ignore[operator]
    assert {one["kind"] for one in found("kind=fjord", "kind=cave")} == {"fjord", "cave"}
    assert found("kind=volcano") == []
    for wrong in ("colour=red", "kind", "depth>=deep", "kind<=3", "kind' or 1=1 --=x"):
        assert client.get("/api/search", params={"query": "ice", "filter": wrong}).status_code == 422


def test_several_searches_at_once(client: TestClient) -> None:
    how = {"ranker": "bm25", "k": 3, "filter": ["kind=cave"]}
    queries = ["ice", "glacier cave"]
    results = client.post("/api/search", json={"queries": queries, **how}).json()["results"]
    for query, result in zip(queries, results, strict=True):
        alone = client.get("/api/search", params={"query": query, **how}).json()
        assert [hit["passage_id"] for hit in result["hits"]] == [hit["passage_id"] for hit in alone["hits"]]
    assert client.post("/api/search", json={"queries": ["ice", " "]}).status_code == 422
    assert client.post("/api/search", json={"queries": []}).status_code == 400
    assert client.post("/api/search", json={"queries": ["ice"] * 33}).status_code == 400


def test_the_api_keeps_what_its_description_says(opened: Run) -> None:
    """Requests that schemathesis makes of the description: never a 500, always the promised shape."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi import checks

    chosen = [schemathesis.checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance]
    chosen += [checks.response_schema_conformance, checks.negative_data_rejection]
    described = schemathesis.openapi.from_dict(openapi())
    described.app = create_app(opened)
    operations = {one.label: one for one in (found.ok() for found in described.get_all_operations())}
    modes = schemathesis.GenerationMode
    for one in ENDPOINTS:
        operation = operations[f"{one.method} {one.path}"]
        for mode in (modes.POSITIVE, modes.NEGATIVE) if one.takes.__struct_fields__ else (modes.POSITIVE,):

            @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                case.call_and_validate(checks=chosen, base_url=HOME)

            check()
