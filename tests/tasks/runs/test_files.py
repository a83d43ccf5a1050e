"""Files are written whole or not at all, and nothing else is touched."""

import errno
import fcntl
import json
import os
import re
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.runs.command_options import PredictionsConfig, json_line
from tasks.runs.errors import UserError
from tasks.runs.files import (
    atomic_path,
    check_output_files,
    check_writable_directory,
    check_writable_file,
    remove_leftovers,
    write_atomically,
)


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def interrupted():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_it_replaces_what_was_there(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def recording(*arguments, name=name, original=original):
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(os, name, recording)
    write_atomically(tmp_path / "file", "content")
    assert calls == ["fsync", "replace", "fsync"]  # the last one is of the directory


def test_a_write_leaves_no_file_open(tmp_path):
    leftover(tmp_path)
    before = len(os.listdir("/dev/fd"))
    write_atomically(tmp_path / "file", "content")
    assert len(os.listdir("/dev/fd")) == before


def test_what_cannot_be_written_is_told_before_anything_takes_its_time(tmp_path, monkeypatch):
    for path in (None, tmp_path / "new.json", Path("/dev/stdout")):
        check_writable_file("--json", path)
    with pytest.raises(UserError, match=f"^--json {tmp_path}: is a directory$"):
        check_writable_file("--json", tmp_path)
    with pytest.raises(UserError, match=f"^--json {tmp_path}/a/b: there is no directory {tmp_path}/a$"):
        check_writable_file("--json", tmp_path / "a" / "b")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match="no permission to write"):
        check_writable_file("--json", Path("new.json"))


def test_a_file_is_replaced_only_where_another_may_be_made(tmp_path, monkeypatch):
    kept, sealed, link, broken = (tmp_path / name for name in ("kept", "sealed", "link", "broken"))
    sealed.touch()
    kept.mkdir()
    (kept / "file").touch()
    link.symlink_to(kept / "file")
    broken.symlink_to(tmp_path / "none" / "file")
    os.mkfifo(kept / "pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in (kept, sealed))
    for path in (kept / "file", kept / "new", link, sealed):
        with pytest.raises(UserError, match=f"^--json {path}: no permission to write$"):
            check_writable_file("--json", path)
    with pytest.raises(UserError, match=f"^--json {broken}: there is no directory {tmp_path}/none$"):
        check_writable_file("--json", broken)
    check_writable_file("--json", kept / "pipe")  # which is not replaced


def test_a_directory_may_be_new_if_its_parent_can_be_written(tmp_path, monkeypatch):
    refused = {"sealed": os.W_OK, "unsearchable": os.X_OK}
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & refused.get(Path(path).name, 0))
    for path in (tmp_path, tmp_path / "a" / "b", Path("new")):
        check_writable_directory("--directory", path)
    for name in refused:
        (tmp_path / name).mkdir()
        for path in (tmp_path / name, tmp_path / name / "a" / "b"):
            with pytest.raises(UserError, match=f"^--directory {tmp_path}/{name}: no permission to write$"):
                check_writable_directory("--directory", path)
    with pytest.raises(UserError, match=f"^--directory {tmp_path}/file: is not a directory$"):
        check_writable_directory("--directory", tmp_path / "file")


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")

    def refusing(path, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refusing)
    for path in (tmp_path / "file", link):
        with pytest.raises(PermissionError) as raised:
            write_atomically(path, "content")
        assert raised.value.filename == str(path)


def test_two_outputs_may_be_the_same_open_file():
    check_output_files(PredictionsConfig(json=Path("/dev/stdout"), predictions=Path("/dev/stdout")))


def test_no_output_is_in_a_directory_of_data(tmp_path):
    for name in ("data_dir", "pairs", "treebank"):
        for path in (tmp_path / "out.jsonl", tmp_path / "more" / ".." / "out.jsonl"):
            with pytest.raises(UserError, match=f"^--predictions {path}: would be read as data by --"):
                check_output_files(SimpleNamespace(predictions=path, **{name: tmp_path}))
        check_output_files(SimpleNamespace(predictions=tmp_path / "more" / "out.jsonl", **{name: tmp_path}))
    check_output_files(SimpleNamespace(json=tmp_path / "out.json", checkpoint=tmp_path))
    check_output_files(SimpleNamespace(checkpoint=tmp_path / "best.safetensors", data_dir=tmp_path))


def test_a_row_with_the_name_of_a_file_that_is_not_utf_8_can_be_written_and_read():
    row = {"where": "b\udcff.mrg", "words": ["naïve"]}
    assert json.loads(json_line(row).encode()) == row
    assert "naïve" in json_line({"words": ["naïve"]})


