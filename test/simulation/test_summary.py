# SPDX-License-Identifier: Apache-2.0
"""What a run is described as, in figures and in tables."""

import json
from typing import Any

import pytest

from robion_ros.bench.settings import Traffic
from robion_ros.simulation.events import Change, Kill
from robion_ros.simulation.factory import Factory
from robion_ros.simulation.scenario import Scenario
from robion_ros.simulation.summary import describe
from robion_ros.simulation.tables import model_table, plan_table, server_table


def described(kit, factory=None, **changes: Any) -> dict[str, Any]:
    scenario = Scenario(factory or kit.make_factory(), kit.make_times(), Traffic(
        epochs=1, seconds=10.0, lead=1.0), planning=0.25, **changes)
    found = describe(scenario, Factory(scenario).run())
    assert json.loads(json.dumps(found, allow_nan=False)) == found, 'JSON holds all of it'
    return found


@pytest.fixture(scope='module')
def eventful(kit) -> dict[str, Any]:
    return described(kit, kills=[Kill('server_0', 3.0, 6.0)], changes=[Change('pick', 7, 8.0)])


def test_figures_add_up(eventful) -> None:
    whole = eventful['all']
    assert whole['sent'] == sum(row['sent'] for row in eventful['rows']) == sum(
        model['sent'] for model in eventful['models'].values()) == len(
        eventful['requests']['robot'])
    assert whole['met'] == sum(row['met'] for row in eventful['rows'])
    assert 0 < whole['homeless'] <= whole['unanswered'] == whole['sent'] - whole['answered']
    assert set(eventful['requests']['ending']) == {'answered', 'unanswered'}


def test_seconds_show_what_happened_in_them(eventful) -> None:
    rows = eventful['rows']
    assert [row['second'] for row in rows] == list(range(10))
    assert [row['unserved'] for row in rows] == [0, 0, 0, 4, 0, 0, 0, 0, 3, 0]
    assert [row['robots'] for row in rows] == [8] * 8 + [11] * 2
    assert rows[3]['attainment'] < 1.0 == rows[2]['attainment'] == rows[5]['attainment']


def test_plans_count_from_where_requests_do(eventful) -> None:
    start, died, back, more = eventful['results']
    assert (start['caused'], start['took']) == (-1.0, 0.0)
    assert (died['caused'], died['asked'], died['in_force']) == (3.0, 3.4, 3.65)
    assert died['took'] == 0.65 and died['placed'] == 4
    assert back['why'] == ['server_0 came back'] and more['robots'] == 11
    assert all(plan['gap'] == 0.0 and plan['optimal'] for plan in eventful['results'])


def test_every_life_of_a_server_is_described(eventful) -> None:
    one, other = eventful['servers']['server_0']
    assert (one['from'], one['until']) == (-1.0, 3.0)
    assert (other['from'], other['until']) == (6.0, None)
    (steady,) = eventful['servers']['server_1']
    assert 0 < steady['occupancy'] < 1 and 0 <= steady['paired'] <= steady['occupancy']
    assert steady['load'] == round(sum(steady['robots'].values()) / 20, 4)
    assert 1.0 <= steady['batch'] <= 2.0


def test_tables_name_models_servers_and_plans(eventful) -> None:
    header, rows = model_table(eventful)
    assert [row[0] for row in rows] == ['pick', 'place'] and len(rows[0]) == len(header)
    header, rows = server_table(eventful)
    assert [row[0] for row in rows] == ['server_0', 'server_0', 'server_1']
    assert rows[0][1:3] == ['-1', '3'] and len(rows[0]) == len(header)
    header, rows = plan_table(eventful)
    assert [row[1] for row in rows] == ['start', 'server_0 died', 'server_0 came back',
                                        '11 robots']
    assert len(rows[0]) == len(header)


def test_of_many_servers_some_show_the_spread(kit) -> None:
    found = described(kit, kit.make_factory(servers=30, robots={'pick': 40}))
    _, rows = server_table(found)
    busy = [float(row[6]) for row in rows]
    assert len(rows) == 5 and busy == sorted(busy)
    every = [life['occupancy'] for lives in found['servers'].values() for life in lives]
    assert [busy[0], busy[-1]] == pytest.approx([100 * min(every), 100 * max(every)], abs=0.06)


def test_a_factory_without_robots_is_described(kit) -> None:
    found = described(kit, kit.make_factory(robots={}))
    assert found['all']['sent'] == 0 and found['rows'][0]['attainment'] == 1.0
    _, rows = model_table(found)
    assert rows[0][:4] == ['pick', 0, 0, '-']
