# SPDX-License-Identifier: Apache-2.0
"""cv_bridge is used where it is the real one, and never where it would be wrong or crash."""

import re
import sys

import numpy as np
import pytest
from sensor_msgs.msg import Image

from robion_ros.nodes.bridge import find_cv_bridge
from robion_ros.nodes.images import to_rgb

# Stands for a real one: it gives every picture one colour, so that its work is seen.
PACKAGE = """
import numpy as np

class CvBridge:
    def cv2_to_imgmsg(self, picture, encoding):
        if encoding == 'mono8':
            raise TypeError('no grey today')
        return picture.shape, encoding

    def imgmsg_to_cv2(self, message, encoding):
        (height, width, *_), _ = message
        return np.full((height, width, 3), 7, np.uint8)
"""
NUMPY_1, NUMPY_2 = b'\0numpy.core._multiarray_umath\0', b'\0numpy._core._multiarray_umath\0'


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a package of that name and forgets all others."""
    for name in [name for name in sys.modules if name.split('.')[0] == 'cv_bridge']:
        monkeypatch.delitem(sys.modules, name)

    def write(compiled, source=PACKAGE):
        (tmp_path / 'cv_bridge' / 'boost').mkdir(parents=True)
        (tmp_path / 'cv_bridge' / '__init__.py').write_text(source)
        (tmp_path / 'cv_bridge' / 'boost' / 'cv_bridge_boost.py').write_text('')
        if compiled is not None:
            (tmp_path / 'cv_bridge' / 'boost' / 'cv_bridge_boost.so').write_bytes(compiled)
        monkeypatch.syspath_prepend(tmp_path)

    find_cv_bridge.cache_clear()
    yield write
    sys.modules.pop('cv_bridge', None)
    find_cv_bridge.cache_clear()


def image(encoding, step, size):
    return Image(encoding=encoding, width=4, height=4, step=step, data=bytes(size))


@pytest.mark.parametrize('compiled', [NUMPY_2, NUMPY_1 + NUMPY_2, b'no numpy at all'])
def test_a_real_one_is_used(install, compiled):
    install(compiled)
    bridge, reason = find_cv_bridge()
    assert bridge is not None
    assert 'converted by cv_bridge in' in reason


@pytest.mark.parametrize(('compiled', 'source', 'reason'), [
    pytest.param(None, PACKAGE, "is a port, not ROS' cv_bridge", id='nothing compiled'),
    pytest.param(NUMPY_1, PACKAGE, 'was built for NumPy 1 and would crash under NumPy 2.9.0',
                 id='built for NumPy 1'),
    pytest.param(NUMPY_2, 'import no_such_library', 'cannot be used: No module named',
                 id='import fails'),
    pytest.param(NUMPY_2, 'class CvBridge: pass', 'cannot be used: .*no attribute',
                 id='is something else'),
])
def test_another_is_not_used_and_it_is_told_why(install, monkeypatch, compiled, source, reason):
    install(compiled, source)
    monkeypatch.setattr(np, '__version__', '2.9.0')
    bridge, said = find_cv_bridge()
    assert bridge is None
    assert said.startswith('images are converted by OpenCV: ')
    assert re.search(reason, said)


def test_one_built_for_numpy_1_is_used_with_numpy_1(install, monkeypatch):
    install(NUMPY_1)
    monkeypatch.setattr(np, '__version__', '1.26.4')
    assert find_cv_bridge()[0] is not None


def test_its_absence_is_told(install, monkeypatch):
    monkeypatch.setattr('robion_ros.nodes.bridge.find_spec', lambda name: None)
    assert find_cv_bridge() == (None, 'images are converted by OpenCV: cv_bridge is not installed')


def test_images_go_through_it(install):
    install(NUMPY_2)
    assert np.array_equal(to_rgb(image('bgr8', 12, 48), 'bgr'), np.full((4, 4, 3), 7))


def test_encodings_it_does_not_take_go_past_it(install):
    install(NUMPY_2)
    assert not (to_rgb(image('nv12', 4, 24), 'bgr') == 7).any()


def test_an_encoding_that_its_version_lacks_is_converted_all_the_same(install):
    install(NUMPY_2)
    assert np.array_equal(to_rgb(image('mono8', 4, 16), 'bgr'), np.zeros((4, 4, 3)))
