# SPDX-License-Identifier: Apache-2.0
"""
A plan as a picture (SVG): servers as columns, robots as cells in their models' colours.

Draws what plan.describe returns. Knows neither how it was found nor what it is drawn for.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import Any

from robion_ros.words import count

CELL = 14
"""Edge of a robot's cell, with the gap to the next; px."""
ACROSS = 7
"""Cells in a row."""
COLUMN = ACROSS * CELL + 22
BAR = 10
"""Height of the bar that shows the load."""
MARGIN = 20
LINE = 18
"""Height of a line of text."""
GOLDEN = 137.508
"""Degrees between the hues of models: any number of them stays apart."""
LETTER = 7.0
"""Width of a letter, more than most have; px."""
STYLE = ('text{font:12px sans-serif;fill:#222}.small{font-size:10px}'
         '.frame{fill:none;stroke:#999}.load{fill:#555}.cell{stroke:#fff}')


def draw_plan(described: Mapping[str, Any]) -> str:
    """Return the text of an SVG file; hovering over a cell shows the robot."""
    columns = {name: server['robots'] for name, server in described['servers'].items()}
    if described['unserved']:
        columns['not served'] = described['unserved']
    models = list(dict.fromkeys(model for robots in columns.values() for model in robots))
    colours = {model: f'hsl({index * GOLDEN % 360:.0f},60%,{(48, 66, 34)[index % 3]}%)'
               for index, model in enumerate(models)}
    sizes = {model: sum(len(robots.get(model, ())) for robots in columns.values())
             for model in models}
    deepest = max(-(-sum(map(len, robots.values())) // ACROSS) for robots in columns.values())
    top = MARGIN + 2 * LINE + BAR + 8
    entries = [max(len(f'{model} ({sizes[model]})') * LETTER + CELL + 12, COLUMN)
               for model in models]
    width = max(2 * MARGIN + COLUMN * len(columns), 2 * MARGIN + max(entries, default=0), 420)
    legend, height = _place_legend(entries, width, top + deepest * CELL + LINE)
    quality = 'optimal' if described['optimal'] else f'at least {described["bound"]}'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f'<style>{STYLE}</style>', '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{MARGIN}" y="{MARGIN}">{count(sum(sizes.values()), "robot")}, '
        f'{count(len(described["servers"]), "server")}, objective {described["objective"]} '
        f'({quality})</text>']
    for index, (name, robots) in enumerate(columns.items()):
        server = described['servers'].get(name)
        lines += _draw_column(MARGIN + index * COLUMN, top, name, robots, colours,
                              Fraction(server['load']) if server else None)
    for model, (x, y) in zip(models, legend, strict=True):
        lines.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{CELL - 2}" height="{CELL - 2}" '
                     f'fill="{colours[model]}"/>')
        lines.append(f'<text x="{x + CELL + 2:.0f}" y="{y + CELL - 4:.0f}">{escape(model)} '
                     f'({sizes[model]})</text>')
    return '\n'.join([*lines, '</svg>', ''])


def _place_legend(entries: Sequence[float], width: float,
                  y: float) -> tuple[list[tuple[float, float]], float]:
    """Return where each entry of the legend goes, line by line, and where it all ends."""
    places, x = [], float(MARGIN)
    for entry in entries:
        if x > MARGIN and x + entry > width - MARGIN:
            x, y = float(MARGIN), y + LINE
        places.append((x, y))
        x += entry
    return places, y + LINE + MARGIN


def _draw_column(x: float, top: float, name: str, robots: Mapping[str, Sequence[str]],
                 colours: Mapping[str, str], load: Fraction | None) -> Iterator[str]:
    """Yield a server: its name, its load as a bar and, below, its robots."""
    wide, bar = ACROSS * CELL - 2, top - BAR - 6
    fits = int((wide - (30 if load is not None else 0)) / LETTER)
    shown = name if len(name) <= fits else f'{name[:fits - 1]}…'
    yield (f'<text x="{x:.0f}" y="{bar - 5:.0f}">{escape(shown)}<title>{escape(name)}</title>'
           '</text>')
    if load is not None:
        yield (f'<rect class="load" x="{x:.0f}" y="{bar:.0f}" width="{float(wide * load):.1f}" '
               f'height="{BAR}"><title>load {load}</title></rect>')
        yield f'<rect class="frame" x="{x:.0f}" y="{bar:.0f}" width="{wide}" height="{BAR}"/>'
        yield (f'<text class="small" x="{x + wide:.0f}" y="{bar - 5:.0f}" text-anchor="end">'
               f'{float(load):.0%}</text>')
    cells = [(model, robot) for model, names in robots.items() for robot in names]
    for index, (model, robot) in enumerate(cells):
        yield (f'<rect class="cell" x="{x + index % ACROSS * CELL:.0f}" '
               f'y="{top + index // ACROSS * CELL:.0f}" width="{CELL}" height="{CELL}" '
               f'fill="{colours[model]}"><title>{escape(robot)}: {escape(model)}</title></rect>')
