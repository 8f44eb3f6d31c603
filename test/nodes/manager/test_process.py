# SPDX-License-Identifier: Apache-2.0
"""The manager as a process: how it begins, ends and gives way."""

import signal
import subprocess
import sys
from threading import Event
from time import monotonic
from types import SimpleNamespace

import pytest

from robion_ros.msg import Population

from .conftest import FACTORY

pytestmark = pytest.mark.ros

PATIENCE = 30.0


@pytest.fixture
def launch(floor):
    """Return a function that starts a manager process; those left over are killed."""
    started = []

    def launch(*words: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(
            [sys.executable, '-P', '-m', 'robion_ros.nodes', 'manager', '--ros-args',
             '-p', f'config:={floor.config}', '-p', 'settle_time:=0.3', *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield launch
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM], ids=lambda kind: kind.name)
def test_signal_ends_it_without_a_trace(floor, launch, number) -> None:
    process = launch()
    floor.add('server_0')
    floor.add('server_1')
    floor.until(lambda: floor.settled(5))
    process.send_signal(number)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, 'Traceback' in output) == (0, False), output


def test_signal_ends_it_while_it_waits_for_a_server(floor, launch) -> None:
    floor.config.write_text(floor.config.read_text().replace('call_timeout: 0.5',
                                                             'call_timeout: 3600'))
    process = launch()
    deaf = floor.add('server_0')
    deaf.destroy_service(deaf.service)
    other = floor.add('server_1')
    floor.until(lambda: other.calls)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, 'Traceback' in output) == (0, False), output


ONE_EACH = FACTORY.replace('server_0: {models: [pick, place]}', 'server_0: {models: [pick]}'
                           ).replace('server_1: {models: [pick, place]}',
                                     'server_1: {models: [place]}')
"""Where every robot goes follows from its model."""
MOVE = Population(model='place', robots=['robot_3', 'robot_4', 'robot_5'])


@pytest.fixture
def moving(floor, launch):
    """Return a factory that can be told to move a robot, and its manager."""
    floor.add('server_0', models=['pick'])
    floor.add('server_1', models=['place'])
    process = launch('-p', 'handover_timeout:=3600.0')
    floor.until(lambda: floor.settled(5))
    return floor, process


@pytest.mark.parametrize('floor', [ONE_EACH], indirect=True, ids=['one each'])
def test_a_robot_that_waits_for_its_move_stays_where_it_is_at_a_signal(moving) -> None:
    floor, process = moving
    before = floor.places
    floor.servers['server_1'].ready = False
    answer = floor.ask(MOVE)
    floor.until(lambda: 'robot_3' in floor.servers['server_1'].robots)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, floor.places) == (0, before), output
    floor.until(answer.done)
    assert not answer.result().success
    assert answer.result().message == 'the manager ends; not moved: robot_3'
    assert 'did not answer' not in output


@pytest.mark.parametrize('floor', [ONE_EACH], indirect=True, ids=['one each'])
def test_a_robot_that_was_let_go_is_taken_over_after_a_signal(moving) -> None:
    floor, process = moving
    asked, go_on = Event(), Event()
    floor.servers['server_0'].hold = SimpleNamespace(wait=lambda timeout: (
        asked.set(), go_on.wait(timeout)))
    floor.ask(MOVE)
    floor.until(asked.is_set)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    go_on.set()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert floor.places['robot_3'] == ('place', 'server_1')


def test_second_manager_is_refused_and_the_first_goes_on(floor, launch) -> None:
    floor.add('server_0')
    floor.add('server_1')
    first = launch()
    floor.until(lambda: floor.settled(5))
    count = len(floor.assignments)
    calls = [len(server.calls) for server in floor.servers.values()]
    second = launch('-p', 'settle_time:=5.0')
    output, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 2, output
    assert "a manager 'manager' runs already" in output and 'Traceback' not in output
    assert len(floor.assignments) == count
    assert [len(server.calls) for server in floor.servers.values()] == calls
    assert first.poll() is None and floor.rebalance().success
    # One that was killed is not in the way of the next.
    first.kill()
    first.wait()
    third = launch()
    floor.until(lambda: [len(server.calls) for server in floor.servers.values()] != calls)
    assert third.poll() is None
    floor.until(lambda: floor.settled(5))


def test_manager_that_was_stopped_does_not_take_servers_for_dead(floor, launch) -> None:
    servers = [floor.add('server_0'), floor.add('server_1')]
    process = launch()
    floor.until(lambda: floor.settled(5))
    calls = [len(server.calls) for server in servers]
    process.send_signal(signal.SIGSTOP)
    end = monotonic() + 2.0  # Longer than server_timeout.
    floor.until(lambda: monotonic() > end)
    floor.diagnostics.clear()
    process.send_signal(signal.SIGCONT)
    floor.until(lambda: len(floor.diagnostics) >= 4)
    assert [len(server.calls) for server in servers] == calls
    assert floor.complaint == '0 every robot is assigned'
    assert floor.rebalance().moved == 0


def test_simulated_time_that_stands_still_does_not_stop_it(floor, launch) -> None:
    launch('-p', 'use_sim_time:=true')
    floor.add('server_0')
    floor.add('server_1')
    floor.until(lambda: floor.settled(5))
    assert floor.rebalance().success


def test_name_that_is_not_the_factory_files_is_refused(floor, launch) -> None:
    process = launch('-r', '__node:=boss')
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "is called 'manager', this node 'boss'" in output and '__node:=manager' in output


def test_torch_is_not_loaded() -> None:
    """A manager starts in a moment, also where there is no torch."""
    code = ('import sys, robion_ros.nodes.manager; '
            'sys.exit(", ".join({"torch", "cv2", "safetensors"} & set(sys.modules)) or 0)')
    result = subprocess.run([sys.executable, '-P', '-c', code], capture_output=True, text=True,
                            timeout=PATIENCE)
    assert (result.returncode, result.stderr) == (0, '')
