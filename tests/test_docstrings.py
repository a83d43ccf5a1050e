"""Every public function and method documents its parameters."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("ordered_memory", "onlstm", "tasks")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BY_CONVENTION = ("self", "cls", "ctx")
REFERENCE = re.compile(r"(?:^|; )[Ss]ee\s+`([\w.]+)`", re.MULTILINE)


class Function(NamedTuple):
    """A function or method of the project."""

    file: str
    line: int
    name: str
    class_name: str | None
    parameters: list[str]
    docstring: str | None
    is_public: bool

    @property
    def full_name(self) -> str:
        return f"{self.class_name}.{self.name}" if self.class_name else self.name

    @property
    def path(self) -> str:
        """Dotted path from the package."""
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"{module}.{self.full_name}"


class Project(NamedTuple):
    """All functions, and of each class the names of its bases and of what it defines."""

    functions: list[Function]
    bases: dict[str, set[str]]
    members: dict[str, set[str]]

    def documented(self, function: Function) -> bool:
        """Whether a function documents its parameters, itself or where it refers to."""
        if not undocumented(function):
            return True
        documented = {entry.path for entry in self.functions if not undocumented(entry)}
        references = REFERENCE.findall(function.docstring or "")
        if any(f".{path}".endswith(f".{name}") for path in documented for name in references):
            return True
        inherited = [f".{base}.{function.name}" for base in self.ancestors(function.class_name)]
        return any(path.endswith(name) for path in documented for name in inherited)

    def ancestors(self, class_name: str | None) -> set[str]:
        """Names of all bases of a class, and of the protocols whose members it has."""
        if class_name is None:
            return set()
        found: set[str] = set()
        waiting = [class_name]
        while waiting:
            for base in self.bases.get(waiting.pop(), set()) - found:
                found.add(base)
                waiting.append(base)
        members = set().union(*(self.members.get(name, set()) for name in (class_name, *found)))
        protocols = {name for name, bases in self.bases.items() if "Protocol" in bases}
        return found | {name for name in protocols if self.members[name] <= members}


def undocumented(function: Function) -> list[str]:
    """Parameters that a function's own `Args:` section does not name."""
    sections = re.split(r"^Args:\n", inspect.cleandoc(function.docstring or ""), flags=re.MULTILINE)
    if len(sections) != 2:
        return function.parameters
    (section,) = re.findall(r"\A(?:(?:    .*)?\n)*(?:    .*)?", sections[1])
    lines = re.findall(r"^    ((?:\*{0,2}\w+(?:, )?)+)(?: \(.*?\))?:", section, re.MULTILINE)
    named = {name.strip().lstrip("*") for line in lines for name in line.split(",")}
    return [name for name in function.parameters if name not in named]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Names of the parameters of a definition that a caller passes."""
    spec = node.args
    given = [*spec.posonlyargs, *spec.args, spec.vararg, *spec.kwonlyargs, spec.kwarg]
    names = [entry.arg for entry in given if entry is not None]
    return [name for name in names if name not in BY_CONVENTION and not name.startswith("_")]


def read(path: Path, bases: dict[str, set[str]], members: dict[str, set[str]]) -> Iterator[Function]:
    """The functions and methods of a file; fills in the bases and members of its classes."""
    file = str(path.relative_to(ROOT))

    def entries(body: list[ast.stmt], class_name: str | None) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                names = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
                bases.setdefault(node.name, set()).update(names)
                defined = (entry.name for entry in node.body if isinstance(entry, FUNCTIONS))
                members.setdefault(node.name, set()).update(defined)
                yield from entries(node.body, node.name)
            elif isinstance(node, FUNCTIONS):
                yield Function(
                    file=file,
                    line=node.lineno,
                    name=node.name,
                    class_name=class_name,
                    parameters=parameters_of(node),
                    docstring=ast.get_docstring(node),
                    is_public=not any(name.startswith("_") for name in (node.name, class_name or "")),
                )

    yield from entries(ast.parse(path.read_text(encoding="utf-8")).body, None)


def make_project() -> Project:
    """The project as it stands."""
    bases: dict[str, set[str]] = {}
    members: dict[str, set[str]] = {}
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return Project([entry for path in paths for entry in read(path, bases, members)], bases, members)


@pytest.fixture(scope="module")
def project() -> Project:
    return make_project()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_documents_its_parameters(project: Project, package: str) -> None:
    missing = [
        f"{entry.file}:{entry.line}: {entry.full_name}({', '.join(undocumented(entry))})"
        for entry in project.functions
        if entry.file.startswith(package + "/")
        if entry.is_public and not project.documented(entry)
    ]

    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("docstring", "missing"),
    [
        (None, ["x", "y"]),
        ("Add x and y.", ["x", "y"]),
        ("Add.\n\nArgs:\n    x: a number.\nReturns:\n    y: the sum.", ["y"]),
        ("Add.\n\nArgs:\n    x: a number, and\n        y: the same.", ["y"]),
        ("Add.\n\nArgs:\n    x, *y: numbers.", []),
    ],
)
def test_only_entries_of_the_section_count(docstring: str | None, missing: list[str]) -> None:
    function = Function("a.py", 1, "add", None, ["x", "y"], docstring, is_public=True)

    assert undocumented(function) == missing
