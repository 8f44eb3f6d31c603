# SPDX-License-Identifier: Apache-2.0
"""
What Isaac-GR00T's transforms make of the observations of gr00t_data.py; make_gr00t.py runs it.

Knows nothing of this package.
"""

from gr00t.data.schema import DatasetMetadata
from gr00t.data.transform import base, concat, state_action, video
from gr00t_data import (
    ACTIONS,
    CAMERAS,
    HORIZON,
    IMAGE_SIZE,
    metadata_of,
    OTHER,
    PARTS,
    PROMPTS,
    STATES,
)
import numpy as np
import torch
from transformers import AutoProcessor


def transforms(cameras, modes, processor):
    """Return the transforms of a data set of Isaac-GR00T; modes are those of every part."""
    from gr00t.model.transforms import GR00TTransform
    views = [f'video.{camera}' for camera in cameras]
    keys = {kind: [f'{kind}.{key}' for key in of] for kind, of in modes.items()}
    steps = [video.VideoToTensor(apply_to=views), video.VideoCrop(apply_to=views, scale=0.95),
             video.VideoResize(apply_to=views, height=IMAGE_SIZE, width=IMAGE_SIZE,
                               interpolation='linear'), video.VideoToNumpy(apply_to=views)]
    for kind, of in modes.items():
        turned = [f'{kind}.{key}' for key, mode in of.items() if mode == 'sin_cos']
        scaled = {f'{kind}.{key}': mode for key, mode in of.items() if mode not in ('', 'sin_cos')}
        steps.append(state_action.StateActionToTensor(apply_to=keys[kind]))
        if turned:
            steps.append(state_action.StateActionSinCosTransform(apply_to=turned))
        steps.append(state_action.StateActionTransform(
            apply_to=[key for key in keys[kind] if key not in turned],
            normalization_modes=scaled))
    steps.append(concat.ConcatTransform(
        video_concat_order=views, state_concat_order=keys['state'],
        action_concat_order=keys['action']))
    if processor is not None:
        steps.append(GR00TTransform(
            state_horizon=1, action_horizon=HORIZON, max_state_dim=STATES,
            max_action_dim=ACTIONS, eagle_processor=processor))
    return base.ComposedModalityTransform(transforms=steps)


def make_isaac(processor, observations, metadata, answer):
    """Return what Isaac-GR00T's processing and a network, answer, make of the observations."""
    AutoProcessor.from_pretrained = lambda *_, **__: processor
    described = DatasetMetadata.model_validate(metadata['new_embodiment'])
    found = {}
    for number, (seen, prompt) in enumerate(zip(observations, PROMPTS, strict=True)):
        chain = transforms([camera for camera in CAMERAS if camera in seen], {
            kind: dict.fromkeys(of, 'min_max') for kind, of in PARTS.items()}, processor)
        chain.set_metadata(described)
        chain.eval()
        data = {f'video.{camera}': seen[camera][None, None] for camera in CAMERAS
                if camera in seen}
        places = np.cumsum(list(PARTS['state'].values()))[:-1]
        data |= {f'state.{key}': value[None, None] for key, value in zip(
            PARTS['state'], np.split(seen['state'], places), strict=True)}
        inputs = chain(data | {'annotation.human.task_description': np.array([prompt])})
        row = answer(number, dict(inputs))
        actions = chain.unapply({'action': row['chunk'][None].clone()})
        row['actions'] = torch.cat([torch.as_tensor(actions[f'action.{key}'])[0]
                                    for key in PARTS['action']], -1)
        found |= {f'isaac.{number}.{name}': value for name, value in row.items()}
    return found


def scale_in_every_way():
    """Return metadata, and values before and after Isaac-GR00T's scaling in every mode."""
    metadata = metadata_of({kind: {key: size for key, (_, size) in of.items()}
                            for kind, of in OTHER.items()}, seed=20)
    chain = transforms(CAMERAS, {kind: {key: mode for key, (mode, _) in of.items()}
                                 for kind, of in OTHER.items()}, None)
    for step in chain.transforms:
        if not isinstance(step, video.VideoTransform):
            step.set_metadata(DatasetMetadata.model_validate(metadata['new_embodiment']))
    chain.transforms = [step for step in chain.transforms
                        if not isinstance(step, video.VideoTransform)]
    rng = np.random.default_rng(9)
    parts = {}
    for key, (mode, size) in OTHER['state'].items():
        parts[key] = rng.uniform(-90, 60, (4, size)).astype(np.float32)
        if mode == 'binary':
            parts[key] = rng.uniform(0, 1, (4, size)).astype(np.float32)
    state = chain({f'state.{key}': value for key, value in parts.items()})['state']
    size = sum(size for _, size in OTHER['action'].values())
    chunk = torch.from_numpy(rng.uniform(-1.5, 1.5, (4, size)).astype(np.float32))
    actions = chain.unapply({'action': chunk.clone()})
    whole = torch.cat([torch.as_tensor(actions[f'action.{key}']) for key in OTHER['action']], -1)
    return metadata, {'modes.given': torch.from_numpy(np.concatenate(list(parts.values()), 1)),
                      'modes.state': state.contiguous(), 'modes.chunk': chunk,
                      'modes.actions': whole}
