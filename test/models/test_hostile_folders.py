# SPDX-License-Identifier: Apache-2.0
"""Whatever a checkpoint's files hold: it is described, or a ValueError says what is wrong."""

from collections.abc import Iterator
import copy
import json
from pathlib import Path
import random
import shutil
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
import torch

from robion_ros.models import registry
from robion_ros.models.folder import CheckpointError
from robion_ros.models.layouts import detect

from .golden import edit_json, edit_weights, FOLDER, lerobot_folder, openpi_folder

CHANGES = 150
"""Of each kind of folder, out of some thousands."""
VALUES = (None, True, 0, -1, 10 ** 9, 10 ** 400, 0.5, float('inf'), float('nan'), '', 'x', [], [1],
          ['a'], [None], {}, {'a': {'b': 1}}, [[1], [2, 3]])
KINDS = 'pi0', 'pi05', 'smolvla', 'xiaomi', 'gr00t', 'gr00t_lerobot', 'openpi'
LAYER = 'model.paligemma_with_expert.paligemma.model.language_model.layers.{}.mlp.up_proj.weight'


@pytest.fixture
def make(tmp_path: Path):
    def make(kind: str) -> Path:
        folder = tmp_path / kind
        if kind == 'openpi':
            return openpi_folder(folder, 'pi05', max_token_len=48, asset_id='robot')
        if kind == 'gr00t_lerobot':
            return lerobot_folder(folder)
        return Path(shutil.copytree(FOLDER / kind, folder))
    return make


def inspect(folder: Path):
    return registry.find(detect(folder).architecture).inspect(folder, '')


def places(values: Any, place: tuple = ()) -> Iterator[tuple]:
    yield place
    inner = (values.items() if isinstance(values, dict) else
             enumerate(values[:3]) if isinstance(values, list) else ())
    for key, value in inner:
        yield from places(value, (*place, key))


def changed(values: Any, place: tuple, value: object) -> Any:
    if not place:
        return value
    whole = at = copy.deepcopy(values)
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return whole


@pytest.mark.parametrize('kind', KINDS)
def test_any_value_in_any_place_is_taken_or_refused_with_a_reason(make, kind, monkeypatch):
    # Networks are made to be compared, not used: what they begin with takes a third of the time.
    monkeypatch.setattr(torch.nn.Linear, 'reset_parameters', lambda layer: None)
    folder = make(kind)
    files = [path for path in folder.rglob('*.json') if path.name not in (
        'tokenizer.json', 'model.safetensors.index.json')]
    texts = {path: path.read_text() for path in sorted(files)}
    found = [(path, place, value) for path, text in texts.items()
             for place in places(json.loads(text)) for value in VALUES]
    for path, place, value in random.Random(1).sample(found, CHANGES):
        path.write_text(json.dumps(changed(json.loads(texts[path]), place, value)))
        try:
            inspect(folder)
        except ValueError:
            pass
        except Exception as error:
            pytest.fail(f'{path.name}: {place} = {value!r:.40}: {error!r}')
        finally:
            path.write_text(texts[path])


@pytest.mark.parametrize(('kind', 'name'), [
    ('pi0', 'config.json'), ('pi0', 'policy_preprocessor.json'),
    ('pi05', 'model.safetensors.index.json'), ('gr00t', 'experiment_cfg/metadata.json'),
    ('openpi', 'assets/robot/norm_stats.json'), ('xiaomi', 'preprocessor_config.json')])
def test_a_file_that_is_nested_without_end_is_refused(make, kind, name):
    folder = make(kind)
    (folder / name).write_text('[' * 100_000)
    with pytest.raises(CheckpointError, match=Path(name).name):
        inspect(folder)


CONFIGS = {
    'no steps of a chunk': ('pi0', {'chunk_size': 0}, 'steps of a chunk: 0'),
    'endless denoising': ('pi0', {'num_inference_steps': 10 ** 9}, 'denoising steps: 1000000000'),
    'no denoising': ('smolvla', {'num_steps': 0}, 'denoising steps: 0'),
    'a prompt without end': ('pi0', {'tokenizer_max_length': 10 ** 9}, 'tokens of a prompt: 1'),
    'periods the other way': ('pi0', {'min_period': 4.0, 'max_period': 0.004}, 'min_period is 4'),
    'no camera': ('pi0', {'input_features': {'observation.state': {
        'type': 'STATE', 'shape': [8]}}}, 'cameras of input_features: 0'),
    'no state': ('pi0', {'input_features': {'observation.state': {
        'type': 'STATE', 'shape': [0]}}}, 'one number above 0'),
    'layers counted from the end': ('gr00t', {'embodiment_id': -1}, 'embodiment_id: -1'),
    'no horizon': ('openpi', {'action_horizon': -1}, 'steps of a chunk: -1'),
    'a picture without end': ('xiaomi', {'image_sizes': {'base': [10 ** 9, 64]}},
                              'from 1 to 8192'),
}


@pytest.mark.parametrize(('kind', 'fields', 'message'), CONFIGS.values(), ids=CONFIGS)
def test_a_number_that_cannot_be_is_named(make, kind, fields, message):
    folder = make(kind)
    edit_json(folder / 'config.json', lambda values: values.update(fields))
    with pytest.raises(CheckpointError, match=message):
        inspect(folder)


def test_a_million_layers_are_not_made(make):
    folder = make('pi0')
    edit_weights(folder, lambda w: w.update({LAYER.format(999_999): w[LAYER.format(1)].clone()}))
    with pytest.raises(CheckpointError, match=r'language_model\.3. is missing'):
        inspect(folder)


def test_a_size_without_axes_is_refused(make):
    folder = make('pi0')
    edit_weights(folder, lambda w: w.update({
        LAYER.format(0).replace('up', 'gate'): torch.tensor(1.0)}))
    with pytest.raises(CheckpointError, match='another shape than in any pi0'):
        inspect(folder)


def test_a_deviation_below_zero_would_mirror_what_robots_do(make):
    folder = make('pi0')
    path, = folder.glob('policy_postprocessor_step_0_*.safetensors')
    statistics = load_file(path)
    save_file({name: -values if name.endswith('std') else values
               for name, values in statistics.items()}, path)
    with pytest.raises(CheckpointError, match='std is below 0'):
        inspect(folder)
