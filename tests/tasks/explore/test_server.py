"""The page's requests: the answers and errors of the command line, and nothing for anyone else."""

import asyncio
import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from tasks.explore.models import Model, Reading, load_models
from tasks.explore.server import MAX_BYTES, Explorer, make_app
from tasks.listops.__main__ import main as listops
from tasks.logic.__main__ import main as logic
from tasks.parsing.__main__ import main as parsing
from tasks.runs.checkpoints import read_checkpoint, save_tensors
from tasks.runs.errors import UserError
from tasks.sst.__main__ import main as sst

ADDRESS = "http://127.0.0.1:8000"
JSON = {"Content-Type": "application/json"}
EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"
FORMULAS = ["( a ( and b ) )", "( a ( or ( not c ) ) )"]
SENTENCE = "neither bad nor dull"


@pytest.fixture(scope="module")
def own(small_runs):
    """The checkpoints of a tiny run of each task."""
    return {task: small_runs[task] for task in ("listops", "logic", "sst", "language_model")}


@pytest.fixture(scope="module")
def models(own):
    return load_models(map(Path, own.values()))


@pytest.fixture(scope="module")
def client(models):
    with TestClient(make_app(models), base_url=ADDRESS) as client:
        yield client


def traced(main, tmp_path, *words):
    """The traces that the subcommand `trace` writes."""
    assert main(["trace", *words, "--json", str(tmp_path / "trace.json")]) == 0
    return json.loads((tmp_path / "trace.json").read_text())["traces"]


def read(client, model, *texts, **options):
    response = client.post("/read", json={"model": model, "texts": list(texts), **options})
    assert response.status_code == 200, response.text
    assert "error" not in response.json()
    return response.json()


def refused(response):
    """Why a text is not read."""
    assert response.status_code == 200, response.text
    assert response.json().keys() == {"error"}
    return response.json()["error"]


@pytest.mark.parametrize(
    ("model", "texts", "main", "options"),
    [
        ("ListOps", [EXPRESSION], listops, []),
        ("Logic", FORMULAS, logic, []),
        ("SST-5", [SENTENCE], sst, ["--classes", "5"]),
        ("SST-2", [SENTENCE], sst, ["--classes", "2"]),
    ],
)
def test_a_model_of_the_project_answers_as_on_the_command_line(client, tmp_path, model, texts, main, options):
    assert read(client, model, *texts)["traces"] == traced(main, tmp_path, *texts, *options)


@pytest.mark.parametrize(
    ("task", "texts", "main"),
    [("listops", [EXPRESSION], listops), ("logic", FORMULAS, logic), ("sst", [SENTENCE], sst)],
)
def test_a_checkpoint_answers_as_on_the_command_line(client, own, tmp_path, task, texts, main):
    options = ["--checkpoint", own[task]]
    assert read(client, own[task], *texts)["traces"] == traced(main, tmp_path, *texts, *options)
    options += ["--num-slots", "7"]
    several = read(client, own[task], *texts, num_slots=7)["traces"]
    assert several == traced(main, tmp_path, *texts, *options)
    assert several[0]["memory"]["num_slots"] == 7


def test_the_number_of_slots_on_the_page_is_that_with_which_a_model_reads(client, models):
    for name, texts in (("ListOps", [EXPRESSION]), ("Logic", FORMULAS), ("SST-5", [SENTENCE])):
        assert read(client, name, *texts)["traces"][0]["memory"]["num_slots"] == models[name].num_slots
    config = models["Logic"].model.config
    assert models["Logic"].num_slots == config.test_num_slots > config.num_slots


def test_a_language_model_shows_its_distances(client, own, tmp_path):
    words = "the dog sleeps"
    found = read(client, own["language_model"], words)["traces"]
    assert found == traced(parsing, tmp_path, words, "--checkpoint", own["language_model"])
    assert len(found[0]["layers"]) == 2


def test_an_exported_directory_is_a_model(own, tmp_path):
    assert listops(["export", str(tmp_path / "model"), "--checkpoint", own["listops"]]) == 0
    [*_, name] = load_models([tmp_path / "model"])
    assert name == str(tmp_path / "model")


def test_a_model_that_needs_trees_which_typed_sentences_do_not_have_is_refused(tmp_path):
    options = [
        "--generated",
        "20",
        "--vectors",
        "none",
        "--slot-size",
        "4",
        "--epochs",
        "1",
        "--threads",
        "1",
    ]
    words = ["--preset", "demo", "--model", "gold-tree-rnn", *options, "--run-dir", str(tmp_path)]
    assert sst(words) == 0
    with pytest.raises(UserError, match="gold-tree-rnn needs the true tree of every sentence"):
        load_models([tmp_path / "best.safetensors"])


