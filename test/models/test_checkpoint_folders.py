# SPDX-License-Identifier: Apache-2.0
"""What holds for every architecture's checkpoint folder: it is served, or it is said why not."""

from dataclasses import dataclass, replace
import math
from pathlib import Path
import re
import shutil

import numpy as np
import pytest
import torch

from robion_ros.models import registry

from .golden import ACTIONS, edit_json, FOLDER, GOLDEN, JOINTS, weights

MANY = tuple(f'j{index}' for index in range(33))


@dataclass(frozen=True)
class Names:
    """What weights are called in files, and in the model."""

    key: str
    """Of a weight that is a vector or a matrix."""
    name: str
    shape: list[int]
    nearest: str
    """Pattern of the keys that a missing one may have been meant by."""
    unexpected: str
    size: str = ''
    """Key of a weight off which a size is read; empty if config.json says them all."""
    size_name: str = ''


PI0 = 'model.paligemma_with_expert.gemma_expert.model.layers.'
SMOLVLA = 'model.vlm_with_expert.lm_expert.layers.'
EAGLE = 'backbone.eagle_model.language_model.model.layers.'
NAMES = {
    'tiny': Names(*['expert.0.self_attn.k_proj.weight'] * 2, [32, 64], r'expert\.\d.*',
                  'expert.9.norm.weight'),
    'pi0': Names(f'{PI0}1.input_layernorm.weight', 'expert.1.input_layernorm.weight', [24],
                 rf'{PI0}\d.input_layernorm.weight', 'normalize_inputs.mean',
                 'model.action_in_proj.weight', 'action_in_proj.weight'),
    # Of older files, which held statistics.
    'smolvla': Names(f'{SMOLVLA}2.input_layernorm.weight', 'expert.2.input_layernorm.weight', [12],
                     rf'{SMOLVLA}\d.input_layernorm.weight', 'normalize_inputs.so100.mean',
                     'model.action_in_proj.weight', 'action_in_proj.weight'),
    'xiaomi': Names('dit.layers.1.middle_layernorm.weight', 'expert.1.middle_layernorm.weight',
                    [32], r'dit.layers.\d.\w+.weight', 'choice.weight'),
    'gr00t': Names(f'{EAGLE}1.self_attn.q_norm.weight', 'language_model.1.self_attn.q_norm.weight',
                   [16], r'backbone.*norm.weight', 'action_head.mask_token',
                   'action_head.future_tokens.weight', 'future_tokens.weight'),
}
SIZED = [kind for kind, names in NAMES.items() if names.size]


@pytest.fixture
def folder(kind, saved, tmp_path) -> Path:
    return shutil.copytree(saved if kind == 'tiny' else FOLDER / kind, tmp_path / 'checkpoint')


@pytest.fixture
def load(kind, folder, model_config):
    if kind == 'tiny':
        return lambda: registry.load(model_config(checkpoint=str(folder)), 'cpu')
    return GOLDEN[kind].at(folder).load


def spoilt(value: float):
    """Put a value in one place of a tensor."""
    def change(names, found):
        found[names.key].flatten()[-1] = value
    return change


WEIGHTS = {
    'missing': (lambda n, w: w.pop(n.key), '{name} {shape} is missing; nearest is {nearest}'),
    'misspelt': (lambda n, w: w.update({f'{n.key}s': w.pop(n.key)}),
                 "{key}s is no tensor of the model; nearest is '{name}'\n"
                 "{name} {shape} is missing; nearest is '{key}s'"),
    'unexpected': (lambda n, w: w.update({n.unexpected: torch.zeros(1)}),
                   '{unexpected} is no tensor of the model'),
    'other shape': (lambda n, w: w.update({n.key: w[n.key][..., :5].contiguous()}),
                    r'{key} has shape \[(32, )?5\], the model takes {shape}'),
    'integers': (lambda n, w: w.update({n.key: w[n.key].long()}),
                 '{key} holds I64, the model takes one of F'),
    'not a number': (spoilt(math.nan), '{key} has values that are not finite'),
    'infinite': (spoilt(-math.inf), '{key} has values that are not finite'),
}
SIZES = {
    'missing': (lambda n, w: w.pop(n.size), "'{}' is missing or has another shape"),
    'another rank': (lambda n, w: w.update({n.size: torch.zeros(5)}),
                     "'{}' is missing or has another shape"),
}


@pytest.mark.parametrize('change, message', WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize('kind', NAMES)
def test_weights_that_do_not_fit_are_named(kind, folder, load, change, message):
    names = NAMES[kind]
    weights(lambda found: change(names, found))(folder)
    message = message.format(nearest=f"'{names.nearest}'", **{
        part: re.escape(str(getattr(names, part)))
        for part in ('key', 'name', 'shape', 'unexpected')})
    with pytest.raises(ValueError, match=message):
        load()


@pytest.mark.parametrize('change, message', SIZES.values(), ids=SIZES)
@pytest.mark.parametrize('kind', SIZED)
def test_without_a_weight_off_which_a_size_is_read_none_fits(kind, folder, load, change, message):
    names = NAMES[kind]
    weights(lambda found: change(names, found))(folder)
    message = f'{message.format(names.size_name)} than in any {GOLDEN[kind].architecture}'
    with pytest.raises(ValueError, match=message):
        load()


@pytest.mark.parametrize('kind', NAMES)
def test_a_folder_that_is_not_there_is_said(kind, folder, load):
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match='checkpoint does not exist; give the folder that holds'):
        load()


