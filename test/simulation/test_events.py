# SPDX-License-Identifier: Apache-2.0
"""Events as somebody types them."""

from math import inf
import re

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.simulation.events import Change, Kill, read_change, read_kill


def test_events_are_read() -> None:
    assert read_kill('gpu_1@20') == Kill('gpu_1', 20.0, inf)
    assert read_kill('gpu_1@2.5:45') == Kill('gpu_1', 2.5, 45.0)
    assert read_change('pick=120') == Change('pick', 120, 0.0)
    assert read_change('pick=0@30.5') == Change('pick', 0, 30.5)


@pytest.mark.parametrize('text', ['', 'gpu_1', '@3', 'gpu_1@', 'gpu_1@x', 'gpu_1@3:', 'gpu_1@5:4',
                                  'gpu_1@0', 'gpu_1@-1', 'gpu_1@nan'])
def test_wrong_kills_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        read_kill(text)


@pytest.mark.parametrize('text', ['', 'pick', 'pick=', '=3', 'pick=-1', 'pick=3@', 'pick=3@x',
                                  'pick=1.5'])
def test_wrong_populations_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        read_change(text)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_kill, read_change):
        try:
            read(text)
        except ValueError as error:
            assert repr(text) in str(error)