def test_a_directory_with_the_name_of_another_model_does_not_replace_it(own, tmp_path, monkeypatch):
    assert listops(["export", str(tmp_path / "ListOps"), "--checkpoint", own["listops"]]) == 0
    monkeypatch.chdir(tmp_path)
    found = load_models([Path("ListOps")])
    assert [name for name, model in found.items() if model.task == "listops"] == ["ListOps", "./ListOps"]
    assert (found["ListOps"].num_slots, found["./ListOps"].num_slots) == (21, 3)


def test_the_note_names_words_that_the_model_does_not_have(client):
    answer = read(client, "SST-2", "a zorgleflub film")
    assert re.fullmatch(r"words without a vector, .*: zorgleflub\n", answer["note"])
    assert read(client, "SST-2", SENTENCE)["note"] == ""


def test_an_answer_explains_its_traces(client):
    assert "stack of memory slots" in read(client, "SST-2", SENTENCE)["about"]


@pytest.mark.parametrize(
    ("model", "texts", "main", "subcommand"),
    [
        ("ListOps", [""], listops, "predict"),
        ("ListOps", ["[MAX 2 q ]"], listops, "predict"),
        ("ListOps", ["[MAX 2 9"], listops, "predict"),
        ("ListOps", ["2 ]"], listops, "predict"),
        ("ListOps", ["[MAX ]"], listops, "predict"),
        ("ListOps", ["1 2"], listops, "predict"),
        ("ListOps", ["( 1"], listops, "predict"),
        ("Logic", ["a", ""], logic, "predict"),
        ("Logic", ["( a", "b"], logic, "predict"),
        ("Logic", ["a", "b )"], logic, "predict"),
        ("Logic", ["a", "( b and c )"], logic, "predict"),
        ("Logic", ["a", "x"], logic, "predict"),
        ("SST-5", [""], sst, "predict"),
        ("SST-2", [" \n "], sst, "predict"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/read", "/lengthen"])
def test_bad_input_is_refused_in_the_words_of_the_command_line(
    client, capsys, path, model, texts, main, subcommand
):
    assert main([subcommand, *texts]) == 2
    error = capsys.readouterr().err.partition(": error: ")[2].removesuffix("\n")
    assert refused(client.post(path, json={"model": model, "texts": texts})) == error


@pytest.mark.parametrize("path", ["/read", "/lengthen"])
@pytest.mark.parametrize(
    "text",
    ["", "the " * 301, "the \ud800 cat", "the zorgleflub", "the <eos>"],
    ids=["none", "many", "surrogate", "unknown", "end"],
)
def test_a_bad_sentence_for_a_language_model(client, own, capsys, path, text):
    assert parsing(["trace", text, "--checkpoint", own["language_model"]]) == 2
    error = capsys.readouterr().err.partition(": error: ")[2].removesuffix("\n")
    question = json.dumps({"model": own["language_model"], "texts": [text]})
    response = client.post(path, content=question, headers=JSON)
    assert refused(response) == error


@pytest.mark.parametrize("model", ["ListOps", "Logic", "SST-2"])
def test_half_a_surrogate_pair_is_no_text(client, model):
    question = {"model": model, "texts": ["\ud800 cat"] * (2 if model == "Logic" else 1)}
    assert "\\ud800" in refused(client.post("/read", content=json.dumps(question), headers=JSON))


@pytest.mark.parametrize("path", ["/read", "/lengthen"])
@pytest.mark.parametrize(
    ("model", "texts", "most"),
    [
        ("ListOps", [f"[MAX {'1 ' * 1999}]"], "2,000 tokens, got 2,001"),
        ("Logic", ["a", f"{'( not ' * 700}a{' )' * 700}"], "2,000 tokens, got 2,101"),
        ("SST-2", ["very " * 201], "200 tokens, got 201"),
    ],
)
def test_a_text_that_is_too_long(client, path, model, texts, most):
    assert refused(client.post(path, json={"model": model, "texts": texts})) == f"expected at most {most}"


def test_no_longer_text_than_is_read_is_made(client):
    for arguments, most in ((1100, None), (1990, None), (1998, "2,000 tokens, got 2,003")):
        texts = [f"[MAX {'1 ' * arguments}]"]
        response = client.post("/lengthen", json={"model": "ListOps", "texts": texts})
        if most is None:
            assert arguments < len(response.json()["texts"][0].split()) <= 2000
        else:
            assert refused(response) == f"expected at most {most}"


@pytest.mark.parametrize("number", [0, -1, 101, 10**20])
def test_a_number_of_slots_that_cannot_be(client, number):
    question = {"model": "ListOps", "texts": ["3"], "num_slots": number}
    error = refused(client.post("/read", json=question))
    assert error == f"the number of slots must lie in 1..100, got {number}"


@pytest.mark.parametrize("number", ["1.5", "1e300", "NaN", "-Infinity"])
def test_a_number_that_is_not_whole_is_no_failure_of_the_page(client, number):
    for path, key, name in (("/read", "num_slots", "number of slots"), ("/draw", "length", "length")):
        body = f'{{"model": "ListOps", "texts": ["3"], "{key}": {number}}}'
        error = refused(client.post(path, content=body.encode(), headers=JSON))
        assert error == f"the {name} must be a whole number, got {float(number):g}"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "expected JSON"),
        (b"model=ListOps", "expected JSON"),
        (b"\xff", "expected JSON"),
        (b"[" * 10_000, "expected JSON"),
        (b"9" * 5_000, "expected JSON"),
        (b"[]", "expected a JSON object"),
        (b"{}", "expected model to be one of ListOps, Logic, SST-5, SST-2"),
        (b'{"model": "/etc/passwd"}', "got '/etc/passwd'"),
        (b'{"model": ["ListOps"]}', "got ['ListOps']"),
        (b'{"model": "ListOps"}', "expected texts to be a list of 1"),
        (b'{"model": "ListOps", "texts": "3"}', "expected texts to be a list of 1"),
        (b'{"model": "ListOps", "texts": [3]}', "expected texts to be a list of 1"),
        (b'{"model": "ListOps", "texts": []}', "expected texts to be a list of 1"),
        (b'{"model": "Logic", "texts": ["a"]}', "expected texts to be a list of 2"),
        (b'{"model": "ListOps", "texts": ["3"], "num_slots": "7"}', "expected num_slots to be a number"),
        (b'{"model": "ListOps", "texts": ["3"], "num_slots": true}', "expected num_slots to be a number"),
    ],
)
def test_a_request_that_the_page_would_not_make(client, body, error):
    response = client.post("/read", content=body, headers=JSON)
    assert response.status_code == 400
    assert error in response.json()["error"]


