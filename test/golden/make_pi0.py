# SPDX-License-Identifier: Apache-2.0
"""
Make the golden files of pi0 and pi0.5 with lerobot itself; nothing else needs it.

    pip install torch 'lerobot[pi]==0.6.1' transformers==5.5.4
    python test/golden/make_pi0.py

writes, for each model, a checkpoint folder as lerobot saves it, of a network with few and narrow
layers, and what lerobot makes of three observations: inputs after processing, keys and values of
the prefix, the velocity at each step, the chunk, the actions in the robot's units, and the chunks
of all three as one batch. Knows nothing of this package.
"""

from contextlib import contextmanager
import json
from pathlib import Path
import shutil
import sys
from types import SimpleNamespace

import lerobot
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi0 import modeling_pi0
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi0.processor_pi0 import make_pi0_pre_post_processors
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.processor_pi05 import make_pi05_pre_post_processors
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.processor import tokenizer_processor
import numpy as np
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, normalizers, processors, Tokenizer, trainers
import torch
import transformers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
IMAGE_SIZE, PATCHES, VOCABULARY, STATE, ACTION = 56, 14, 400, 8, 7
PALIGEMMA_TOKENIZER = 'google/paligemma-3b-pt-224'
PROMPTS = ('pick', ' put_the blue ball\ninto the box ', 'öffne die Tür and close the drawer\n')
NAMES = ['x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper_position']
CAMERAS = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')
SHAPES = (96, 128), (45, 72), (80, 60)
"""Of the pictures: wider, wider and small, higher."""
LINES = [*PROMPTS, 'pick up the red cube', 'Task: pick, State: 0 12 128 255;\nAction: ',
         *(f'{value} ' for value in range(256))]

WIDTHS = {
    'gemma_2b': SimpleNamespace(width=32, depth=3, mlp_dim=48, num_heads=8, num_kv_heads=1,
                                head_dim=8),
    'gemma_300m': SimpleNamespace(width=24, depth=3, mlp_dim=40, num_heads=8, num_kv_heads=1,
                                  head_dim=8)}


