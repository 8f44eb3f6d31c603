# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter on a checkpoint is served as PEFT's merge_and_unload of both would be."""

from collections.abc import Callable
import json
from pathlib import Path
import shutil

import pytest
from safetensors.torch import load_file, save_file
import torch

from robion_ros.models import registry
from robion_ros.models.adapter import open_weights
from robion_ros.models.description import summarize_weights
from robion_ros.models.folder import CheckpointError
from robion_ros.models.shards import open_shards

from .golden import edit_json, EXACT, FOLDER, GOLDEN

KINDS = 'pi0', 'smolvla'
CONFIG, WEIGHTS = 'adapter_config.json', 'adapter_model.safetensors'


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def folder(kind, tmp_path) -> Path:
    """Return a policy's folder, an adapter in the place of its weights, and beside it the base."""
    shutil.copytree(FOLDER / kind, tmp_path / kind)
    folder = shutil.copytree(FOLDER / kind, tmp_path / 'tuned')
    (folder / 'model.safetensors').unlink()
    return shutil.copytree(FOLDER / f'{kind}_lora', folder, dirs_exist_ok=True)


def merged(kind: str) -> dict[str, torch.Tensor]:
    """Return all tensors as PEFT has merged them."""
    return load_file(FOLDER / kind / 'model.safetensors') | load_file(
        FOLDER / f'{kind}_lora.safetensors')


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def test_tensors_are_those_that_peft_merges(kind, folder) -> None:
    expected, changed = merged(kind), load_file(FOLDER / f'{kind}_lora.safetensors')
    with open_weights(folder) as weights, open_shards(FOLDER / kind) as base:
        assert (weights.keys, weights.shapes) == (base.keys, base.shapes)
        for key in weights.keys:
            assert torch.allclose(weights.tensor(key).float(), expected[key].float(), **EXACT), key
            if key in changed:
                assert not torch.allclose(base.tensor(key).float(), expected[key], atol=1e-2)


def test_chunks_are_those_of_the_merged_checkpoint(kind, folder, tmp_path) -> None:
    whole = shutil.copytree(FOLDER / kind, tmp_path / 'whole')
    save_file(merged(kind), whole / 'model.safetensors')
    golden, chunks = GOLDEN[kind], []
    for place in (folder, whole, FOLDER / kind):
        model = golden.at(place).load(golden.cameras(0))
        inputs = {name: tensor[None] for name, tensor in
                  model.preprocess(golden.observation(0)).items()}
        chunks.append(model.adit(model.vlm(inputs), model.noise([3])))
    assert torch.allclose(chunks[0], chunks[1], **EXACT)
    assert not torch.allclose(chunks[0], chunks[2], atol=1e-2)


def test_a_folder_is_described_as_a_whole_one(kind, folder) -> None:
    golden = GOLDEN[kind]
    tokenizer = golden.tokenizer and str(FOLDER / golden.tokenizer)
    found = registry.find(golden.architecture).inspect(folder, tokenizer)
    assert found.problems == () and found.architecture == golden.architecture
    assert any('adapter' in note and str(folder.parent / kind) in note for note in found.notes)
    assert summarize_weights(folder) == summarize_weights(FOLDER / kind)


def test_names_without_the_policy_around_the_model_are_found(kind, folder) -> None:
    base = folder.parent / kind / 'model.safetensors'
    tensors = load_file(base)
    save_file({key.removeprefix('model.'): tensor for key, tensor in tensors.items()}, base)
    expected = merged(kind)
    with open_weights(folder) as weights:
        for key in weights.keys:
            assert torch.allclose(weights.tensor(key).float(), expected[f'model.{key}'].float(),
                                  **EXACT)


@pytest.mark.parametrize('place', ['absolute', 'as a link'])
def test_the_base_may_lie_anywhere(kind, folder, tmp_path, place) -> None:
    base = (tmp_path / kind).rename(tmp_path / 'elsewhere')
    if place == 'as a link':
        (tmp_path / kind).symlink_to(base)
    else:
        edit_json(folder / CONFIG, lambda values: values.update(base_model_name_or_path=str(base)))
    with open_weights(folder) as weights:
        assert len(weights.keys) == len(merged(kind))


