# SPDX-License-Identifier: Apache-2.0
"""Topics of a robot: what every way of calling back hands over, and nothing after the end."""

from collections.abc import Callable, Iterator
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String

from robion_ros.config import CameraConfig
from robion_ros.nodes.robot_link import Inputs

CAMERAS = {'front': CameraConfig(), 'wrist': CameraConfig('compressed')}
INFO = {'source_timestamp': 7}


class FakeNode:
    """Keeps the callbacks of its subscriptions, also of those that were destroyed."""

    def __init__(self) -> None:
        self.callbacks: dict[tuple[type, str], list[Callable[..., None]]] = {}
        self.there = 0

    def create_subscription(self, kind: type, topic: str, callback: Callable[..., None],
                            *_: Any, **__: Any) -> object:
        self.callbacks.setdefault((kind, topic), []).append(callback)
        self.there += 1
        return object()

    def destroy_subscription(self, subscription: object) -> None:
        self.there -= 1


@pytest.fixture
def link() -> Iterator[SimpleNamespace]:
    node, heard = FakeNode(), list[Any]()
    inputs = Inputs(node, 'arm_1', CAMERAS,  # type: ignore[arg-type]
                    lambda *what: heard.append(('frame', *what)),
                    lambda *what: heard.append(('state', *what)),
                    lambda *what: heard.append(('prompt', *what)))
    while inputs.open_next():
        pass
    yield SimpleNamespace(node=node, heard=heard, inputs=inputs)


@pytest.mark.parametrize('call', [lambda callback, message: callback(message, INFO),
                                  lambda callback, message: callback((message, INFO))],
                         ids=['two arguments', 'one pair'])
def test_every_message_comes_with_its_publish_time(
        link: SimpleNamespace, call: Callable[[Callable[..., None], Any], None]) -> None:
    front, wrist, state, prompt = Image(), CompressedImage(), JointState(), String(data='pick')
    for message, topic in ((front, 'arm_1/front/image_raw'),
                           (wrist, 'arm_1/wrist/image_raw/compressed'),
                           (state, 'arm_1/joint_states'), (prompt, 'arm_1/prompt')):
        for callback in link.node.callbacks[type(message), topic]:
            call(callback, message)
    assert link.heard == [('frame', 'front', front, 7), ('frame', 'wrist', wrist, 7),
                          ('state', state, 7), ('prompt', False, prompt, 7),
                          ('prompt', True, prompt, 7)]


def test_rclpy_is_asked_for_the_publish_time(link: SimpleNamespace) -> None:
    for callbacks in link.node.callbacks.values():
        for callback in callbacks:
            signature(callback).bind(object(), object())
            with pytest.raises(TypeError):
                signature(callback).bind(object())


def test_they_are_opened_and_closed_one_by_one() -> None:
    node = FakeNode()
    inputs = Inputs(node, 'arm_1', CAMERAS, *[lambda *_: None] * 3)  # type: ignore[arg-type]
    steps = [node.there]
    while inputs.open_next():
        steps.append(node.there)
    inputs.mute()
    while inputs.close_next():
        steps.append(node.there)
    assert steps == [0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0]
    kinds = [kind for kind, _ in node.callbacks]
    assert kinds == [String, JointState, Image, CompressedImage], 'cameras last'


@pytest.mark.parametrize(('end', 'left'), [(Inputs.mute, 5), (Inputs.close, 0)])
def test_nothing_is_heard_after_the_end(link: SimpleNamespace, end: Callable[[Inputs], None],
                                        left: int) -> None:
    assert link.node.there == 5
    end(link.inputs)
    assert link.node.there == left
    for callbacks in link.node.callbacks.values():
        for callback in callbacks:
            callback(None, INFO)
    assert not link.heard
    link.inputs.close()
    assert link.node.there == 0