def make_tokenizer() -> Tokenizer:
    """Train a tokenizer built as Gemma's is, on a few lines."""
    tokenizer = Tokenizer(models.BPE(unk_token='<unk>', byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(' ', '▁')
    tokenizer.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback()])
    special = ['<pad>', '<eos>', '<bos>', '<unk>', *(f'<0x{byte:02X}>' for byte in range(256))]
    tokenizer.train_from_iterator(
        LINES[:-256], trainers.BpeTrainer(vocab_size=VOCABULARY - 20, special_tokens=special,
                                          show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single='<bos> $A', special_tokens=[('<bos>', 2)])
    return tokenizer


@contextmanager
def narrow(modeling):
    """Let lerobot build a network of the same shape, with few and narrow layers."""
    paligemma, expert = (modeling.PaliGemmaForConditionalGenerationWithPiGemma,
                         modeling.PiGemmaForCausalLM)
    sizes = modeling.get_gemma_config

    def make_paligemma(config):
        config.text_config.vocab_size = VOCABULARY
        vars(config.vision_config).update(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=16, intermediate_size=40,
            patch_size=PATCHES, projection_dim=WIDTHS['gemma_2b'].width)
        return paligemma(config)

    def make_expert(config):
        config.vocab_size = 4
        return expert(config)
    modeling.PaliGemmaForConditionalGenerationWithPiGemma = make_paligemma
    modeling.PiGemmaForCausalLM, modeling.get_gemma_config = make_expert, WIDTHS.__getitem__
    yield
    modeling.PaliGemmaForConditionalGenerationWithPiGemma = paligemma
    modeling.PiGemmaForCausalLM, modeling.get_gemma_config = expert, sizes


def build(kind: str, config):
    """Return a policy whose weights are all away from where training starts."""
    modeling, name = ((modeling_pi0, 'PI0Policy') if kind == 'pi0' else
                      (modeling_pi05, 'PI05Policy'))
    with narrow(modeling):
        policy = getattr(modeling, name)(config).eval()
    if kind == 'pi05':  # One of the two is saved, as in the published checkpoints.
        paligemma = policy.model.paligemma_with_expert.paligemma
        paligemma.lm_head.weight = paligemma.model.language_model.embed_tokens.weight
    generator = torch.Generator().manual_seed(7)
    for weight in policy.parameters():
        drawn = torch.rand(weight.shape, generator=generator) * 2 - 1
        fan = weight[0].numel() if weight.ndim > 1 else 25
        # Of a precision that half of them can be stored in, as mixed checkpoints do.
        weight.data = (drawn * (3 / fan) ** 0.5).bfloat16().float()
    return policy


def config_of(kind: str):
    """Return the configuration of a policy, as a training run would have made it."""
    cameras = CAMERAS if kind == 'pi0' else ('front', 'wrist')
    inputs = {f'observation.images.{camera}': PolicyFeature(FeatureType.VISUAL, (3, *shape))
              for camera, shape in zip(cameras, SHAPES, strict=False)}
    inputs['observation.state'] = PolicyFeature(FeatureType.STATE, (STATE,))
    common = {'input_features': inputs, 'device': 'cpu', 'push_to_hub': False,
              'output_features': {'action': PolicyFeature(FeatureType.ACTION, (ACTION,))},
              'image_resolution': (IMAGE_SIZE, IMAGE_SIZE)}
    if kind == 'pi0':
        return PI0Config(chunk_size=6, n_action_steps=6, **common)
    return PI05Config(chunk_size=5, n_action_steps=4, num_inference_steps=4, empty_cameras=1,
                      use_relative_actions=True, action_feature_names=NAMES, **common)


def statistics() -> dict[str, dict[str, torch.Tensor]]:
    """Return statistics of joints in degrees, one of which never moves, and one hardly."""
    rng = np.random.default_rng(5)
    found = {}
    for key, size in (('observation.state', STATE), ('action', ACTION)):
        mean, std = rng.uniform(-90, 90, size), rng.uniform(0.05, 30, size)
        std[2] = 0
        mean[3], std[3] = 0.02, 1e-4  # So little that the epsilons count.
        low, high = mean - 2 * std, mean + 2 * std
        found[key] = {name: torch.tensor(values, dtype=torch.float32) for name, values in {
            'mean': mean, 'std': std, 'min': low - std, 'max': high + std, 'q01': low,
            'q99': high}.items()}
    return found


def observe(number: int, cameras, stats) -> dict[str, np.ndarray]:
    """Return what a robot sees: smooth pictures with some noise, and a state in its range."""
    rng = np.random.default_rng(number)
    seen = {}
    for camera, (height, width) in zip(cameras, SHAPES, strict=False):
        blocks = rng.integers(0, 200, (4, 5, 3), dtype=np.uint8)
        picture = np.array(Image.fromarray(blocks).resize((width, height), Image.BICUBIC))
        seen[f'observation.images.{camera}'] = picture + rng.integers(
            0, 50, picture.shape, dtype=np.uint8)
    mean, std = (stats['observation.state'][name].numpy() for name in ('mean', 'std'))
    seen['observation.state'] = (mean + std * rng.normal(size=STATE)).astype(np.float32)
    return seen


class Recorder:
    """Keeps what the denoising steps of a policy are given and give."""

    def __init__(self, policy) -> None:
        self.step, policy.model.denoise_step = policy.model.denoise_step, self

    def __enter__(self):
        self.velocities, self.cache = [], None
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, **arguments):
        if self.cache is None:
            self.cache = torch.stack([torch.stack((keys, values), 1) for keys, values, _ in
                                      arguments['past_key_values']], 1)
            self.valid = arguments['prefix_pad_masks']
        self.velocities.append(self.step(**arguments))
        return self.velocities[-1]


