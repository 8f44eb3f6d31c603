# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes: the only part that imports rclpy. They wire; the work is done elsewhere."""