@pytest.mark.parametrize('kind', NAMES)
def test_a_pickle_is_not_enough(kind, folder, load):
    for path in folder.glob('model*.safetensors*'):
        path.rename(folder / f'pytorch_{path.stem}.bin')
    with pytest.raises(ValueError, match=r'has no model.safetensors; it has .*pytorch_model.*bin'):
        load()


ROBOTS = [
    ('pi0', {'step_duration': 0.0}, 'step_duration: .* write 1 / the frames per second'),
    ('pi0', {'joints': JOINTS[:7]}, 'joints: .* trained with 8, the factory file names 7'),
    ('pi0', {'cameras': ('base_0_rgb', 'hand')},
     "cameras.hand: .* no camera 'hand', it has base_0_rgb"),
    ('pi0', {'tokenizer': ''}, 'has no tokenizer: copy tokenizer.json, or tokenizer.model, of '
     'google/paligemma-3b-pt-224'),
    ('smolvla', {'step_duration': 0.0}, 'step_duration: .* write 1 / the frames per second'),
    ('smolvla', {'joints': JOINTS[:5]}, 'joints: .* trained with 6, the factory file names 5'),
    ('smolvla', {'cameras': ('image', 'hand')},
     "cameras.hand: .* no camera 'hand', it has image"),
    ('xiaomi', {'step_duration': 0.0}, 'step_duration: .* write 1 / the frames per second'),
    ('xiaomi', {'joints': MANY}, 'joints: .* with 32, .* names 33'),
    ('xiaomi', {'cameras': ('hand',)},
     "cameras.hand: .* no camera 'hand', it has base, wrist_left"),
    ('gr00t', {'joints': JOINTS[:7]}, 'joints: .* trained with 8, the factory file names 7'),
    ('gr00t', {'cameras': ('hand', 'front')},
     "cameras.hand: .* no camera 'hand', it has front, wrist"),
    ('gr00t', {'tokenizer': ''}, 'has no tokenizer: copy vocab.json, merges.txt and '
     'added_tokens.json of lerobot/eagle2hg-processor-groot-n1p5'),
    ('gr00t', {'tokenizer': str(FOLDER / 'tokenizer.json')}, r'it has no token <\|im_start\|>'),
    *((kind, {'actions': ACTIONS[:6]}, 'actions: .* trained with 7, the factory file names 6')
      for kind in GOLDEN if kind in NAMES),
]


@pytest.mark.parametrize('kind, changes, message', ROBOTS,
                         ids=[f'{kind}-{next(iter(changes))}' for kind, changes, _ in ROBOTS])
def test_robots_that_do_not_fit_a_checkpoint_are_told_why(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        GOLDEN[kind].load(**changes)


@pytest.mark.parametrize('kind, mend', [
    ('smolvla', 'tokenizer.json of HuggingFaceTB/SmolVLM2-500M-Video-Instruct'),
    ('xiaomi', 'tokenizer.json of Qwen/Qwen3-VL-4B-Instruct there')])
def test_a_tokenizer_that_a_folder_should_hold_is_asked_for(kind, folder, load, mend):
    (folder / 'tokenizer.json').unlink()
    with pytest.raises(ValueError, match=f'has no tokenizer: copy {mend}'):
        load()


DESCRIBED = {
    'pi0': (('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'), (8, 7, 6)),
    'smolvla': (('image', 'wrist', 'side'), (6, 7, 6)),
    'xiaomi': (('base', 'wrist_left'), (32, 7, 6)),
    'gr00t': (('front', 'wrist'), (8, 7, 5)),
}


@pytest.mark.parametrize('kind', DESCRIBED)
def test_a_folder_describes_itself(kind, folder):
    golden, names = GOLDEN[kind].at(folder), NAMES[kind]
    inspect = registry.find(golden.architecture).inspect
    described = inspect(folder, golden.model().tokenizer)
    sizes = described.state_size, described.action_size, described.horizon
    assert (described.cameras, sizes) == DESCRIBED[kind] and not described.problems
    assert described.tokenizer == (golden.model().tokenizer or str(folder / 'tokenizer.json'))
    weights(lambda found: found.pop(names.key))(folder)
    (folder / 'tokenizer.json').unlink(missing_ok=True)
    problems = '\n'.join(inspect(folder).problems)
    assert f'{names.name} {names.shape} is missing' in problems
    assert 'has no tokenizer' in problems


@pytest.mark.parametrize('kind', ['pi0', 'smolvla'])
def test_a_base_model_serves_robots_of_fewer_joints(kind, folder, load):
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        edit_json(folder / name, lambda values: [step['config'].update(norm_map={})
                  for step in values['steps'] if 'normalizer' in step['registry_name']])
    model = load(joints=('a', 'b'), actions=('a', 'b', 'c'))
    assert (model.spec.state_size, model.spec.action_size) == (2, 3)
    seen = replace(GOLDEN[kind].observation(0), state=np.array([5, 6], np.float32))
    assert model.preprocess(seen)['state'].tolist() == [5, 6] + [0] * 30
    assert model.postprocess(torch.ones(6, 32), seen).tolist() == [[1, 1, 1]] * 6
