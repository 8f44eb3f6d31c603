# SPDX-License-Identifier: Apache-2.0
"""Weights by their published names, written here from the other end, fill the networks."""

from dataclasses import dataclass
import json

import pytest
from safetensors.torch import save_file
import torch

from robion_ros.models import checkpoint, pi0_config, smolvla_config
from robion_ros.models.pi0 import Pi0Network
from robion_ros.models.smolvla import SmolvlaNetwork

PALIGEMMA = 'paligemma_with_expert.paligemma.model.'
GEMMA = 'paligemma_with_expert.gemma_expert.model.'
PI0 = {
    'vision_tower.layers.': f'{PALIGEMMA}vision_tower.vision_model.encoder.layers.',
    'vision_tower.post_layernorm.': f'{PALIGEMMA}vision_tower.vision_model.post_layernorm.',
    'vision_tower.': f'{PALIGEMMA}vision_tower.vision_model.embeddings.',
    'multi_modal_projector.': f'{PALIGEMMA}multi_modal_projector.linear.',
    'embed_tokens.': 'paligemma_with_expert.paligemma.lm_head.',
    'language_model.': f'{PALIGEMMA}language_model.layers.',
    'expert.': f'{GEMMA}layers.',
    'norm.': f'{GEMMA}norm.',
    '': ''}
BOTH = 'model.vlm_with_expert.'
VLM = f'{BOTH}vlm.model.'
SMOLVLA = {
    'vision_tower.layers.': f'{VLM}vision_model.encoder.layers.',
    'vision_tower.post_layernorm.': f'{VLM}vision_model.post_layernorm.',
    'vision_tower.': f'{VLM}vision_model.embeddings.',
    'connector.': f'{VLM}connector.modality_projection.proj.',
    'embed_tokens.': f'{VLM}text_model.embed_tokens.',
    'language_model.': f'{VLM}text_model.layers.',
    'expert.': f'{BOTH}lm_expert.layers.',
    'norm.': f'{BOTH}lm_expert.norm.',
    '': 'model.'}


@dataclass(frozen=True)
class Case:
    """How files of one origin call the weights of an architecture."""

    architecture: str
    network: type[torch.nn.Module]
    keys: object
    prefixes: dict[str, str]
    """By the beginnings of our names, the longest first."""
    unused: tuple[str, ...]
    """What the files hold besides; nothing reads it."""
    wrapped: str = ''

    def name(self, ours: str) -> str:
        prefix = next(prefix for prefix in self.prefixes if ours.startswith(prefix))
        name = self.prefixes[prefix] + ours.removeprefix(prefix)
        if 'vision_model' in name:
            name = name.replace('.o_proj.', '.out_proj.')
        return self.wrapped + name


HEAD, NORM = f'{BOTH}vlm.lm_head.', f'{VLM}text_model.norm.weight'
CASES = {
    f'{kind} of {origin}': Case(
        f'{kind}_small', Pi0Network, pi0_config.KEYS[kind], PI0,
        ('paligemma_with_expert.gemma_expert.lm_head.weight',
         f'{PALIGEMMA}language_model.norm.weight'), wrapped)
    for kind in ('pi0', 'pi05') for origin, wrapped in (('openpi', ''), ('lerobot', 'model.'))
} | {
    'smolvla': Case('smolvla_small', SmolvlaNetwork, smolvla_config.KEYS, SMOLVLA,
                    (f'{HEAD}weight', NORM)),
    'smolvla without embed_tokens': Case(
        'smolvla_small', SmolvlaNetwork, smolvla_config.KEYS,
        {**SMOLVLA, 'embed_tokens.': HEAD}, (NORM,)),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_published_checkpoints_fill_the_network(case, moved, tmp_path):
    model = moved(case.architecture)
    weights = checkpoint.named_weights(model.network)
    files = {case.name(name): weight.contiguous() for name, weight in weights.items()}
    files |= {case.wrapped + name: torch.ones(1) for name in case.unused}
    save_file(files, tmp_path / 'model.safetensors')
    (tmp_path / 'config.json').write_text(json.dumps({}))
    with torch.device('meta'):
        network = case.network(model.config).requires_grad_(False)
    checkpoint.load(tmp_path, network, torch.device('cpu'), case.keys)
    found = checkpoint.named_weights(network)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight, atol=0, rtol=0, msg=name)
