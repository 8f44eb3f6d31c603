# SPDX-License-Identifier: Apache-2.0
"""Names and qualities of service are those of the contract."""

import pytest
from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    qos_check_compatible,
    qos_profile_sensor_data,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
)

from robion_ros.nodes import qos

pytestmark = pytest.mark.ros


@pytest.mark.parametrize(('profile', 'depth', 'reliable', 'latched'), [
    (qos.IMAGE_QOS, 1, False, False),
    (qos.CAMERA_QOS, 1, True, False),
    (qos.JOINT_STATES_QOS, 5, False, False),
    (qos.VOLATILE_QOS, 1, True, False),
    (qos.LATCHED_QOS, 1, True, True),
    (qos.chunk_qos(0.5), 1, True, False),
], ids=['image', 'camera', 'joint states', 'volatile', 'latched', 'chunk'])
def test_profile(profile: QoSProfile, depth: int, reliable: bool, latched: bool) -> None:
    assert profile.depth == depth
    assert (profile.reliability == ReliabilityPolicy.RELIABLE) == reliable
    assert (profile.durability == DurabilityPolicy.TRANSIENT_LOCAL) == latched


def fits(writer: QoSProfile, reader: QoSProfile) -> bool:
    # Every profile is warned of, since none sets its liveliness.
    return bool(qos_check_compatible(writer, reader)[0] != QoSCompatibility.ERROR)


def test_the_check_of_compatibility_can_fail() -> None:
    assert not fits(qos.VOLATILE_QOS, qos.LATCHED_QOS)


def test_a_chunk_lives_as_long_as_its_actions() -> None:
    assert qos.chunk_qos(0.5).lifespan == Duration(seconds=0.5)


@pytest.mark.parametrize('camera', [qos.CAMERA_QOS, qos_profile_sensor_data, qos.LATCHED_QOS,
                                    QoSProfile(depth=10)])
def test_cameras_are_heard(camera: QoSProfile) -> None:
    assert fits(camera, qos.IMAGE_QOS)


@pytest.mark.parametrize('reader', [qos_profile_sensor_data, QoSProfile(depth=10)])
def test_chunks_are_heard_by_readers_of_the_usual_kinds(reader: QoSProfile) -> None:
    assert fits(qos.chunk_qos(0.5), reader)


@pytest.mark.parametrize('prompt', [qos.VOLATILE_QOS, qos.LATCHED_QOS])
def test_a_prompt_matches_one_of_the_two_subscriptions(prompt: QoSProfile) -> None:
    assert fits(prompt, qos.VOLATILE_QOS) or fits(prompt, qos.LATCHED_QOS)


def test_names() -> None:
    assert qos.image_topic('r', 'front', 'raw') == 'r/front/image_raw'
    assert qos.image_topic('a/r', 'front', 'compressed') == 'a/r/front/image_raw/compressed'
    assert qos.robot_topic('r', qos.ACTION_CHUNK) == 'r/action_chunk'
    assert qos.private('server_0', qos.STATUS) == 'server_0/status'
