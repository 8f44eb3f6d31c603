# SPDX-License-Identifier: Apache-2.0
"""
Make the golden files of SmolVLA with lerobot itself; nothing else needs it.

    pip install torch 'lerobot[smolvla]==0.6.1' transformers==5.5.4
    python test/golden/make_smolvla.py

writes a checkpoint folder as lerobot saves it, of a network with few and narrow layers, and what
lerobot makes of three observations: inputs after processing, tokens of the prefix, keys and values
of the prefix and those that the expert's odd layers make of them, the velocity at each step, the
chunk, the actions in the robot's units, and the chunks of all three as one batch. Knows nothing of
this package.
"""

import json
from pathlib import Path
import shutil
import sys
from types import SimpleNamespace

import lerobot
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.smolvla import smolvlm_with_expert
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from lerobot.policies.smolvla.processor_smolvla import make_smolvla_pre_post_processors
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.processor import tokenizer_processor
import numpy as np
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers, Tokenizer, trainers
import torch
from torch.nn.functional import pad
import transformers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig

HERE = Path(__file__).parent
FOLDER = HERE / 'smolvla'
VOCABULARY, STATE, ACTION, CHUNK = 400, 6, 7, 6
PROMPTS = ('pick', ' put_the 12 blue balls\ninto the box ', 'öffne die Tür and close it\n')
CAMERAS = ('image', 'images.wrist', 'images.side')
SHAPES = (60, 80), (24, 41), (70, 50)
"""Of the pictures: of a camera's aspect and as much larger, small and wide, higher."""
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<fake_token_around_image>', '<image>',
           '<global-img>', '<end_of_utterance>']

SIZES = SmolVLMConfig(
    scale_factor=4, image_token_id=4, pad_token_id=2,
    text_config={'model_type': 'llama', 'vocab_size': VOCABULARY, 'hidden_size': 16,
                 'intermediate_size': 24, 'num_hidden_layers': 5, 'num_attention_heads': 4,
                 'num_key_value_heads': 2, 'head_dim': 64, 'rms_norm_eps': 1e-5,
                 'rope_theta': 100_000.0, 'pad_token_id': 2, 'max_position_embeddings': 8192},
    vision_config={'hidden_size': 24, 'intermediate_size': 40, 'num_hidden_layers': 2,
                   'num_attention_heads': 12, 'image_size': 64, 'patch_size': 8})
"""Heads of keys as wide, and as many of the pictures, as in the published model."""


