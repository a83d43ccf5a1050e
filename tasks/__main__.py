"""`python -m tasks` lists the tasks."""

import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import tasks


def main(words: Sequence[str]) -> None:
    """Print every task with the first line of its docstring.

    Args:
        words: the command line; any other than `--help` is a mistake.
    """
    packages = [f"tasks.{module.name}" for module in pkgutil.iter_modules(tasks.__path__) if module.ispkg]
    runnable = [name for name in packages if find_spec(f"{name}.__main__") is not None]
    if words and words[0] not in ("-h", "--help"):
        meant = f"tasks.{words[0]}"
        hint = f"did you mean python -m {meant}?" if meant in runnable else "python -m tasks lists the tasks"
        print(f"python -m tasks: error: unexpected argument {words[0]!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    width = max(map(len, runnable))
    print(
        "usage: python -m TASK [SUBCOMMAND] [OPTIONS]; python -m TASK --help shows subcommands and options\n"
    )
    for name in runnable:
        sentence = (import_module(name).__doc__ or "").partition("\n")[0]
        print(f"  {name:<{width}}  {sentence}")


if __name__ == "__main__":
    main(sys.argv[1:])
