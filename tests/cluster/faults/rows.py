"""All rows, and the order in which they are run: what is cheap and likely first."""

from __future__ import annotations

from tests.cluster.faults import (
    disk_rows,
    network_rows,
    process_rows,
    resource_rows,
    shim_rows,
    storage_rows,
)
from tests.cluster.faults.process_rows import Row

ROWS: dict[int, Row] = {
    **process_rows.ROWS,
    **storage_rows.ROWS,
    **shim_rows.ROWS,
    **network_rows.ROWS,
    **disk_rows.ROWS,
    **resource_rows.ROWS,
}
ORDER = tuple(
    number
    for number in (
        1, 2, 3, 5, 6, 29, 7, 28, 16, 17, 18, 22, 13, 14, 15, 12, 4, 8, 9, 11, 25, 26, 27, 19, 20,
        21, 10,
    )
    if number in ROWS
)  # fmt: skip