def test_no_answer_is_kept_or_read_by_another_page(client):
    question, other = {"model": "ListOps", "texts": ["3"]}, {"model": "ListOps", "texts": ["q"]}
    answers = [client.post(path, json=question) for path in ("/read", "/draw", "/lengthen")]
    answers += [client.post("/read", json=body) for body in (other, {})]
    for answer in (*answers, client.get("/"), client.get("/nowhere")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_another_method_is_refused_by_the_rules_of_http(client):
    response = client.get("/read")
    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_what_another_page_could_send_is_refused(client, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    response = client.post("/read", content=b'{"model": "ListOps", "texts": ["3"]}', headers=headers)
    assert (response.status_code, response.json()["error"]) == (
        415,
        "expected the content type application/json",
    )


def test_another_page_is_not_told_that_it_may_ask(client):
    headers = {"Origin": "http://example.org", "Access-Control-Request-Method": "POST"}
    response = client.options("/read", headers=headers)
    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.org", "10.0.0.1", ""])
def test_another_host_is_refused(client, host):
    for response in (
        client.get("/", headers={"Host": host}),
        client.post("/draw", json={"model": "SST-2"}, headers={"Host": host}),
    ):
        assert (response.status_code, response.text) == (400, "Invalid host header")


def test_localhost_is_this_host(client):
    assert client.get("/", headers={"Host": "localhost:8000"}).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_not_read(client, chunked):
    body = b" " * (MAX_BYTES + 1)
    content = iter([body, b"never read"]) if chunked else body
    response = client.post("/read", content=content, headers=JSON)
    assert response.status_code == 413
    assert "Content Too Large" in response.text


@pytest.mark.parametrize(
    "path", ["/page.js", "/page/page.js", "/static/", "/etc/passwd", "/..%2f..%2fetc/passwd", "/read/x"]
)
def test_no_file_is_served(client, path):
    assert client.get(path).status_code == 404


def test_a_random_example_can_be_read_and_made_longer(client, models):
    for name, model in models.items():
        texts = client.post("/draw", json={"model": name, "length": 12}).json()["texts"]
        assert len(texts) == len(model.language.boxes)
        read(client, name, *texts)
        longer = client.post("/lengthen", json={"model": name, "texts": texts}).json()["texts"]
        assert all(len(after) > len(before) for after, before in zip(longer, texts, strict=True))


def test_a_random_sentence_has_words_that_the_model_knows(models):
    rng = random.Random(0)
    for name in ("SST-2", "SST-5"):
        model = models[name]
        for _ in range(30):
            texts = model.draw(rng, None)
            assert not model.unknown_words(texts)
            assert not model.unknown_words(model.lengthen(rng, texts))
    texts = ("A zorgleflub .",)
    assert models["SST-2"].unknown_words(texts) == {"zorgleflub"}
    assert models["SST-2"].unknown_words(models["SST-2"].lengthen(rng, texts)) == {"zorgleflub"}


def test_a_diverged_model_is_refused(own, tmp_path):
    tensors, metadata = read_checkpoint(Path(own["listops"]))
    save_tensors(tmp_path / "w", {name: 1e25 * value for name, value in tensors.items()}, metadata)
    with pytest.raises(UserError, match="training has diverged"):
        load_models([tmp_path / "w"])[str(tmp_path / "w")].read((EXPRESSION,), None)


class Page(HTMLParser):
    """The elements of a page, and what its scripts and styles hold."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts = [("", {})], {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.texts.setdefault(self.elements[-1][0], []).append(text)


MARKUP = "<script>alert(1)</script>"


def test_the_page_stands_alone_and_runs_nothing_but_its_script(client):
    response = client.get("/")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    page = Page(response.text)
    attributes = [pair for _, pairs in page.elements for pair in pairs.items()]
    assert [value for name, value in attributes if name in ("src", "href")] == ["data:,"]
    assert not [name for name, _ in attributes if name.startswith("on") or name == "style"]


def test_the_name_of_a_checkpoint_is_no_markup(models):
    name = f"</script>{MARKUP}<img src=x>"
    with TestClient(make_app({name: models["ListOps"]}), base_url=ADDRESS) as client:
        page = Page(client.get("/").text)
        assert [tag for tag, _ in page.elements].count("script") == 2
        assert "img" not in [tag for tag, _ in page.elements]
        assert json.loads(page.texts["script"][0])["models"][0]["name"] == name
        refused = client.post("/read", json={"model": MARKUP, "texts": ["3"]})
    assert refused.headers["Content-Type"] == "application/json"


def test_markup_in_a_word_stays_a_word(client):
    response = client.post("/read", json={"model": "SST-2", "texts": [f"{MARKUP} & \u2028 good"]})
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    tokens = response.json()["traces"][0]["tokens"]
    assert tokens == ["<", "script", ">", "alert", "(", "1", ")", "<", "/script", ">", "&", "good"]


class Slow(Model):
    """Says when it reads, and waits until it may go on."""

    def __init__(self):
        super().__init__("slow", "listops", None)
        self.reading, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.at_once = self.most_at_once = 0

    def check(self, texts):
        pass

    def read(self, texts, num_slots):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.reading.release()
        assert self.may_go_on.acquire(timeout=60)
        self.at_once -= 1
        return Reading([], texts[0])


def test_while_a_model_reads_the_page_answers_and_other_readings_wait():
    slow = Slow()
    with (
        TestClient(make_app({"slow": slow}), base_url=ADDRESS) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = [pool.submit(read, client, "slow", str(i)) for i in range(4)]
        assert slow.reading.acquire(timeout=60)
        assert client.get("/").status_code == 200
        assert len(client.post("/draw", json={"model": "slow"}).json()["texts"]) == 1
        slow.may_go_on.release(4)
        assert [answer.result(timeout=60)["note"] for answer in answers] == ["0", "1", "2", "3"]
    assert slow.most_at_once == 1


def test_the_model_does_not_run_after_the_client_has_disconnected():
    slow = Slow()
    body = json.dumps({"model": "slow", "texts": ["3"]}).encode()
    messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

    async def receive():
        return next(messages)

    async def ask():
        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
        return await Explorer({"slow": slow}).read(Request(scope, receive))

    assert asyncio.run(ask()).status_code == 200
    assert slow.most_at_once == 0
