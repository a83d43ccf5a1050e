"""The official treebank, fetched."""

import zipfile

import pooch
import pytest

from tasks.runs.errors import UserError
from tasks.sst import download
from tasks.sst.treebank import FILES
from tests.served import served


def test_the_archive_is_fetched_once_and_checked(tmp_path, monkeypatch):
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    with zipfile.ZipFile(home / "trees.zip", "w") as archive:
        for name in FILES:
            archive.writestr(f"trees/{name}", f"(2 {name})\n")
    monkeypatch.setattr(download, "CHECKSUM", f"sha256:{pooch.file_hash(str(home / 'trees.zip'))}")
    with served(home) as url:
        monkeypatch.setattr(download, "URL", f"{url}trees.zip")
        monkeypatch.setattr(download, "cache_directory", lambda name: cache)
        assert download.fetch() == cache
        (home / "trees.zip").write_text("tampered")
        (cache / "dev.txt").write_text("changed")
        download.fetch()
        assert {name: (cache / name).read_text() for name in FILES} == {
            name: f"(2 {name})\n" for name in FILES
        }
        monkeypatch.setattr(download, "cache_directory", lambda name: tmp_path / "other")
        with pytest.raises(UserError, match=r"cannot download .*trees\.zip .*--data-dir"):
            download.fetch()
    instead = r"use --data-dir .* train\.txt, dev\.txt, test\.txt, or --generated"
    with pytest.raises(UserError, match=instead):
        download.fetch()