def of_config(**values: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / CONFIG, lambda found: found.update(values))


def rename(old: str, new: str) -> Callable[[Path], None]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        key = next(key for key in tensors if old in key)
        tensors[key.replace(old, new)] = tensors.pop(key)
    return lambda folder: edit_weights(folder, change)


def spoil(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def replace(tensors: dict[str, torch.Tensor]) -> None:
        key = next(key for key in tensors if part in key)
        tensors[key] = change(tensors[key]).contiguous()
    return lambda folder: edit_weights(folder, replace)


DAMAGES = {
    'no config': (lambda folder: (folder / CONFIG).unlink(), f'has no {CONFIG}'),
    'config is a list': (lambda folder: (folder / CONFIG).write_text('[]'), 'must be an object'),
    'another method': (of_config(peft_type='IA3'), "peft_type 'IA3': .* merge it into its base"),
    'no method': (of_config(peft_type=None), 'peft_type None'),
    'dora': (of_config(use_dora=True), 'use_dora True: .* merge it'),
    'base changed at the start': (of_config(init_lora_weights='pissa_niter_4'),
                                  "init_lora_weights 'pissa_niter_4'"),
    'no base': (of_config(base_model_name_or_path=None), 'is None; write there the folder'),
    'base gone': (of_config(base_model_name_or_path='/data/base'),
                  '/data/base does not exist here; write there the folder'),
    'base is a file': (of_config(base_model_name_or_path='config.json'), 'write there the folder'),
    'base of another time': (of_config(base_model_name_or_path='a/b', revision='v2'),
                             "at revision 'v2': download that"),
    'base is this adapter': (of_config(base_model_name_or_path='.'),
                             'has no model.safetensors'),
    'alpha is no number': (of_config(lora_alpha='much'), "lora_alpha 'much' .* no scale for"),
    'alpha is not finite': (of_config(lora_alpha=float('nan')), 'alpha .* is nan, must be finite'),
    'pattern is wrong': (of_config(alpha_pattern={'(': 3}), 'give no scale for .*unterminated'),
    'patterns are a list': (of_config(alpha_pattern=[3]), 'give no scale for'),
    'low alone': (rename('q_proj.lora_B', 'k_proj.lora_B'), 'stands there without lora_'),
    'high alone': (rename('q_proj.lora_A', 'k_proj.lora_A'), 'stands there without lora_'),
    'other changes': (rename('q_proj.lora_A', 'q_proj.lora_embedding_A'),
                      'stands there without lora_A|a kind of change that is not read'),
    'unknown tensor': (lambda folder: edit_weights(folder, lambda found: found.update(
        {'base_model.model.hand.weight': torch.zeros(2)})),
        'hand.weight changes no tensor of .* is that the checkpoint'),
    'other rank': (spoil('q_proj.lora_A', lambda tensor: tensor[:1]), 'has rank 1, .* [34]'),
    'other width': (spoil('q_proj.lora_A', lambda tensor: tensor[:, :5]),
                    r'changes a tensor of shape \[\d+, 5\], .* has \['),
    'a vector': (spoil('q_proj.lora_A', lambda tensor: tensor[0]), 'q_proj'),
    'cut': (lambda folder: (folder / WEIGHTS).write_bytes(b'1234567890'), 'is damaged'),
    'not finite': (spoil('q_proj.lora_A', lambda tensor: tensor / 0), 'q_proj.* not finite'),
}


@pytest.mark.parametrize(('damage', 'message'), DAMAGES.values(), ids=DAMAGES)
def test_what_cannot_be_applied_is_named(kind, folder, damage, message) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        GOLDEN[kind].at(folder).load(GOLDEN[kind].cameras(0))


def test_whole_weights_come_before_an_adapter(kind, folder) -> None:
    """Whoever has merged it may have left it there."""
    save_file(merged(kind), folder / 'model.safetensors')
    (folder / CONFIG).write_text(json.dumps({'peft_type': 'IA3'}))
    assert GOLDEN[kind].at(folder).load(GOLDEN[kind].cameras(0))
