"""Compiles the C of the backends into the wheel, so that its users need no compiler."""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGES = ["ordered_memory", "onlstm", "tasks"]
SOURCES = ["ordered_memory/backends/native/recurrence.c", "onlstm/backends/native/recurrence.c"]


class BuildWithC(build_py):
    """Compiles what it has copied. What cannot be compiled is left to the machine that needs it."""

    def run(self):
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        is_source = built.resolve() == Path(__file__).resolve().parent
        for package in PACKAGES if not is_source else []:
            shutil.rmtree(built / package, ignore_errors=True)  # what an earlier build has left
        super().run()
        compiler = runpy.run_path(str(built / "ordered_memory/backends/runtime/compiler.py"))
        for source in SOURCES:
            for failure in compiler["compile_ahead"](built / source):
                self.warn(f"left out of the wheel: {failure}")


class PlatformWheel(bdist_wheel):
    """A wheel with compiled files is for one platform, but for every version of Python: ctypes loads them."""

    def get_tag(self):
        self.root_is_pure = not any(Path(self.bdist_dir).rglob("*.so"))
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithC, "bdist_wheel": PlatformWheel})
