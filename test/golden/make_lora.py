# SPDX-License-Identifier: Apache-2.0
"""
Make the golden files of LoRA adapters with PEFT itself; nothing else needs it.

    pip install torch peft==0.21.2 transformers==5.5.4
    python test/golden/make_lora.py

puts an adapter on modules that are called as those of the golden policies beside it, where
lerobot puts one by default, saves it as lerobot does, and what merge_and_unload makes of the
tensors that it changes. Knows nothing of this package.
"""

import json
from pathlib import Path
import shutil

from peft import get_peft_model, LoraConfig
from safetensors.torch import load_file, save_file
import torch
from torch import nn

HERE = Path(__file__).parent
ENDS = r'model\.(state_proj|action_in_proj|action_out_proj|action_time_mlp_in|action_time_mlp_out)'
ADAPTERS = {
    'pi0': {'target_modules': rf'(.*\.gemma_expert\..*\.self_attn\.(q|v)_proj|{ENDS})',
            'modules_to_save': [], 'r': 4, 'lora_alpha': 6},
    'smolvla': {'target_modules': rf'(model\.vlm_with_expert\.lm_expert\..*\.(q|v)_proj|{ENDS})',
                'modules_to_save': ['connector'], 'r': 3, 'lora_alpha': 5, 'use_rslora': True,
                'rank_pattern': {'state_proj': 2},
                'alpha_pattern': {r'layers\.1\.self_attn\.q_proj': 7}}}


def build(tensors: dict[str, torch.Tensor]) -> nn.Module:
    """Return modules with these weights, matrices as Linear, which compute nothing together."""
    root = nn.Module()
    for key in sorted(tensors):
        *path, last = key.split('.')
        module = root
        for name in path[:-1]:
            if name not in module._modules:
                module.add_module(name, nn.Module())
            module = module._modules[name]
        if path[-1] not in module._modules:
            weight = tensors.get('.'.join([*path, 'weight']))
            linear = weight is not None and weight.dim() == 2
            module.add_module(path[-1], nn.Linear(
                *weight.shape[::-1], bias='.'.join([*path, 'bias']) in tensors)
                if linear else nn.Module())
        module = module._modules[path[-1]]
        module.register_parameter(last, nn.Parameter(tensors[key].float().clone()))
    return root


def make(kind: str, seed: int) -> None:
    """Write the adapter of a policy, and the tensors that it changes as they are then."""
    torch.manual_seed(seed)
    before = load_file(HERE / kind / 'model.safetensors')
    model = get_peft_model(build(before), LoraConfig(**ADAPTERS[kind]))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data.normal_(std=0.3)
    folder = HERE / f'{kind}_lora'
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / 'README.md').unlink(missing_ok=True)
    path = folder / 'adapter_config.json'
    config = json.loads(path.read_text()) | {'base_model_name_or_path': f'../{kind}'}
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + '\n')
    after = model.merge_and_unload().state_dict()
    assert after.keys() == before.keys()
    changed = {key: tensor.contiguous() for key, tensor in after.items()
               if not torch.equal(tensor, before[key].float())}
    save_file(changed, HERE / f'{kind}_lora.safetensors')
    print(kind, len(changed), 'of', len(before), 'tensors changed')


if __name__ == '__main__':
    for seed, kind in enumerate(ADAPTERS):
        make(kind, seed)
