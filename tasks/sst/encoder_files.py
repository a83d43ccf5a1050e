"""Find the files of a Hugging Face encoder: in a directory, an installed package, or the Hub's cache."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.classifiers.downloads import cache_directory
from tasks.runs.errors import UserError
from tasks.runs.text_files import ZIP_ERRORS

FILES = ["*.json", "*.txt", "*.model", "model*.safetensors"]
"""The files of a model that are downloaded."""
ARCHIVE = "model.zip"
"""The file in a package that contains the encoder."""


def find_encoder(name: str) -> Path:
    """Find the directory of an encoder; a model on the Hub is downloaded unless it is in the Hub's cache.

    Args:
        name: a directory, an installed package that contains a model.zip, or a model on the Hub.
    Returns:
        The directory; its files are not checked.
    Raises:
        UserError: there is no such directory or package, and the Hub has no such model or cannot be reached.
    """
    if Path(name).is_dir():
        return Path(name)
    return _unpack_package(name) or _download(name)


def fingerprint(directory: Path, vocabulary: Mapping[str, int]) -> str:
    """Compute a hash of an encoder's configuration, vocabulary and weights; copies have the same hash.

    Args:
        directory: directory of the encoder.
        vocabulary: the id of each word piece.
    Returns:
        64 hexadecimal digits.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for key in ("_name_or_path", "transformers_version"):
        config.pop(key, None)
    digest = hashlib.sha256(json.dumps([config, vocabulary], sort_keys=True).encode())
    for path in sorted(directory.glob("model*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _unpack_package(name: str) -> Path | None:
    """Unpack an installed package's archive into the user's cache; None if there is no such package."""
    try:
        package = distribution(name)
    except (PackageNotFoundError, ValueError):
        return None
    archives = [file.locate() for file in package.files or () if file.name == ARCHIVE]
    if not archives:
        raise UserError(f"--encoder {name}: this package contains no {ARCHIVE}")
    directory = cache_directory("encoders") / f"{name}-{package.version}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=directory.parent) as scratch:
            unpacked = Path(scratch) / "unpacked"
            try:
                with zipfile.ZipFile(str(archives[0])) as archive:
                    archive.extractall(unpacked)
            except ZIP_ERRORS as error:
                reason = str(error) or type(error).__name__
                raise UserError(f"--encoder {name}: cannot unpack {archives[0]} ({reason})") from None
            try:
                unpacked.rename(directory)
            except OSError:
                if not directory.is_dir():  # else another process was faster
                    raise
    return directory


def _download(name: str) -> Path:
    """The directory of a model on the Hub; a cached version is used even if there is a newer one."""
    import huggingface_hub as hub

    failure: Exception
    for offline in (True, False):
        try:
            directory = Path(hub.snapshot_download(name, allow_patterns=FILES, local_files_only=offline))
        except hub.errors.HFValidationError:
            raise UserError(f"--encoder {name}: there is no such directory") from None
        except OSError as error:
            failure = error
        else:
            if not offline or _has_weights(directory):
                return directory
    reason = " ".join(str(failure).split())
    raise UserError(
        f"--encoder {name}: no such directory or installed package, and not available on the Hugging Face "
        f"Hub ({reason})"
    )


def _has_weights(directory: Path) -> bool:
    """Whether the files of the weights are all there; not so if a download was interrupted."""
    parts = [path.stem for path in directory.glob("model-*-of-*.safetensors")]
    one_file = directory / "model.safetensors"
    return one_file.exists() or any(part.endswith(f"-of-{len(parts):05}") for part in parts)