def make_tokenizer() -> Tokenizer:
    """Train a tokenizer built as SmolVLM's is, on a few lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(PROMPTS, trainers.BpeTrainer(
        vocab_size=VOCABULARY - 100, show_progress=False,
        special_tokens=[AddedToken(name, special=True) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def build(config: SmolVLAConfig) -> SmolVLAPolicy:
    """Return a policy whose weights are all away from where training starts."""
    tokens = SimpleNamespace(fake_image_token_id=3, global_image_token_id=5)
    smolvlm_with_expert.AutoConfig = SimpleNamespace(from_pretrained=lambda name: SIZES)
    smolvlm_with_expert.AutoProcessor = SimpleNamespace(
        from_pretrained=lambda name: SimpleNamespace(tokenizer=tokens))
    policy = SmolVLAPolicy(config).eval()
    generator = torch.Generator().manual_seed(7)
    for weight in policy.parameters():
        drawn = torch.rand(weight.shape, generator=generator) * 2 - 1
        fan = weight[0].numel() if weight.ndim > 1 else 25
        # Of a precision that half of them can be stored in, as mixed checkpoints do.
        weight.data = (drawn * (3 / fan) ** 0.5).bfloat16().float()
    # What comes into both stacks is small, so that the epsilon of the norms counts.
    vlm = policy.model.vlm_with_expert.vlm.model
    for part in (vlm.text_model.embed_tokens, vlm.connector.modality_projection.proj,
                 policy.model.state_proj, policy.model.action_time_mlp_out):
        for weight in part.parameters():
            weight.data /= 16
    return policy


def statistics() -> dict[str, dict[str, torch.Tensor]]:
    """Return statistics of joints in degrees, one of which never moves, and one hardly."""
    rng = np.random.default_rng(5)
    found = {}
    for key, size in (('observation.state', STATE), ('action', ACTION)):
        mean, std = rng.uniform(-90, 90, size), rng.uniform(0.05, 30, size)
        std[2] = 0
        mean[3], std[3] = 0.02, 1e-4  # So little that the epsilon counts.
        found[key] = {name: torch.tensor(values, dtype=torch.float32) for name, values in {
            'mean': mean, 'std': std, 'min': mean - std, 'max': mean + std}.items()}
    return found


def observe(number: int, stats) -> dict[str, np.ndarray]:
    """Return what a robot sees: smooth pictures with some noise, and a state in its range."""
    rng = np.random.default_rng(number)
    seen = {}
    for camera, (height, width) in zip(CAMERAS, SHAPES, strict=True):
        blocks = rng.integers(0, 200, (4, 5, 3), dtype=np.uint8)
        picture = np.array(Image.fromarray(blocks).resize((width, height), Image.BICUBIC))
        seen[f'observation.{camera}'] = picture + rng.integers(
            0, 50, picture.shape, dtype=np.uint8)
    mean, std = (stats['observation.state'][name].numpy() for name in ('mean', 'std'))
    seen['observation.state'] = (mean + std * rng.normal(size=STATE)).astype(np.float32)
    return seen


class Recorder:
    """Keeps what the parts of a policy give while it makes a chunk."""

    def __init__(self, policy: SmolVLAPolicy) -> None:
        self.embed, policy.model.embed_prefix = policy.model.embed_prefix, self.keep_prefix
        self.step, policy.model.denoise_step = policy.model.denoise_step, self.keep_step
        self.layers = policy.model.vlm_with_expert.lm_expert.layers
        for layer in self.layers[1::2]:
            for part in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                part.register_forward_hook(lambda module, given, result: self.crossed.append(
                    result))

    def start(self) -> None:
        self.velocities, self.crossed, self.cache = [], [], None

    def keep_prefix(self, *arguments, **named):
        result = self.embed(*arguments, **named)
        self.prefix, self.valid, _ = result
        return result

    def keep_step(self, **arguments):
        if self.cache is None:
            self.cache = torch.stack([torch.stack((layer.keys, layer.values), 1) for layer in
                                      arguments['past_key_values'].layers], 1).clone()
        self.velocities.append(self.step(**arguments))
        return self.velocities[-1]

    def cross(self) -> torch.Tensor:
        """Return what the first step made for the odd layers, [B, layers / 2, 2, G, K, D]."""
        batch, _, _, groups, count, size = self.cache.shape
        first = self.crossed[:len(self.layers) // 2 * 2]
        parts = [part.view(batch, count, groups, size).transpose(1, 2) for part in first]
        return torch.stack([torch.stack(pair, 1) for pair in
                            zip(parts[::2], parts[1::2], strict=True)], 1)


def save_checkpoint(policy: SmolVLAPolicy, pipelines, tokenizer: Tokenizer) -> None:
    """Save as lerobot does; then store what the published checkpoints do in half precision."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    policy.save_pretrained(FOLDER)
    for pipeline in pipelines:
        pipeline.save_pretrained(FOLDER)
    tokenizer.save(str(FOLDER / 'tokenizer.json'), pretty=False)
    config = json.loads((FOLDER / 'config.json').read_text())
    (FOLDER / 'config.json').write_text(json.dumps(config, indent=2) + '\n')
    path = FOLDER / 'model.safetensors'
    stored = {key: weight.bfloat16() if '.vlm_with_expert.' in key else weight
              for key, weight in sorted(load_file(path).items())}
    save_file(stored, path, metadata={'format': 'pt'})
    for path in (*FOLDER.iterdir(), HERE / 'smolvla.safetensors'):
        path.chmod(0o644)


