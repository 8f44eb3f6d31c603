# SPDX-License-Identifier: Apache-2.0
"""What is packed comes out as it was, and no block is lent twice at a time."""

from threading import Barrier, Thread

from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch

from robion_ros.engine.packing import ALIGNMENT, Blocks, lay_out

DTYPES = torch.uint8, torch.bool, torch.int64, torch.float32, torch.bfloat16


def tensors(shapes, seed: int) -> dict[str, torch.Tensor]:
    """Return tensors of shapes and, in turn, of every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return {f't{index}': torch.randint(0, 100, shape, generator=generator)
            .to(DTYPES[index % len(DTYPES)]) for index, shape in enumerate(shapes)}


SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=7)


@given(SHAPES, st.integers(1, 4))
def test_tensors_of_a_batch_come_out_as_they_were(shapes, size: int) -> None:
    layout = lay_out(tensors(shapes, 0))
    blocks = Blocks(layout, size, pinned=False)
    held = [blocks.pack(tensors(shapes, seed)) for seed in range(size)]
    batch = torch.stack([block.memory for block in held])
    for name, view in layout.views(batch).items():
        expected = torch.stack([tensors(shapes, seed)[name] for seed in range(size)])
        assert view.dtype == expected.dtype and torch.equal(view, expected)
        assert view.data_ptr() % ALIGNMENT == batch.data_ptr() % ALIGNMENT or not view.numel()


def test_views_write_through() -> None:
    layout = lay_out({'a': torch.zeros(3), 'b': torch.zeros((), dtype=torch.int64)})
    batch = torch.zeros(2, layout.size, dtype=torch.uint8)
    layout.views(batch)['a'][1] = torch.tensor([1.0, 2.0, 3.0])
    layout.views(batch)['b'][0] = 7
    assert layout.views(batch[1])['a'].tolist() == [1.0, 2.0, 3.0]
    assert layout.views(batch[0])['b'].item() == 7


@pytest.mark.parametrize(('given', 'problem'), [
    ({'a': torch.zeros(4)}, r'a is torch.float32 \[4\], must be torch.float32 \[3\]'),
    ({'a': torch.zeros(3, dtype=torch.int64)}, r'a is torch.int64 \[3\], must be torch.float32'),
    ({'b': torch.zeros(3)}, r"there are \['b'\], there must be \['a'\]"),
], ids=['shape', 'dtype', 'name'])
def test_tensors_of_another_layout_are_named(given, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Blocks(lay_out({'a': torch.zeros(3)}), 2, pinned=False).pack(given)


def number(value: int) -> dict[str, torch.Tensor]:
    return {'a': torch.tensor([value])}


def test_block_is_lent_again_when_nobody_holds_it() -> None:
    layout = lay_out(number(0))
    blocks = Blocks(layout, 2, pinned=False)
    first, second = blocks.pack(number(1)), blocks.pack(number(2))
    place = first.memory.data_ptr()
    del first
    third = blocks.pack(number(3))
    assert third.memory.data_ptr() == place
    assert [layout.views(block.memory)['a'].item() for block in (second, third)] == [2, 3]


def test_more_than_there_is_memory_for_is_packed_elsewhere() -> None:
    layout = lay_out(number(0))
    blocks = Blocks(layout, 2, pinned=False)
    for _ in range(3):  # What was lent elsewhere does not come home.
        held = [blocks.pack(number(value)) for value in range(5)]
        assert [layout.views(block.memory)['a'].item() for block in held] == [0, 1, 2, 3, 4]
        assert len({block.memory.data_ptr() for block in held}) == 5
        del held
    kept = {blocks.pack(number(value)).memory.data_ptr() for value in range(9)}
    assert len(kept) <= 2


def test_many_threads_never_share_a_block() -> None:
    layout = lay_out(number(0))
    blocks = Blocks(layout, 3, pinned=False)
    meet, wrong = Barrier(6), []

    def work(seed: int) -> None:
        meet.wait()
        for step in range(300):
            held = [blocks.pack(number(1000 * seed + step + each)) for each in range(2)]
            found = [layout.views(block.memory)['a'].item() for block in held]
            if found != [1000 * seed + step, 1000 * seed + step + 1]:
                wrong.append(found)
    threads = [Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
