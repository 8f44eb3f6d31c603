# SPDX-License-Identifier: Apache-2.0
"""Networks: delays and losses are those of the figures, and of the seed."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from robion_ros.bench.arrivals import make_robots, schedule
from robion_ros.bench.network import KNOWN, Link, load_network, Network, Networks, travel
from robion_ros.bench.settings import Traffic
from robion_ros.factory_file import ConfigError, read

MANY = 20_000


@settings(max_examples=30, deadline=None)
@given(least=st.floats(0, 5), median=st.floats(0.1, 20), tail=st.floats(0.1, 50),
       loss=st.floats(0, 0.3))
def test_delays_have_the_median_and_the_tail_that_were_given(least: float, median: float,
                                                             tail: float, loss: float) -> None:
    link = Link(least + median, least + median + tail, least, loss, 1e6)
    drawn = link.draw(np.random.default_rng(1), MANY, 0.0)
    arrived = [delay * 1e3 for delay in drawn if delay is not None]
    assert len(arrived) / MANY == pytest.approx(1 - loss, abs=0.02)
    assert min(arrived) >= least
    assert np.mean(np.array(arrived) < link.median) == pytest.approx(0.5, abs=0.02)
    assert np.mean(np.array(arrived) < link.p99) == pytest.approx(0.99, abs=0.005)


def test_size_takes_its_time() -> None:
    small, large = (Link(1.0, 1.0, 1.0, mbit_s=100.0).draw(np.random.default_rng(0), 1, size)[0]
                    for size in (0.0, 125.0))
    assert small == pytest.approx(0.001) and large == pytest.approx(0.011)


@pytest.mark.parametrize('name', ['wifi7', 'cloud'])
def test_a_network_has_its_name(name: str) -> None:
    network = load_network(name)
    assert network is not None and network.up.median > 0
    assert f'  {name}:' in KNOWN.read_text()


def test_the_cloud_is_further_than_the_edge() -> None:
    edge, cloud = load_network('wifi7'), load_network('cloud')
    assert edge and cloud and load_network('none') is None
    assert edge.up.median < cloud.up.median and edge.up.p99 < cloud.up.p99


def test_an_unknown_network_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'wifi7'"):
        load_network('wifi6')


LINK = '{median: 1.0, p99: 2.0}'


@pytest.mark.parametrize(('text', 'problem'), [
    (f'networks: {{mine: {{up: {LINK}, down: {{median: 1.0}}}}}}', 'mine.down: lacks p99'),
    (f'networks: {{mine: {{up: {LINK}, down: {{median: 3.0, p99: 2.0}}}}}}', 'p99: is 2.0'),
    (f'networks: {{mine: {{up: {LINK}, down: {LINK}, size: 3}}}}', 'unknown key'),
    ('networks: {}', 'holds none, must be one'),
    ('', 'is empty'),
], ids=['lacks', 'order', 'unknown', 'none', 'empty'])
def test_a_file_that_is_wrong_is_told_so(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / 'mine.yaml'
    path.write_text(text)
    with pytest.raises(ValueError, match=problem) as error:
        load_network(str(path))
    if isinstance(error.value, ConfigError):
        assert str(path) in str(error.value) and 'factory.yaml' not in str(error.value)


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / 'mine.yaml'
    path.write_text(f'networks: {{mine: {{up: {LINK}, down: {{median: 3.0, p99: 4.0}}}}}}')
    assert load_network(str(path)) == Network(Link(1.0, 2.0), Link(3.0, 4.0))


def test_the_shipped_file_names_its_sources() -> None:
    text = KNOWN.read_text()
    for number in range(1, 6):
        assert f'# [{number}] ' in text and text.count(f'[{number}]') > 1
    assert set(read(Networks, KNOWN, '').networks) == {'wifi7', 'cloud'}


def test_what_happens_on_the_way_comes_from_the_seed() -> None:
    arrivals = schedule(make_robots({'m': 0.1}, 20), Traffic(), 0)
    network = Network(Link(5.0, 15.0, 0.5, 0.3), Link(5.0, 15.0, 0.5, 0.3))
    first, again, other, later = (travel(arrivals, network, seed, epoch)
                                  for seed, epoch in ((1, 0), (1, 0), (2, 0), (1, 1)))
    assert first == again and first != other and first != later
    assert {trip.arrival for trip in first} == set(arrivals)
    assert any(trip.up is None for trip in first) and any(trip.down is None for trip in first)
    assert all(trip.up == trip.down == 0.0 for trip in travel(arrivals, None, 1, 0))


def test_no_loss_changes_no_delay() -> None:
    kept, lost = (Link(5.0, 15.0, loss=loss).draw(np.random.default_rng(3), 100, 1.0)
                  for loss in (0.0, 0.5))
    assert any(delay is None for delay in lost)
    assert all(delay is None or delay == whole for delay, whole in zip(lost, kept, strict=True))
