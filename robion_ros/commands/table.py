# SPDX-License-Identifier: Apache-2.0
"""
Text in columns.

Knows nothing of what the columns mean.
"""

from collections.abc import Iterable, Sequence

GAP = '  '


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table; columns of numbers are aligned on the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    lines = [list(header), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [bool(cells) and all(row[column][:1].isdigit() or row[column] in ('', '-')
                                 for row in cells) for column in range(len(header))]
    return [GAP.join(cell.rjust(width) if number else cell.ljust(width)
                     for cell, width, number in zip(line, widths, right, strict=True)).rstrip()
            for line in lines]
