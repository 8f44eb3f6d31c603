# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
Attention of few tokens to many, as attention.py has it, with Hopper's own instructions.

The next keys are on their way while the softmax and the product with the values run, the next
values while that with the keys does: each has one place in shared memory, which is free as soon
as its product has ended, so that two blocks of 64 rows and keys find room on a multiprocessor and
neither waits for memory. That order is not to be had from Triton's loops, so this is Gluon. Knows
no model.
"""

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from robion_ros.models.kernels.attention import HIDDEN_SCORE, visible, weigh
from robion_ros.models.kernels.overlap import wait_for_kernel_before

# Names that differ from one Triton to the next, 3.6 to 3.9.
load_async = getattr(tma, 'async_load', None) or tma.async_copy_global_to_shared
sync_threads = getattr(gl, 'barrier', None) or gl.thread_barrier


@gluon.jit
def attend_kernel(queries, own, past, valid, found, weight, valid_batch, keys,
                  HEADS: gl.constexpr, SIZE: gl.constexpr, TOKENS: gl.constexpr,
                  FIRST: gl.constexpr, TILES: gl.constexpr, BLOCK_M: gl.constexpr,
                  BLOCK_N: gl.constexpr, SCALE: gl.constexpr, OVERLAP: gl.constexpr):
    """Attend to TILES tiles of all keys, as attention.attend_kernel does."""
    WARPS: gl.constexpr = gl.num_warps()
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, BLOCK_N, 16])
    TOTAL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, SIZE, 16])
    ROWS: gl.constexpr = HEADS * TOKENS
    split, batch = gl.program_id(1), gl.program_id(2)
    first_row, first = gl.program_id(0) * BLOCK_M, split * TILES
    past_tiles = gl.cdiv(keys, BLOCK_N)
    count = gl.minimum(TILES, past_tiles + gl.cdiv(TOKENS, BLOCK_N) - first)

    query = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_M, SIZE], queries.layout)
    key = gl.allocate_shared_memory(gl.bfloat16, [1, 1, BLOCK_N, SIZE], past.layout)
    value = gl.allocate_shared_memory(gl.bfloat16, [1, 1, BLOCK_N, SIZE], past.layout)
    query_there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    key_there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    value_there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(query_there, count=1)
    mbarrier.init(key_there, count=1)
    mbarrier.init(value_there, count=1)
    # Keys of the tokens before were there long before the queries.
    fetch(past, batch, 0, first, key, key_there, first < past_tiles)
    fetch(past, batch, 1, first, value, value_there, first < past_tiles)
    wait_for_kernel_before(OVERLAP)
    mbarrier.expect(query_there, BLOCK_M * SIZE * 2)
    load_async(queries, [batch * (HEADS + 2) * TOKENS + first_row, 0], query_there, query)
    fetch(own, batch, HEADS, first - past_tiles, key, key_there, first >= past_tiles)
    fetch(own, batch, HEADS + 1, first - past_tiles, value, value_there, first >= past_tiles)

    row = first_row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, SCORES))
    column = gl.arange(0, BLOCK_N, gl.SliceLayout(0, SCORES))
    valid += batch * valid_batch
    most = gl.full([BLOCK_M], HIDDEN_SCORE, gl.float32, gl.SliceLayout(1, SCORES))
    norm = gl.zeros([BLOCK_M], gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.zeros([BLOCK_M, SIZE], gl.float32, TOTAL)
    nothing = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, SCORES)
    for index in range(count):
        tile = first + index
        seen = visible(valid, tile, past_tiles, keys, row, column, TOKENS, FIRST, BLOCK_N)
        if index == 0:
            mbarrier.wait(query_there, 0)
        mbarrier.wait(key_there, index & 1)
        scores = warpgroup_mma(query, key.reshape([BLOCK_N, SIZE]).permute((1, 0)), nothing,
                               use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=[scores])
        sync_threads()  # Nobody reads the keys any more.
        is_past = (index + 1 < count) & (tile + 1 < past_tiles)
        is_own = (index + 1 < count) & (tile + 1 >= past_tiles)
        fetch(past, batch, 0, tile + 1, key, key_there, is_past)
        fetch(own, batch, HEADS, tile + 1 - past_tiles, key, key_there, is_own)
        scores = gl.where(seen, scores * SCALE, HIDDEN_SCORE)
        most, norm, shares, shrink = weigh(scores, most, norm)
        total = total * gl.convert_layout(shrink, gl.SliceLayout(1, TOTAL))[:, None]
        shares = gl.convert_layout(shares.to(gl.bfloat16), gl.DotOperandLayout(0, TOTAL, 2))
        mbarrier.wait(value_there, index & 1)
        total = warpgroup_mma(shares, value.reshape([BLOCK_N, SIZE]), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
        sync_threads()  # Nor the values.
        fetch(past, batch, 1, tile + 1, value, value_there, is_past)
        fetch(own, batch, HEADS + 1, tile + 1 - past_tiles, value, value_there, is_own)
    mbarrier.invalidate(query_there)
    mbarrier.invalidate(key_there)
    mbarrier.invalidate(value_there)

    # In rows of memory, as products do not lie.
    IN_ROWS: gl.constexpr = gl.BlockedLayout(
        [1, 8], [32 // min(SIZE // 8, 32), min(SIZE // 8, 32)], [WARPS, 1], [1, 0])
    first_of_all = (split * gl.num_programs(2) + batch) * ROWS
    gl.store(weight + first_of_all + row, most + gl.log2(norm), row < ROWS)
    result = total * gl.convert_layout(1 / norm, gl.SliceLayout(1, TOTAL))[:, None]
    result = gl.convert_layout(result.to(gl.bfloat16), IN_ROWS)
    row = first_row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, IN_ROWS))
    size = gl.arange(0, SIZE, gl.SliceLayout(0, IN_ROWS))
    place = (first_of_all + row)[:, None] * SIZE + size[None, :]
    gl.store(found + place, result, (row < ROWS)[:, None])


@gluon.jit
def fetch(source, batch, head, tile, room, there, wanted):
    """Start to load tokens from tile * BLOCK on of a head of source into room, if wanted."""
    BLOCK: gl.constexpr = room.shape[2]
    mbarrier.expect(there, BLOCK * room.shape[3] * 2, pred=wanted)
    load_async(source, [batch, head, tile * BLOCK, 0], there, room, pred=wanted)


def describe(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    """Return the descriptor of a tensor, bf16, that is loaded in blocks."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor.from_tensor(tensor, block, layout)
