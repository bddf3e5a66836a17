"""Rows as lines of text whose columns stand below one another."""

from collections.abc import Collection, Iterator, Sequence

from jobs.console import printable


def text_table(
    cells: Sequence[Sequence[str]], right: Collection[int] = (), indent: str = ""
) -> Iterator[str]:
    """A line a row; cells[0] is the head. right: indexes of the columns that end together."""
    if not cells:
        return
    rows = [[printable(cell) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        parts = (
            text.rjust(width) if at in right else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield indent + "  ".join(parts).rstrip()
