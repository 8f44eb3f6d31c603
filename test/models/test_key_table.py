# SPDX-License-Identifier: Apache-2.0
"""Keys of checkpoints become names of weights."""

import pytest

from robion_ros.models.key_table import count_layers, KeyTable
from robion_ros.models.pi0_config import KEYS

TABLE = KeyTable(('model.',), {r'a\.': 'b.', r'a': 'c'}, {'.x.': '.y.'}, ('head.',),
                 {'table.weight': 'head_of_all.weight'})


@pytest.mark.parametrize('key, name', [
    ('model.a.weight', 'b.weight'), ('a.weight', 'b.weight'), ('ab.x.bias', 'cb.y.bias'),
    ('head.weight', None), ('model.head.weight', None), ('of.head.weight', 'of.head.weight'),
    ('module.model.a.weight', 'b.weight'), ('_orig_mod.a.weight', 'b.weight'),
])
def test_a_key_is_cut_and_renamed(key, name):
    assert TABLE.name(key) == name


@pytest.mark.parametrize('keys, pairs', [
    (['table.weight', 'head_of_all.weight'], [('table.weight', 'table.weight')]),
    (['head_of_all.weight'], [('table.weight', 'head_of_all.weight')]),
    (['other'], [('other', 'other')]),
], ids=['both', 'the other alone', 'neither'])
def test_a_tied_tensor_stands_in_for_a_missing_one_only(keys, pairs):
    assert TABLE.pairs(keys) == pairs


def test_what_pi0_has_and_pi05_has_not_is_left_out():
    assert KEYS['pi0'].name('model.state_proj.weight') == 'state_proj.weight'
    assert KEYS['pi05'].name('model.state_proj.weight') is None


def test_layers_are_counted_by_the_names_of_their_weights():
    names = ['stack.1.w', 'stack.0.w', 'stack.0.v', 'stacks.2.w', 'a.stack.3.w']
    assert count_layers('stack', names) == 2


def test_a_layer_that_is_left_out_is_named_and_not_made_up():
    with pytest.raises(KeyError, match=r'stack\.1'):
        count_layers('stack', ['stack.0.w', 'stack.999999999.w'])