def save_checkpoint(kind: str, policy, pipelines) -> None:
    """Save as lerobot does; then store some in half precision, and pi0.5 as others do."""
    folder = HERE / kind
    shutil.rmtree(folder, ignore_errors=True)
    policy.save_pretrained(folder)
    for pipeline in pipelines:
        pipeline.save_pretrained(folder)
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps(config, indent=2) + '\n')
    path = folder / 'model.safetensors'
    weights = load_file(path)
    stored = {key: weight if 'norm' in key or key.startswith('model.action') else
              weight.bfloat16() for key, weight in sorted(weights.items())}
    if kind == 'pi0':
        save_file(stored, path, metadata={'format': 'pt'})
        return
    # In two files, and of the two names of the embeddings only the one that lerobot's own
    # checkpoints of the published models have.
    path.unlink()
    keys = [key for key in stored if 'embed_tokens' not in key]
    names = [f'model-0000{part}-of-00002.safetensors' for part in (1, 2)]
    halves = keys[:len(keys) // 2], keys[len(keys) // 2:]
    for name, half in zip(names, halves, strict=True):
        save_file({key: stored[key] for key in half}, folder / name, metadata={'format': 'pt'})
    index = {'metadata': {'total_size': sum(stored[key].nbytes for key in keys)},
             'weight_map': {key: name for name, half in zip(names, halves, strict=True)
                            for key in half}}
    (folder / 'model.safetensors.index.json').write_text(json.dumps(index, indent=2) + '\n')


def make(kind: str, tokenizer: Tokenizer) -> None:
    """Write the checkpoint and the golden file of a model."""
    config = config_of(kind)
    stats = statistics()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token='<pad>',
                                   bos_token='<bos>', eos_token='<eos>', unk_token='<unk>')
    tokenizer_processor.AutoTokenizer = SimpleNamespace(from_pretrained=lambda name: fast)
    assemble = make_pi0_pre_post_processors if kind == 'pi0' else make_pi05_pre_post_processors
    pipelines = preprocess, postprocess = assemble(config, stats)
    policy = build(kind, config)
    cameras = CAMERAS if kind == 'pi0' else ('front', 'wrist')
    chunk_shape = config.chunk_size, config.max_action_dim
    golden, rows = {}, []
    recorder = Recorder(policy)
    for number, prompt in enumerate(PROMPTS):
        seen = observe(number, cameras, stats)
        if number == 1:
            del seen[f'observation.images.{cameras[1]}']
        golden |= {f'{number}.{key}': torch.from_numpy(value.copy())
                   for key, value in seen.items()}
        noise = torch.rand((1, *chunk_shape), generator=torch.Generator().manual_seed(number))
        noise = (noise - 0.5) * 3.4
        batch = preprocess(prepare_observation_for_inference(seen, torch.device('cpu'), prompt))
        images, masks = policy._preprocess_images(batch)
        rows.append((images, masks, batch, noise))
        with recorder:
            chunk = policy.predict_action_chunk(batch, noise=noise)
        if number == 0:
            golden[f'{number}.images'] = torch.stack(images, 1)[0, :len(cameras)].contiguous()
        golden |= {f'{number}.noise': noise[0], f'{number}.chunk': chunk[0].contiguous(),
                   f'{number}.state': batch['observation.state'][0],
                   f'{number}.tokens': batch['observation.language.tokens'][0].int(),
                   f'{number}.token_mask': batch['observation.language.attention_mask'][0],
                   f'{number}.cache': recorder.cache[0], f'{number}.valid': recorder.valid[0],
                   f'{number}.velocities': torch.cat(recorder.velocities),
                   f'{number}.actions': postprocess(chunk)[0].contiguous()}
    images, masks = ([torch.cat(parts) for parts in zip(*(row[index] for row in rows),
                                                        strict=True)] for index in (0, 1))
    batch = {key: torch.cat([row[2][key] for row in rows]) for key in
             ('observation.language.tokens', 'observation.language.attention_mask')}
    arguments = [images, masks, *batch.values()]
    if kind == 'pi0':
        arguments.append(torch.cat([policy.prepare_state(row[2]) for row in rows]))
    golden['batch.chunk'] = policy.model.sample_actions(
        *arguments, noise=torch.cat([row[3] for row in rows]))
    versions = {'lerobot': lerobot.__version__, 'transformers': transformers.__version__,
                'torch': torch.__version__.split('+')[0], 'prompts': json.dumps(PROMPTS),
                'python': '.'.join(map(str, sys.version_info[:2]))}
    save_file(golden, HERE / f'{kind}.safetensors', metadata=versions)
    save_checkpoint(kind, policy, pipelines)


def main() -> None:
    """Write everything beside this file."""
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    tokenizer.save(str(HERE / 'tokenizer.json'), pretty=False)
    for kind in ('pi0', 'pi05'):
        make(kind, tokenizer)


if __name__ == '__main__':
    main()
