"""The subcommand of the explorer: serve."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tasks.runs.command_line import Subcommand, run
from tasks.runs.errors import UserError

HOST = "127.0.0.1"


@dataclass
class ServeConfig:
    """Serve a local web page in which trained models read what you type; Ctrl-C stops it."""

    checkpoint: tuple[Path, ...] = ()
    """Further models of any task: a run's best.safetensors, a directory that `export` wrote, or the name of a
    model on the Hugging Face Hub. The models that come with the project are always there."""
    port: int = 0
    """Local port; 0 for any free port."""


def _serve(config: ServeConfig) -> None:
    try:
        from tasks.explore.models import load_models
        from tasks.explore.server import make_app, make_server
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in ("starlette", "uvicorn"):
            raise
        raise UserError(f"the page needs {name}: pip install '.[explore]'") from None
    with _listen(config.port) as listener:
        server = make_server(make_app(load_models(config.checkpoint)))
        print(f"http://{HOST}:{listener.getsockname()[1]}/ (Ctrl-C to stop)", flush=True)
        server.run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise UserError(f"--port must lie in 0..{2**16 - 1}, got {port}")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UserError(f"--port {port}: {os.strerror(error.errno or 0)}") from None


SUBCOMMANDS = {"serve": Subcommand(ServeConfig, _serve)}

main = partial(run, "tasks.explore", SUBCOMMANDS)
