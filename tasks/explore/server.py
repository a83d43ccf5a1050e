"""The web server: serves the page and answers its requests for traces, random examples and longer examples.

It accepts requests only from this machine, and only for the models that it was started with; it serves no
files.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ordered_memory import viewer
from tasks.explore.models import MAX_SLOTS, Model
from tasks.explore.texts import LANGUAGES, LONGEST_RANDOM, Texts
from tasks.reporting.traces import explanation
from tasks.runs.errors import EXIT_INTERRUPTED, UserError

HOSTS = ("127.0.0.1", "localhost")
"""Allowed values of the Host header; others are refused to prevent DNS rebinding."""
MAX_BYTES = 2**16
"""Maximum size of a request."""
PAGE_DIRECTORY = Path(__file__).with_name("page")
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Explorer:
    """Answers the requests of the page.

    Args:
        models: models by name.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = models
        self._random = random.Random()
        self._reading = asyncio.Lock()
        self._page, policy = _render_page(models)
        self._policy = {"Content-Security-Policy": policy}

    async def page(self, request: Request) -> Response:
        """Serve the page.

        Args:
            request: without a body.
        """
        return HTMLResponse(self._page, headers=HEADERS | self._policy)

    async def read(self, request: Request) -> Response:
        """Apply a model to texts: `{"traces": […], "note": …, "about": explanation of the traces}`.

        Args:
            request: `{"model": name, "texts": […], "num_slots": number or null}`.
        """
        request_data = await _request_data(request)
        model = self._model(request_data)
        texts = _texts(request_data, model)
        num_slots = _number(request_data, "num_slots", "the number of slots")

        def answer() -> Response:
            reading = model.read(texts, num_slots)
            about = explanation(reading.traces)
            return JSONResponse({**reading._asdict(), "about": about}, headers=HEADERS)

        async with self._reading:  # models are not thread-safe
            if await request.is_disconnected():  # the page has sent another request since
                return Response(headers=HEADERS)
            return await run_in_threadpool(answer)

    async def draw(self, request: Request) -> Response:
        """Generate a random example: `{"texts": […]}`.

        Args:
            request: `{"model": name, "length": number or null}`.
        """
        request_data = await _request_data(request)
        model, length = self._model(request_data), _number(request_data, "length", "the length")
        return await self._texts(lambda: model.draw(self._random, length))

    async def lengthen(self, request: Request) -> Response:
        """Generate an example that contains the given one: `{"texts": […]}`.

        Args:
            request: `{"model": name, "texts": […]}`.
        """
        request_data = await _request_data(request)
        model = self._model(request_data)
        texts = _texts(request_data, model)

        def generate() -> Texts:
            model.check(texts)
            lengthened = model.lengthen(self._random, texts)
            model.check(lengthened)
            return lengthened

        return await self._texts(generate)

    async def _texts(self, make: Callable[[], Texts]) -> Response:
        return JSONResponse({"texts": await run_in_threadpool(make)}, headers=HEADERS)

    def _model(self, request_data: Mapping[str, Any]) -> Model:
        name = request_data.get("model")
        if not isinstance(name, str) or name not in self.models:
            raise HTTPException(
                400, f"expected model to be one of {', '.join(self.models)}, got {name!r:.100}"
            )
        return self.models[name]


def make_app(models: Mapping[str, Model]) -> Starlette:
    """Make the ASGI application.

    Args:
        models: models by name.
    """
    explorer = Explorer(models)
    return Starlette(
        routes=[
            Route("/", explorer.page),
            Route("/read", explorer.read, methods=["POST"]),
            Route("/draw", explorer.draw, methods=["POST"]),
            Route("/lengthen", explorer.lengthen, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
        exception_handlers={UserError: _refuse, HTTPException: _refuse},
        max_body_size=MAX_BYTES,
    )


class Server(uvicorn.Server):
    """A server that Ctrl-C stops at once."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End the process: there is nothing to save, and a thread that computes cannot be interrupted.

        Args:
            sig, frame: of the signal.
        """
        os._exit(EXIT_INTERRUPTED)


def make_server(app: Starlette) -> Server:
    """Make the HTTP server; `run(sockets=[…])` starts it.

    Args:
        app: the application.
    """
    return Server(
        uvicorn.Config(
            app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, server_header=False
        )
    )


def _render_page(models: Mapping[str, Model]) -> tuple[str, str]:
    """Render the page, and the value of its Content-Security-Policy, which allows only its own script."""
    script = viewer.script() + (PAGE_DIRECTORY / "page.js").read_text(encoding="utf-8")
    style = viewer.style() + (PAGE_DIRECTORY / "page.css").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE_DIRECTORY), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("page.html").render(
        script=Markup(script),
        style=Markup(style),
        options={
            "models": [
                {"name": name, "task": model.task, "num_slots": model.num_slots}
                for name, model in models.items()
            ],
            "languages": {
                task: {name: getattr(language, name) for name in ("boxes", "hint", "start", "sized")}
                for task, language in LANGUAGES.items()
            },
            "most_slots": MAX_SLOTS,
            "longest_random": LONGEST_RANDOM,
            "most_bytes": MAX_BYTES,
        },
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def _request_data(request: Request) -> dict[str, Any]:
    """Parse the JSON object of a request; forms and plain text, which other sites could send, are refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "expected the content type application/json")
    try:
        request_data = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400, "expected JSON") from None
    if not isinstance(request_data, dict):
        raise HTTPException(400, "expected a JSON object")
    return request_data


def _texts(request_data: Mapping[str, Any], model: Model) -> Texts:
    texts, count = request_data.get("texts"), len(model.language.boxes)
    if not isinstance(texts, list) or len(texts) != count or not all(isinstance(text, str) for text in texts):
        raise HTTPException(400, f"expected texts to be a list of {count}")
    return tuple(texts)


def _number(request_data: Mapping[str, Any], key: str, name: str) -> int | None:
    number = request_data.get(key)
    if isinstance(number, float):  # users may type one
        raise UserError(f"{name} must be a whole number, got {number:g}")
    if number is not None and type(number) is not int:
        raise HTTPException(400, f"expected {key} to be a number or null")
    return number


def _refuse(request: Request, error: Exception) -> Response:
    """Respond with an error message: `{"error": …}`."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, {**HEADERS, **(error.headers or {})})
    # Status 200 for a malformed text: a browser's console would report another status as a failure of the
    # page.
    return JSONResponse({"error": " ".join(str(error).split())}, headers=HEADERS)
