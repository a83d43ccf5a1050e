"""Where the files of an encoder are found: in a package, a directory, the cache of the Hub; no network."""

import shutil
import zipfile
import zlib

import pytest

from tasks.runs.errors import UserError
from tasks.sst.contextual import ContextualEmbedding
from tasks.sst.encoder_files import find_encoder
from tests.tasks.sst.tiny_encoder import import_transformers

import_transformers()
pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("name", ["nobody/no-such-encoder", "no-such-encoder"])
def test_a_name_that_is_nowhere_is_refused_without_a_network(name):
    with pytest.raises(
        UserError,
        match=f"--encoder {name}: no such directory or installed package, and not available on the Hug",
    ):
        ContextualEmbedding(name)


@pytest.mark.parametrize("names", [["model"], ["model-00001-of-00002", "model-00002-of-00002"]])
def test_a_download_that_was_interrupted_is_continued(names, tmp_path, monkeypatch):
    """The Hub's cache has files of it, and is asked first."""
    files = [tmp_path / "config.json", *(tmp_path / f"{name}.safetensors" for name in names)]
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only):
        asked.append(local_files_only)
        for path in [] if local_files_only else files:
            path.touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    for path in files[:-1]:
        path.touch()
    assert find_encoder("owner/name") == tmp_path
    assert files[-1].exists()
    assert find_encoder("owner/name") == tmp_path
    assert asked == [True, False, True]


@pytest.mark.parametrize("name", ["a/b/c", "a\0b"])
def test_a_name_that_no_package_and_no_model_can_have_is_that_of_a_directory(name):
    with pytest.raises(UserError, match=f"--encoder {name}: there is no such directory"):
        find_encoder(name)


def test_a_package_without_an_encoder_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"--encoder pytest: this package contains no model\.zip"):
        ContextualEmbedding("pytest")
    about = tmp_path / "unlisted-1.0.dist-info"  # it does not list its files
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: unlisted\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"--encoder unlisted: this package contains no model\.zip"):
        find_encoder("unlisted")


def test_an_installed_package_with_an_archive_is_unpacked_once(encoder_directory, tmp_path, monkeypatch):
    site, cache = tmp_path / "site", tmp_path / "cache"
    (site / "tiny").mkdir(parents=True)
    with zipfile.ZipFile(site / "tiny" / "model.zip", "w") as archive:
        for path in encoder_directory.iterdir():
            archive.write(path, path.name)
    about = site / "tiny_encoder-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-encoder\nVersion: 1.0\n")
    (about / "RECORD").write_text("tiny/model.zip,,\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr("pooch.os_cache", lambda _: cache)
    found = find_encoder("tiny-encoder")
    assert found.is_relative_to(cache)
    assert (
        ContextualEmbedding(str(found)).fingerprint == ContextualEmbedding(str(encoder_directory)).fingerprint
    )
    (site / "tiny" / "model.zip").write_bytes(b"not looked at again")
    assert find_encoder("tiny-encoder") == found
    shutil.rmtree(cache)
    with zipfile.ZipFile(site / "tiny" / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
    whole = (site / "tiny" / "model.zip").read_bytes()
    damaged = whole.replace(zlib.compress(b"{}")[2:-4], b"\xff\xff\xff\xff")  # no block of deflate
    for content in (b"not looked at again", whole[:-30], damaged):
        assert content != whole
        (site / "tiny" / "model.zip").write_bytes(content)
        with pytest.raises(UserError, match="cannot unpack"):
            find_encoder("tiny-encoder")
        assert not any((cache / "encoders").iterdir())
