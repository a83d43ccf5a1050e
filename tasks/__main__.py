"""`python -m tasks` lists the tasks."""

import pkgutil
from importlib import import_module
from importlib.util import find_spec

import tasks


def main() -> None:
    """Print every task with the first line of its docstring."""
    packages = [f"tasks.{module.name}" for module in pkgutil.iter_modules(tasks.__path__) if module.ispkg]
    runnable = [name for name in packages if find_spec(f"{name}.__main__") is not None]
    width = max(map(len, runnable))
    print("usage: python -m TASK [VERB] [OPTIONS]; python -m TASK --help shows verbs, options and examples\n")
    for name in runnable:
        sentence = (import_module(name).__doc__ or "").partition("\n")[0]
        print(f"  {name:<{width}}  {sentence}")


if __name__ == "__main__":
    main()
