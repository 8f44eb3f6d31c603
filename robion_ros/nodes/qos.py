# SPDX-License-Identifier: Apache-2.0
"""
Every topic and service name and every quality of service of the contract, in one place.

Names are relative, so that a namespace or a remapping moves them. Knows no message types.
"""

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from robion_ros.config import Transport

STATUS = 'status'
HEARTBEAT = 'heartbeat'
ASSIGN = 'assign'
LOAD_MODEL = 'load_model'
UNLOAD_MODEL = 'unload_model'
ASSIGNMENT = 'assignment'
REBALANCE = 'rebalance'
REGISTER = 'register_robot'
UNREGISTER = 'unregister_robot'
INCARNATION = 'incarnation'
ROBOT_REPORTS = 'robot_reports'
FINISH = 'finish'
DIAGNOSTICS = '/diagnostics'
JOINT_STATES = 'joint_states'
PROMPT = 'prompt'
ACTION_CHUNK = 'action_chunk'
JOINT_TRAJECTORY = 'joint_trajectory'

IMAGE_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
"""To subscribe: hears best-effort and reliable cameras; only the newest frame matters."""
CAMERA_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
"""To publish, as camera drivers do (REP-2003): heard by best-effort and reliable readers."""
JOINT_STATES_QOS = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
VOLATILE_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
LATCHED_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                         durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""Late subscribers get the last message; a reader of this kind does not match a volatile writer,
so prompts are read with this and with VOLATILE_QOS."""
HEARTBEAT_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
"""A beat that comes late, as one that is sent again, says nothing."""
CHUNKS_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
"""To subscribe: a robot that was busy still gets what came meanwhile; see chunk_qos."""
REPORTS_QOS = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
SERVICE_QOS = QoSProfile(history=HistoryPolicy.KEEP_ALL, reliability=ReliabilityPolicy.RELIABLE)
"""Of services that many may call at once: a call that is not kept is never answered."""
DIAGNOSTICS_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


def chunk_qos(length: float) -> QoSProfile:
    """Return the profile of chunks of at most length s: an outdated chunk is never delivered."""
    return QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                      lifespan=Duration(seconds=length))


def image_topic(robot: str, camera: str, transport: Transport) -> str:
    """Return the topic of a robot's camera."""
    suffix = '/compressed' if transport == 'compressed' else ''
    return f'{robot}/{camera}/image_raw{suffix}'


def robot_topic(robot: str, name: str) -> str:
    """Return a topic in a robot's namespace."""
    return f'{robot}/{name}'


def private(node: str, name: str) -> str:
    """Return a topic or service of another node's private namespace."""
    return f'{node}/{name}'
