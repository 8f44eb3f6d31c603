# SPDX-License-Identifier: Apache-2.0
"""
GR00T N1.5 from checkpoints gives what lerobot and Isaac-GR00T give with them, stage by stage.

The numbers were made by those two: see test/golden/make_gr00t.py. What one more rounding moves is
about 1e-6.
"""

import numpy as np
import pytest
import torch

from robion_ros.models import registry

from . import gr00t_golden as golden

EXACT = {'atol': 1e-5, 'rtol': 1e-5}
NUMBERS = range(3)
MAKERS = {'isaac': golden.isaac_folder, 'lerobot': golden.lerobot_folder}


class Case:
    """One layout: a model for the robots of each observation; the second has a camera less."""

    def __init__(self, layout: str, folder) -> None:
        self.layout, self.folder = layout, MAKERS[layout](folder)
        self.models = [self.load(golden.cameras(number)) for number in NUMBERS]

    def load(self, names, **changes):
        return registry.load(golden.model_of(self.folder, names, **changes), 'cpu')

    def __call__(self, number: int, name: str) -> torch.Tensor:
        return golden.tensors()[f'{self.layout}.{number}.{name}']

    def inputs(self, number: int) -> dict[str, torch.Tensor]:
        found = self.models[number].preprocess(golden.observation(number))
        return {name: tensor[None] for name, tensor in found.items()}

    def run(self, number: int) -> torch.Tensor:
        model = self.models[number]
        return model.adit(model.vlm(self.inputs(number)), self(number, 'noise')[None])[0]


@pytest.fixture(scope='module', params=MAKERS)
def case(request, tmp_path_factory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp(request.param) / 'checkpoint')


def test_sizes_are_those_of_the_checkpoint(case):
    spec = case.models[0].spec
    assert (spec.cameras, spec.state_size, spec.action_size, spec.horizon) == (2, 8, 7, 5)
    assert case.models[0].denoising_steps == 4 and case.models[1].spec.cameras == 1
    assert case.models[0].config.times == (0, 250, 500, 750)
    assert case.models[0].config.embodiment == (31 if case.layout == 'isaac' else 24)
    assert case.models[0].config.context_tokens % 8 == 0


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_are_the_reference_s(case, number):
    model, inputs = case.models[number], case.inputs(number)
    found = inputs['tokens'][0][inputs['token_mask'][0]].tolist()
    wanted = case(number, 'tokens').tolist()
    picture = 342  # <IMG_CONTEXT>, which stands for a picture's tokens; here none has to.
    assert found == [token for token in wanted if token != picture]
    assert wanted.count(picture) == model.config.cameras * model.config.image_tokens
    places = np.flatnonzero(np.array(wanted) == picture)
    assert places[0] == model.config.text_before[0]


@pytest.mark.parametrize('number', NUMBERS)
def test_states_are_the_reference_s(case, number):
    torch.testing.assert_close(case.inputs(number)['state'][0], case(number, 'network_state'),
                               atol=0, rtol=0)


def test_pictures_are_the_reference_s(case):
    images = case.inputs(0)['images'][0]
    assert images.dtype == torch.uint8
    seen = (images / 127.5 - 1).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen, case(0, 'pixels'), atol=1e-6, rtol=0)


