"""`python -m tasks.reproduce TABLE --option value`; without TABLE, it lists the tables."""

import sys
from dataclasses import make_dataclass
from functools import partial

from tasks.reproduce.commands import TABLES, ListConfig, run_list, run_table
from tasks.reproduce.config import ReproduceConfig
from tasks.runs.command_line import Verb, run

VERBS = {
    "list": Verb(ListConfig, run_list),
    **{
        name: Verb(
            make_dataclass("TableConfig", [], bases=(ReproduceConfig,), namespace={"__doc__": table.title}),
            partial(run_table, name),
        )
        for name, table in TABLES.items()
    },
}

main = partial(run, "tasks.reproduce", VERBS)

if __name__ == "__main__":
    sys.exit(main())
