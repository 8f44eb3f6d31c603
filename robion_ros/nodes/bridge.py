# SPDX-License-Identifier: Apache-2.0
"""
Find the distribution's cv_bridge, where there is one that can be used.

Packages called cv_bridge on PyPI are ports of ROS 1 without its compiled module; they ignore
row padding and byte order. And one that was built for NumPy 1 imports under NumPy 2 but ends
the process at the first call, so files are looked at before anything is imported. Knows no
message.
"""

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


@cache
def find_cv_bridge() -> tuple[Any | None, str]:
    """Return a CvBridge, or None, and a sentence for the log that says which and why."""
    spec = find_spec('cv_bridge')
    if spec is None or not spec.submodule_search_locations:
        return None, 'images are converted by OpenCV: cv_bridge is not installed'
    folder = Path(next(iter(spec.submodule_search_locations)))
    modules = [path for path in folder.rglob('*') if path.name.endswith(tuple(EXTENSION_SUFFIXES))]
    if not modules:
        return None, (f"images are converted by OpenCV: {folder} is a port, not ROS' cv_bridge; "
                      'uninstall it')
    if np.lib.NumpyVersion(np.__version__) >= '2.0.0' and any(map(_needs_numpy_1, modules)):
        return None, (f'images are converted by OpenCV: {folder} was built for NumPy 1 and would '
                      f'crash under NumPy {np.__version__}')
    try:
        from cv_bridge import CvBridge
        bridge = CvBridge()
        bridge.imgmsg_to_cv2(bridge.cv2_to_imgmsg(np.zeros((2, 2, 3), np.uint8), 'bgr8'), 'rgb8')
    except Exception as error:  # whatever a foreign build raises: OpenCV does the same work
        return None, f'images are converted by OpenCV: {folder} cannot be used: {error}'
    return bridge, f'images are converted by cv_bridge in {folder}'


def _needs_numpy_1(module: Path) -> bool:
    """Return whether a compiled module can only reach NumPy by the name it had before 2.0."""
    code = module.read_bytes()
    return b'numpy.core._multiarray' in code and b'numpy._core._multiarray' not in code


def through_bridge(bridge: Any, picture: np.ndarray, encoding: str) -> np.ndarray | None:
    """
    Convert uint8 [H, W, C] of an 8-bit encoding to uint8 [H, W, 3] RGB by cv_bridge.

    None where this version of it does not take the encoding: some lack yuv422_yuy2.
    """
    # A message made here is packed and of this machine's byte order: cv_bridge misreads others.
    plane = picture[:, :, 0] if picture.shape[2] == 1 else picture
    try:
        message = bridge.cv2_to_imgmsg(plane, encoding)
        return np.ascontiguousarray(bridge.imgmsg_to_cv2(message, 'rgb8'))
    except TypeError:  # CvBridgeError is one
        return None