@torch.inference_mode()
def test_pictures_tokens_are_the_reference_s(case):
    net = case.models[0].network
    seen = net.vision_tower(case.inputs(0)['images'][0] / 127.5 - 1)
    torch.testing.assert_close(net.multi_modal_projector(seen), case(0, 'seen'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
@torch.inference_mode()
def test_features_are_the_reference_s(case, number):
    model = case.models[number]
    features, valid = model.read(case.inputs(number))
    torch.testing.assert_close(features[valid], case(number, 'features'), **EXACT)
    torch.testing.assert_close(model.adapt(features, valid)[valid], case(number, 'adapted'),
                               **EXACT)


def test_the_hand_over_is_the_reference_s(case):
    context = case.models[2].vlm(case.inputs(2))
    valid = context['valid'][0]
    for found, name in zip(context['cache'][0, 1], ('keys', 'values'), strict=True):
        torch.testing.assert_close(found.transpose(0, 1).flatten(1)[valid], case(2, name), **EXACT)
    torch.testing.assert_close(context['state'][0], case(2, 'state_token'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
def test_velocities_chunk_and_actions_are_the_reference_s(case, number, monkeypatch):
    model, velocities = case.models[number], []
    velocity = model.velocity

    def keep(*arguments):
        velocities.append(velocity(*arguments))
        return velocities[-1]
    monkeypatch.setattr(model, 'velocity', keep)
    chunk = case.run(number)
    torch.testing.assert_close(torch.cat(velocities), case(number, 'velocities'), **EXACT)
    torch.testing.assert_close(chunk, case(number, 'chunk'), **EXACT)
    # Scaled to the robot's units, tens of degrees, a rounding is as many times larger.
    np.testing.assert_allclose(model.postprocess(chunk, golden.observation(number)),
                               case(number, 'actions'), atol=3e-5, rtol=1e-5)


def with_room_for_the_missing(case) -> dict[str, torch.Tensor]:
    """Return the inputs of the second observation for a model of two cameras."""
    model, row = case.models[0], {name: tensor[0] for name, tensor in case.inputs(1).items()}
    before = model.config.text_before
    whole = model.preprocess(golden.observation(0))
    # The text between the pictures and the end of the second one belong to the missing camera.
    middle = whole['tokens'][before[0]:sum(before)]
    words = row['tokens'][row['token_mask']]
    tokens = torch.cat((words[:before[0]], words[before[0]:before[0] + 1], middle[1:],
                        middle[:1], words[before[0] + 1:]))
    mask = torch.ones(len(tokens), dtype=torch.bool)
    mask[before[0] + 1:sum(before) + 1] = False
    room = model.config.text_tokens - len(tokens)
    return {'images': torch.cat((row['images'], 77 * torch.ones_like(row['images']))),
            'image_mask': torch.tensor([True, False]), 'state': row['state'],
            'tokens': torch.nn.functional.pad(tokens, (0, room)),
            'token_mask': torch.nn.functional.pad(mask, (0, room), value=False)}


def test_a_batch_of_different_prompts_and_cameras_gives_what_each_gives_alone(case):
    model = case.models[0]
    rows = [model.preprocess(golden.observation(number)) for number in NUMBERS if number != 1]
    rows.insert(1, with_room_for_the_missing(case))
    inputs = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    noise = torch.stack([case(number, 'noise') for number in NUMBERS])
    together = model.adit(model.vlm(inputs), noise)
    for number in NUMBERS:
        torch.testing.assert_close(together[number], case(number, 'chunk'), **EXACT)


def test_cameras_are_told_by_name_whatever_their_order(case):
    names = golden.CAMERAS[::-1]
    model = case.load(names)
    inputs = {name: tensor[None] for name, tensor in
              model.preprocess(golden.observation(0, names)).items()}
    chunk = model.adit(model.vlm(inputs), case(0, 'noise')[None])[0]
    torch.testing.assert_close(chunk, case(0, 'chunk'), **EXACT)


def test_the_steps_of_a_chunk_last_as_long_as_those_of_the_recordings(case):
    if case.layout == 'lerobot':
        with pytest.raises(ValueError, match=r'step_duration: .* write 1 / the frames per'):
            case.load(golden.CAMERAS, step_duration=0.0)
    else:
        assert case.load(golden.CAMERAS, step_duration=0.0).spec.step_duration == 0.05
    assert case.models[0].spec.step_duration == 0.02


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
def test_bfloat16_on_a_gpu_is_near_the_reference(case):
    model = registry.load(golden.model_of(case.folder), 'cuda:0')
    inputs = {name: tensor.cuda() for name, tensor in case.inputs(0).items()}
    chunk = model.adit(model.vlm(inputs), case(0, 'noise')[None].cuda())[0].cpu()
    difference = (chunk - case(0, 'chunk')).abs()
    assert difference.max() < 0.05 and difference.mean() < 0.01
    layer = model.network.language_model[0]
    assert layer.mlp.down_proj.weight.dtype == torch.bfloat16
    assert layer.input_layernorm.weight.dtype == torch.float32
