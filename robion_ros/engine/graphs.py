# SPDX-License-Identifier: Apache-2.0
"""
A function of tensors as a CUDA graph, with the buffers that it reads and writes.

Whatever is given to a capture must outlive the graph: the object here holds both. Knows neither
models nor stages.
"""

from collections.abc import Callable
from typing import Any

import torch

from robion_ros.models.protocol import Tensors

Pool = Any
"""Memory of graphs that never run at the same time: what torch.cuda.graph_pool_handle returns."""

WARM_UPS = 2
"""Runs before a capture: what compiles, tunes or allocates once must not do so inside."""


class Graph:
    """A captured call of a function with a set of buffers."""

    def __init__(self, function: Callable[[], Tensors], outputs: Tensors,
                 stream: torch.cuda.Stream, pool: Pool) -> None:
        self._function = function  # It holds the inputs.
        self._outputs = outputs
        self._graph = torch.cuda.CUDAGraph()
        # Not torch.cuda.graph, which waits for all of the GPU and gives torch's free memory back:
        # another thread may be serving. Nothing runs here, so nothing need be waited for.
        with torch.cuda.stream(stream):
            self._graph.capture_begin(pool=pool, capture_error_mode='thread_local')
            try:
                # What the function returns lies in memory that the pool's next capture takes.
                for name, tensor in function().items():
                    outputs[name].copy_(tensor)
            finally:
                self._graph.capture_end()

    def replay(self) -> None:
        """Enqueue the call on the current stream, under the cap of the stream of the capture."""
        self._graph.replay()


def warm_up(function: Callable[[], Tensors], stream: torch.cuda.Stream) -> Tensors:
    """
    Run a function before its capture; return buffers that fit what it returned.

    Where graphs may be running meanwhile, none of them may be of this stream: the library of
    matrix products keeps one workspace for each, and a graph has it for good.
    """
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            outputs = function()
        kept = {name: tensor.clone() for name, tensor in outputs.items()}
    stream.synchronize()
    return kept
