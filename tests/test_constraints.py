"""constraints.txt: what it pins can be installed wherever the project says that it runs."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0", "3.14.0"])
def test_packages_do_not_need_a_later_patch_release_of_python(python):
    needed = {}
    for name, pinned in re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE):
        try:
            installed = metadata(name)
        except PackageNotFoundError:  # this platform does not need it
            continue
        if Version(installed["Version"]) == Version(pinned):  # another release may need another Python
            needed[name] = installed.get("Requires-Python", "")
    assert len(needed) > 20
    assert {name: versions for name, versions in needed.items() if python not in SpecifierSet(versions)} == {}
