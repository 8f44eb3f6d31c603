# SPDX-License-Identifier: Apache-2.0
"""A machine that cannot be partitioned serves without caps and says so once."""

import logging
import sys

import pytest
import torch

from robion_ros.engine import partition
from robion_ros.engine.partition import held_to, open_partitions


@pytest.fixture
def forgotten():
    """Open partitions anew, in this test and after it."""
    open_partitions.cache_clear()
    yield
    open_partitions.cache_clear()


def test_missing_bindings_are_one_warning(forgotten, monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, 'cuda.bindings', None)
    with caplog.at_level(logging.WARNING):
        assert open_partitions(0) is None and open_partitions(0) is None
    assert len(caplog.messages) == 1
    assert 'no SM partitions on cuda:0, the stages are not kept apart' in caplog.messages[0]
    assert "'cuda-bindings'" in caplog.messages[0]


@pytest.fixture
def library(monkeypatch) -> list[object]:
    """Stand in for torch built for a GPU: which library, and how many SMs it leaves."""
    state: list[object] = ['cublas', None]

    def prefer(name: str | None = None) -> object:
        state[0] = name or state[0]
        return state[0]
    monkeypatch.setattr(torch.backends.cuda, 'preferred_blas_library', prefer)
    monkeypatch.setattr(partition, 'TELL', lambda left: state.__setitem__(1, left))
    return state


def test_products_are_told_of_a_cap_only_while_it_is_captured(library) -> None:
    with held_to(104, 132):
        assert library == ['cublaslt', 28]
    assert library == ['cublas', None]
    with pytest.raises(KeyError), held_to(8, 132):
        raise KeyError
    assert library == ['cublas', None]


def test_torch_that_cannot_tell_is_left_alone(library, monkeypatch) -> None:
    monkeypatch.setattr(partition, 'TELL', None)
    with held_to(104, 132):
        assert library == ['cublas', None]
