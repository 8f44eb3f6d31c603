# SPDX-License-Identifier: Apache-2.0
"""Calls of the services by which models come and go, and robots that must not notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from robion_ros.srv import LoadModel, UnloadModel

Make = Callable[..., Any]
LOAD, UNLOAD = LoadModel.Response, UnloadModel.Response
CRANE = '  crane: {<<: *arm, prompt: lift}'


def describing(write_factory: Make) -> Make:
    """Write a factory file with more models than its servers name."""
    def describe(*lines: str, architecture: str = 'fake') -> Path:
        return write_factory(architecture, (CRANE, '\n'.join([CRANE, *lines])))
    return describe


def load(world: Any, model: str) -> LoadModel.Response:
    return world.call(LoadModel, 'server_0/load_model', LoadModel.Request(model=model))


def unload(world: Any, model: str) -> UnloadModel.Response:
    return world.call(UnloadModel, 'server_0/unload_model', UnloadModel.Request(model=model))


def begin(world: Any, kind: Any, model: str) -> Any:
    """Call a service and do not wait."""
    client = world.node.create_client(kind, {LoadModel: 'server_0/load_model'}.get(
        kind, 'server_0/unload_model'))
    world.until(client.service_is_ready)
    return client.call_async(kind.Request(model=model))


def held(world: Any) -> list[str]:
    return list(world.statuses['server_0'].models)


@contextmanager
def traffic(world: Any, *robots: Any) -> Iterator[None]:
    """Let robots observe all the time; all that they asked must have been answered."""
    before = {robot.name: world.robot_status(robot.name) for robot in robots}
    over = Event()

    def run() -> None:
        while not over.wait(0.02):
            for robot in robots:
                robot.observe()
    thread = Thread(target=run)
    thread.start()
    try:
        yield
        for name, status in before.items():
            world.until(lambda name=name, status=status:
                        world.robot_status(name).answered > status.answered + 3)
    finally:
        over.set()
        thread.join()
    for robot in robots:
        world.until(lambda robot=robot: world.ended(robot.name))
        status = world.robot_status(robot.name)
        assert (status.failed, status.cancelled) == (0, before[robot.name].cancelled)
        numbers = [chunk.request for chunk in robot.chunks]
        assert numbers == sorted(set(numbers)), numbers
