# SPDX-License-Identifier: Apache-2.0
from robion_ros.bench.manage import at, compare, find_best, key_of, load_best, measure
from robion_ros.bench.settings import Size
from robion_ros.manager.packing import fill, separate, spread
from robion_ros.manager.traffic import TrafficProblem

SIZE = Size(4, 3, 20)


def test_row_holds_what_the_table_shows() -> None:
    row = measure(SIZE, 'partial', 1, 1.0, 2)
    assert row['first'] >= row['objective'] >= row['bound'] >= 0
    assert row['over_time'][0] == (row['first_s'], row['first'])
    assert row['over_time'][-1][1] == row['objective']
    assert row['optimal'] == (row['bound'] == row['objective'])
    assert len(row['moved']) == 2
    assert row['one by one']['served'] <= 20 and row['even split']['served'] == 20
    assert row['one model each']['objective'] == 0
    assert find_best(SIZE, 'partial', 1, 0.2) == row['objective']


def test_simple_plans_of_a_problem_worked_out_by_hand() -> None:
    # a fills s, its last one meets b on t; an even split has two of each on both.
    problem = TrafficProblem({'a': 4, 'b': 4}, {'s': ('a', 'b'), 't': ('a', 'b')},
                             {(server, model): capacity for server in 'st'
                              for model, capacity in (('a', 3), ('b', 8))})
    assert compare(problem, fill) == {'objective': 4, 'served': 8}
    assert compare(problem, spread) == {'objective': 8, 'served': 8}
    assert compare(problem, separate) == {'objective': 0, 'served': 7}


def test_objective_at_a_time_is_the_one_reached_by_then() -> None:
    row = {'over_time': [(0.5, 9), (1.0, 7), (3.0, 4)]}
    assert [at(row, seconds) for seconds in (0.1, 0.5, 1.0, 2.9, 9.0)] == [None, 9, 7, 7, 4]


def test_best_known_objectives_are_there() -> None:
    best = load_best()
    assert 'robion bench manage --record' in best['how']
    assert key_of(Size(16, 16, 400), 'identical', 0) in best['objectives']
