# SPDX-License-Identifier: Apache-2.0
"""What a drawing shows: a column for each server, a cell for each robot, the loads."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from robion_ros.commands.plan_svg import draw_plan

SVG = '{http://www.w3.org/2000/svg}'
PLAN = {
    'servers': {'gpu_0': {'load': '3/4', 'robots': {'pick': ['a', 'b', 'c'], 'place': []}},
                'gpu_1': {'load': '1', 'robots': {'place': [f'r{n}' for n in range(20)]}}},
    'unserved': {}, 'objective': 0, 'optimal': True, 'bound': 0}


def draw(**changes: object) -> ElementTree.Element:
    return ElementTree.fromstring(draw_plan({**PLAN, **changes}))


def cells(picture: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """Return the robots' cells by their names and models."""
    return {cell.find(f'{SVG}title').text: cell for cell in picture.iter(f'{SVG}rect')
            if cell.get('class') == 'cell'}


def test_robots_are_cells_in_the_colours_of_their_models() -> None:
    found = cells(draw())
    assert len(found) == 23
    assert len({cell.get('fill') for cell in found.values()}) == 2
    assert found['a: pick'].get('fill') == found['c: pick'].get('fill')
    places = Counter((cell.get('x'), cell.get('y')) for cell in found.values())
    assert set(places.values()) == {1}


def test_loads_are_bars() -> None:
    bars = {bar.find(f'{SVG}title').text: float(bar.get('width'))
            for bar in draw().iter(f'{SVG}rect') if bar.get('class') == 'load'}
    assert bars['load 3/4'] == pytest.approx(0.75 * bars['load 1'], abs=0.1)


def test_robots_that_are_not_served_have_a_column() -> None:
    texts = [text.text for text in draw(unserved={'pick': ['x', 'y']}).iter(f'{SVG}text')]
    assert 'not served' in texts and 'pick (5)' in texts
    assert 'x: pick' in cells(draw(unserved={'pick': ['x', 'y']}))


def test_everything_is_inside_of_the_picture() -> None:
    servers = {f'a_server_with_a_long_name_{n}': {'load': '1/2', 'robots': {
        f'model_with_a_long_name_{n}': [f'{n}_{k}' for k in range(n)]}} for n in range(40)}
    picture = draw(servers=servers)
    width, height = float(picture.get('width')), float(picture.get('height'))
    for part in [*picture.iter(f'{SVG}rect')][1:]:
        assert float(part.get('x')) + float(part.get('width')) <= width
        assert float(part.get('y')) + float(part.get('height')) <= height
    assert len(cells(picture)) == sum(range(40))


def test_factory_without_robots_is_drawn() -> None:
    assert not cells(draw(servers={'gpu_0': {'load': '0', 'robots': {'pick': []}}}))
