# SPDX-License-Identifier: Apache-2.0
"""Factories on virtual time: the engine's and the manager's own classes, without GPUs or ROS."""
