"""constraints.txt: what it pins can be installed wherever the project says that it runs."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0", "3.14.0"])
def test_packages_do_not_need_a_later_patch_release_of_python(python):
    needed = {}
    for name in re.findall(r"^([\w.-]+)==", CONSTRAINTS.read_text(), re.MULTILINE):
        try:
            needed[name] = metadata(name).get("Requires-Python", "")
        except PackageNotFoundError:  # this platform does not need it
            continue
    assert len(needed) > 20
    assert {name: versions for name, versions in needed.items() if python not in SpecifierSet(versions)} == {}
