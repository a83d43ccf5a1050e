"""All tables, by their names on the command line."""

from __future__ import annotations

from tasks.reproduce import onlstm_tables, ordered_memory_tables
from tasks.reproduce.layout import Table

TABLES: dict[str, Table] = {**ordered_memory_tables.TABLES, **onlstm_tables.TABLES}