def leftover(directory, name=".file.0123456789abcdef.part"):
    path = directory / name
    path.write_text("half")
    return path


def test_a_temporary_file_that_another_process_is_about_to_remove_is_not_used(tmp_path):
    opened, taken = os.open, []

    def taking(path, *arguments):
        descriptor = opened(path, *arguments)
        if not taken:  # the other process has found it, and locked it first
            taken.append((path, opened(path, os.O_RDONLY)))
            fcntl.flock(taken[0][1], fcntl.LOCK_EX)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", taking)
        with atomic_path(tmp_path / "file") as temporary:
            ((path, descriptor),) = taken
            with temporary.open("w") as file:
                file.write("content")
                path.unlink()
                os.close(descriptor)
    assert (tmp_path / "file").read_text() == "content"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    write_atomically(path, "content")
    reader.join()
    assert received == [b"content"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_a_device(tmp_path):
    controller, terminal = os.openpty()  # one that nothing can rename
    device, link = Path(os.ttyname(terminal)), tmp_path / "link"
    link.symlink_to(device)
    for path in (device, link):
        write_atomically(path, "content")
        assert os.read(controller, 100) == b"content"
        assert stat.S_ISCHR(device.stat().st_mode)
    assert link.is_symlink()
    assert list(tmp_path.iterdir()) == [link]
    os.close(controller)
    os.close(terminal)


@pytest.mark.parametrize("directory", [one for one in ("/dev/fd", "/proc/self/fd") if Path(one).exists()])
def test_what_stands_behind_an_open_file_is_not_replaced(tmp_path, directory):
    with (tmp_path / "out").open("w") as file:
        write_atomically(Path(directory, str(file.fileno())), "content")
        assert os.fstat(file.fileno()).st_ino == (tmp_path / "out").stat().st_ino
    assert (tmp_path / "out").read_text() == "content"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link_and_leads_to_the_new_content(tmp_path, exists):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to(Path("there", "file"))
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [link, target.parent]
    assert list(target.parent.iterdir()) == [target]


def test_the_mode_of_a_file_is_kept_and_that_of_a_new_one_is_the_usual(tmp_path):
    path, plain = tmp_path / "file", tmp_path / "plain"
    plain.write_text("")
    write_atomically(path, "old")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_under_a_guessed_temporary_name_is_not_followed(tmp_path, monkeypatch):
    names = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr("tasks.runs.files.secrets.token_hex", lambda _: next(names))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".file.0000000000000000.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", "content")
    assert victim.read_text() == "precious"


def test_leftovers_of_the_dead_go_and_files_of_the_living_stay(tmp_path):
    foreign = tmp_path / ".file.notes.part"
    foreign.write_text("somebody's")
    leftover(tmp_path)
    with atomic_path(tmp_path / "other") as living:
        living.write_text("half")
        assert sorted(tmp_path.iterdir()) == sorted([living, foreign])
        leftover(tmp_path)
        remove_leftovers(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([living, foreign])
    leftover(tmp_path, living.name)  # as if the process had been killed
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([foreign, tmp_path / "other"])


def test_a_file_whose_name_only_begins_like_that_of_a_leftover_stays(tmp_path):
    other = leftover(tmp_path, ".file.0123456789abcdef.part.txt")
    remove_leftovers(tmp_path)
    assert other.exists()


def test_a_temporary_file_taken_for_a_leftover_before_it_is_locked(tmp_path, monkeypatch):
    flock, calls = fcntl.flock, 0

    def late(descriptor, operation):
        nonlocal calls
        calls += 1
        if calls == 1:
            for path in tmp_path.iterdir():
                path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr("tasks.runs.files.fcntl.flock", late)
    write_atomically(tmp_path / "file", "content")
    assert calls == 2
    assert (tmp_path / "file").read_text() == "content"


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fill():
        with atomic_path(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    for path in (tmp_path / "nowhere" / "file", tmp_path):
        with pytest.raises(OSError, match=r"directory") as caught:
            write_atomically(path, "content")
        assert caught.value.filename in (str(path), path)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "other"), OSError("not an image")], ids=str
)
def test_an_error_that_is_not_about_the_file_stays_as_it_is(tmp_path, error):
    with pytest.raises(OSError, match=f"^{re.escape(str(error))}$"), atomic_path(tmp_path / "file"):
        raise error


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("é" * 127)
    write_atomically(path, "content")
    assert path.read_text() == "content"


def test_an_error_of_a_pipe_names_it(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def write():
        with atomic_path(path) as target, open(target, "wb") as file:
            os.close(reader)
            file.write(b"x")

    with pytest.raises(BrokenPipeError) as caught:
        write()
    assert caught.value.filename == str(path)
