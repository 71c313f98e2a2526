"""What was run is data: the tables of docs/evidence.md are those of the ledgers beside it."""

from __future__ import annotations

import pytest

from tests.docs.ledgers import DOCS, PAGE, TABLES, read, renewed, shown


def test_the_tables_of_the_docs_are_those_of_the_ledgers() -> None:
    """`make ledger` renews them; none is forgotten."""
    page = PAGE.read_text(encoding="utf-8")

    assert renewed(page) == page
    assert sorted(shown(page)) == sorted(TABLES)


@pytest.mark.parametrize("name", sorted({ledger for ledger, _, _ in TABLES.values()}))
def test_each_row_of_a_ledger_says_when_or_at_which_commit(name: str) -> None:
    """A figure without either could not be compared with a later one."""
    for row in read(name):
        assert None not in row, f"{name}: more cells than columns: {row}"
        assert None not in row.values(), f"{name}: fewer cells than columns: {row}"
        assert row["day"] or row["commit"], f"{name}: {row}"


def test_every_ledger_is_named_on_the_page() -> None:
    """So that a reader finds the columns that the tables leave out."""
    page = PAGE.read_text(encoding="utf-8")

    assert [each.name for each in DOCS.glob("*.csv") if f"({each.name})" not in page] == []