def main() -> None:
    """Write everything beside this file."""
    torch.set_num_threads(1)
    inputs = {f'observation.{camera}': PolicyFeature(FeatureType.VISUAL, (3, *shape))
              for camera, shape in zip(CAMERAS, SHAPES, strict=True)}
    inputs['observation.state'] = PolicyFeature(FeatureType.STATE, (STATE,))
    config = SmolVLAConfig(
        input_features=inputs, device='cpu', push_to_hub=False, chunk_size=CHUNK,
        output_features={'action': PolicyFeature(FeatureType.ACTION, (ACTION,))},
        n_action_steps=CHUNK, num_vlm_layers=4, resize_imgs_with_padding=(64, 64),
        empty_cameras=1)
    stats, tokenizer = statistics(), make_tokenizer()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token='<|im_end|>')
    tokenizer_processor.AutoTokenizer = SimpleNamespace(from_pretrained=lambda name: fast)
    pipelines = preprocess, postprocess = make_smolvla_pre_post_processors(config, stats)
    policy = build(config)
    golden, rows, recorder = {}, [], Recorder(policy)
    for number, prompt in enumerate(PROMPTS):
        seen = observe(number, stats)
        if number == 1:
            del seen['observation.images.wrist']
        golden |= {f'{number}.{key}': torch.from_numpy(value.copy())
                   for key, value in seen.items()}
        noise = torch.rand((1, CHUNK, config.max_action_dim),
                           generator=torch.Generator().manual_seed(number))
        noise = (noise - 0.5) * 3.4
        batch = preprocess(prepare_observation_for_inference(seen, torch.device('cpu'), prompt))
        images, masks = policy.prepare_images(batch)
        if number == 1:  # Only one place of a missing camera is filled; a batch needs both.
            images, masks = [*images, images[-1]], [*masks, masks[-1]]
        tokens, token_mask = (batch[f'observation.language.{name}'] for name in
                              ('tokens', 'attention_mask'))
        rows.append((images, masks, tokens, token_mask, policy.prepare_state(batch), noise))
        recorder.start()
        chunk = policy.predict_action_chunk(batch, noise=noise)
        if number == 0:
            golden['0.images'] = torch.stack(images[:3], 1)[0].contiguous()
        if number == 1:
            golden |= {'1.cache': recorder.cache[0], '1.cross': recorder.cross()[0]}
        golden |= {f'{number}.noise': noise[0], f'{number}.chunk': chunk[0].contiguous(),
                   f'{number}.state': batch['observation.state'][0],
                   f'{number}.tokens': tokens[0].int(), f'{number}.token_mask': token_mask[0],
                   f'{number}.prefix': recorder.prefix[0], f'{number}.valid': recorder.valid[0],
                   f'{number}.velocities': torch.cat(recorder.velocities),
                   f'{number}.actions': postprocess(chunk)[0].contiguous()}
    longest = max(len(row[2][0]) for row in rows)
    batch = [[torch.cat(parts) for parts in zip(*(row[index] for row in rows), strict=True)]
             for index in (0, 1)]
    batch += [torch.cat([pad(row[index], (0, longest - len(row[index][0]))) for row in rows])
              for index in (2, 3)]
    golden['batch.chunk'] = policy.model.sample_actions(
        *batch, torch.cat([row[4] for row in rows]), noise=torch.cat([row[5] for row in rows]))
    versions = {'lerobot': lerobot.__version__, 'transformers': transformers.__version__,
                'torch': torch.__version__.split('+')[0], 'prompts': json.dumps(PROMPTS),
                'python': '.'.join(map(str, sys.version_info[:2]))}
    save_file({key: value.contiguous() for key, value in golden.items()},
              HERE / 'smolvla.safetensors', metadata=versions)
    save_checkpoint(policy, pipelines, tokenizer)


if __name__ == '__main__':
    main()
