# SPDX-License-Identifier: Apache-2.0
"""The in-process serving engine: requests in, action chunks out; knows nothing of ROS."""
