# SPDX-License-Identifier: Apache-2.0
"""
Streams that divide a GPU's multiprocessors (SMs) between them, by the driver's green contexts.

A kernel keeps the cap of the stream it was captured on, whatever stream its graph is launched
on. Knows neither models nor graphs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
import logging
from typing import Any, NamedTuple

import torch

from robion_ros.engine.cuda_calls import external_stream
from robion_ros.models.room import ROOM

logger = logging.getLogger(__name__)

TELL = getattr(torch._C, '_set_sm_carveout_experimental', None)


class DriverError(RuntimeError):
    """The CUDA driver refused a call."""


class Streams(NamedTuple):
    """Streams that never use the same SMs."""

    vlm: torch.cuda.Stream
    adit: torch.cuda.Stream


class Partitions:
    """The caps that one GPU allows, and streams for each."""

    def __init__(self, index: int) -> None:
        from cuda.bindings import driver  # Not installed everywhere, and not needed for no cap.
        self._driver = driver
        torch.zeros(1, device=f'cuda:{index}')  # Makes the primary context.
        self.device = torch.device('cuda', index)
        self._device = self._call(driver.cuDeviceGet, index)
        whole = self._call(driver.cuDeviceGetDevResource, self._device,
                           driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
        self.sms: int = whole.sm.smCount
        smallest = self._split(whole, 1, 1)[0][0].sm.smCount
        self._groups, self._rest = self._split(whole, self.sms // smallest, smallest)
        self._contexts: list[Any] = []
        self._streams: dict[int, Streams] = {}
        self.caps = tuple(smallest * count for count in range(1, len(self._groups)))
        """Numbers of SMs that a VLM stage may be held to, ascending."""
        self.streams(self.caps[-1])  # A driver that only pretends fails now.

    def streams(self, cap: int) -> 'Streams':
        """
        Return streams for the two stages: cap SMs, one of caps, and all others.

        SMs of a group lie together, those left over from grouping lie apart. Large matrix
        products, whose blocks work in clusters, took half as long again with some of these: they
        are the ADiT stage's, which has a group besides, or what is clustered would have no room.
        """
        if cap not in self._streams:
            count = self.caps.index(cap) + 1
            spare = [self._rest] if self._rest.sm.smCount else []
            self._streams[cap] = Streams(self._stream(self._groups[:count]),
                                         self._stream([*self._groups[count:], *spare]))
        return self._streams[cap]

    def _stream(self, parts: list[Any]) -> torch.cuda.Stream:
        """Return a stream that is held to parts of the GPU."""
        driver = self._driver
        descriptor = self._call(driver.cuDevResourceGenerateDesc, parts, len(parts))
        context = self._call(driver.cuGreenCtxCreate, descriptor, self._device,
                             driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
        self._contexts.append(context)
        handle = self._call(driver.cuGreenCtxStreamCreate, context,
                            driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0)
        return external_stream(int(handle), self.device.index)

    def _split(self, whole: Any, count: int, least: int) -> tuple[list[Any], Any]:
        """Return count or fewer groups of at least so many SMs, and what is left over."""
        error, groups, found, rest = self._driver.cuDevSmResourceSplitByCount(count, whole, 0,
                                                                              least)
        self._check('cuDevSmResourceSplitByCount', error)
        return groups[:found], rest

    def _call(self, function: Any, *args: Any) -> Any:
        error, *values = function(*args)
        self._check(function.__name__, error)
        return values[0] if values else None

    def _check(self, name: str, error: Any) -> None:
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise DriverError(f'{name}: {error.name}')


@contextmanager
def held_to(cap: int, sms: int) -> Iterator[None]:
    """
    Tell what is captured how many of a GPU's sms it will have.

    The library of matrix products would cut them into as many parts as all SMs take at once,
    and a few parts more than there are SMs cost as much as twice as many. Of torch's two
    libraries one can be told, by a function that may go: without it caps are slower, and the
    profile knows.
    """
    room = ROOM.set(cap)
    before = torch.backends.cuda.preferred_blas_library() if TELL else None
    if TELL:
        torch.backends.cuda.preferred_blas_library('cublaslt')
        TELL(sms - cap)
    try:
        yield
    finally:
        ROOM.reset(room)
        if TELL:
            TELL(None)
            torch.backends.cuda.preferred_blas_library(before)


@cache
def open_partitions(index: int) -> Partitions | None:
    """Return the partitions of a GPU, the same to everyone; None, and a warning, without any."""
    try:
        found = Partitions(index)
    except (ImportError, AttributeError, DriverError, RuntimeError) as error:
        logger.warning('no SM partitions on cuda:%d, the stages are not kept apart (%s: %s); they '
                       "need CUDA 12.4 or later and the package 'cuda-bindings'", index,
                       type(error).__name__, error)
        return None
    logger.info('cuda:%d has %d SMs, caps of %d to %d', index, found.sms, found.caps[0],
                found.caps[-1])
    if TELL is None:
        logger.warning('torch %s cannot tell matrix products of the caps: they are slower than '
                       'they could be', torch.__version__)
    return found
