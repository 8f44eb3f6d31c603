# SPDX-License-Identifier: Apache-2.0
"""
Make the golden file of Xiaomi-Robotics-0 with its own code; nothing else needs it.

    pip install torch transformers==4.57.1 'pillow<12'
    python test/golden/make_xiaomi.py FOLDER

FOLDER holds configuration_mibot.py, modeling_mibot.py and processing_mibot.py, as every published
checkpoint does (here: those of OpenEnvision/WorldFoundry at bc062d7a, which are the same but for
what writes words). Writes a checkpoint folder as Xiaomi publishes it, of a network with few and
narrow layers, and what the code makes of three observations: inputs after processing, what the
vision tower sees, keys and values, the velocity at each step, the chunk, the actions in the
robot's units, and the chunks of all three as one batch. Knows nothing of this package.

The code runs in bfloat16 alone, since it rounds the embedding of the time to that; here it is
rounded, and the rest is float32.
"""

import importlib
import json
from pathlib import Path
import shutil
import sys
from types import ModuleType

import numpy as np
import PIL
from PIL import Image
from safetensors.torch import save_file
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    Regex,
    Tokenizer,
    trainers,
)
import torch
import transformers
from transformers import Qwen2TokenizerFast
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.processing_utils import ProcessorMixin

HERE = Path(__file__).parent
ROBOT = 'golden'
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|vision_start|>', '<|vision_end|>',
           '<|image_pad|>', '<|video_pad|>']
WORDS, VOCABULARY, IMAGE = 340, 352, 345
PROMPTS = ('Pick.', 'Put the blue ball into the box', 'Öffne die Tür and close the drawer.')
CAMERAS = {'base': (80, 112), 'wrist_left': (60, 40)}
"""Rows and columns: too large, and of no whole number of patches."""
VIEWS = {'base': 'Base View', 'wrist_left': 'Left-Wrist View'}
STATE, ACTION, HORIZON, STEPS, WIDE = 8, 7, 6, 5, 32
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r'|\s*[\r\n]+|\s+(?!\S)|\s+')
"""How Qwen's tokenizer divides a text."""

CONFIG = {
    'architectures': ['MiBoTForActionGeneration'], 'model_type': 'mibot', 'dtype': 'bfloat16',
    'state_length': 1, 'state_dim': WIDE, 'action_length': 30, 'action_dim': WIDE,
    'dit_config': {'model_type': 'dit', 'hidden_size': 32, 'num_hidden_layers': 2, 'head_dim': 16,
                   'num_key_value_heads': 2},
    'vlm_config': {
        'model_type': 'qwen3_vl', 'image_token_id': IMAGE, 'video_token_id': IMAGE + 1,
        'vision_start_token_id': IMAGE - 2, 'vision_end_token_id': IMAGE - 1,
        'tie_word_embeddings': True,
        'text_config': {
            'model_type': 'qwen3_vl_text', 'vocab_size': VOCABULARY, 'hidden_size': 40,
            'intermediate_size': 56, 'num_hidden_layers': 4, 'num_attention_heads': 4,
            'num_key_value_heads': 2, 'head_dim': 16, 'hidden_act': 'silu',
            'rms_norm_eps': 1e-6, 'rope_theta': 5000000, 'attention_bias': False,
            'rope_scaling': {'rope_type': 'default', 'mrope_interleaved': True,
                             'mrope_section': [4, 2, 2]}},
        'vision_config': {
            'model_type': 'qwen3_vl', 'depth': 3, 'hidden_size': 32, 'num_heads': 2,
            'hidden_act': 'gelu_pytorch_tanh', 'intermediate_size': 40, 'in_channels': 3,
            'patch_size': 8, 'spatial_merge_size': 2, 'temporal_patch_size': 2,
            'out_hidden_size': 40, 'num_position_embeddings': 25,
            'deepstack_visual_indexes': [0, 1]}}}


def make_tokenizer() -> Tokenizer:
    """Train a tokenizer built as Qwen's is, on a few lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    lines = [*PROMPTS, 'The following observations are captured from multiple views.',
             'Generate robot actions for the task:', '# Base View', '# Left-Wrist View']
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=WORDS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    assert tokenizer.token_to_id('<|image_pad|>') == IMAGE
    return tokenizer


def statistics() -> dict[str, list[list[float]]]:
    """Return statistics that differ by step; one value in the middle is not used, nor the rest."""
    rng = np.random.default_rng(5)
    mean, std = np.zeros((HORIZON, WIDE)), np.zeros((HORIZON, WIDE))
    mean[:, :ACTION] = rng.uniform(-2, 2, (HORIZON, ACTION))
    std[:, :ACTION] = rng.uniform(0.01, 0.5, (HORIZON, ACTION))
    std[:, 3] = 1e-6
    return {'mean': mean.tolist(), 'std': std.tolist()}


def prompt_of(instruction: str, cameras) -> str:
    """Word a prompt as deploy/server.py does, for the cameras that there are."""
    views = ''.join(f'# {VIEWS[camera]}\n<|vision_start|><|image_pad|><|vision_end|>\n'
                    for camera in cameras)
    return ('<|im_start|>user\nThe following observations are captured from multiple views.\n'
            f'{views}Generate robot actions for the task:\n{instruction} /no_cot<|im_end|>\n'
            '<|im_start|>assistant\n<cot></cot><|im_end|>\n')


def observe(number: int) -> dict[str, np.ndarray]:
    """Return what a robot sees: smooth pictures with some noise, and a state."""
    rng = np.random.default_rng(number)
    seen = {}
    for camera, (height, width) in CAMERAS.items():
        blocks = rng.integers(0, 200, (4, 5, 3), dtype=np.uint8)
        picture = np.array(Image.fromarray(blocks).resize((width, height), Image.BICUBIC))
        seen[camera] = picture + rng.integers(0, 50, picture.shape, dtype=np.uint8)
    seen['state'] = rng.normal(size=STATE).astype(np.float32)
    if number == 1:
        del seen['wrist_left']
    return seen


def crop(image: Image.Image, height: int, width: int, part: float) -> np.ndarray:
    """Crop as the client of SimplerEnv does; torchvision scales such pictures with Pillow."""
    image = image.resize((width, height))
    rows, columns = int(height * part), int(width * part)
    top, left = (height - rows) // 2, (width - columns) // 2
    image = image.crop((left, top, left + columns, top + rows))
    return np.array(image.resize((width, height), Image.BILINEAR))


def load_code(folder: Path) -> tuple[ModuleType, ModuleType]:
    """Import the code of the model."""
    sys.path.insert(0, str(folder.resolve().parent))
    return tuple(importlib.import_module(f'{folder.resolve().name}.{name}')
                 for name in ('modeling_mibot', 'processing_mibot'))


def build(modeling: ModuleType):
    """Return a model whose weights are all away from where training starts."""
    config = modeling.MiBoTConfig(**{key: CONFIG[key] for key in (
        'state_length', 'state_dim', 'action_length', 'action_dim', 'dit_config', 'vlm_config')})
    config._attn_implementation = 'eager'
    model = modeling.MiBoTForActionGeneration(config).eval()
    generator = torch.Generator().manual_seed(7)
    for name, weight in sorted(model.named_parameters()):
        drawn = torch.rand(weight.shape, generator=generator) * 2 - 1
        fan = weight[0].numel() if weight.ndim > 1 else 25
        drawn = drawn * (3 / fan) ** 0.5 + (weight.ndim == 1 and 'norm' in name and 'bias' not in
                                            name)
        # Stored in half precision, as the published ones are.
        weight.data = drawn.bfloat16().float()
    embedder = model.t_embedder
    embed, embedder.dtype = embedder.timestep_embedding, torch.bfloat16
    embedder.timestep_embedding = lambda *arguments: embed(*arguments).float()
    return model


class Recorder:
    """Gives a model its noise, and keeps what its parts give."""

    def __init__(self, model) -> None:
        self.model = model
        self.step, model.dit_forward = model.dit_forward, self.keep_velocity
        self.see, model.vlm.model.visual.forward = model.vlm.model.visual.forward, self.keep_seen
        self.randn_like = torch.randn_like

    def run(self, noise: torch.Tensor, **inputs) -> torch.Tensor:
        """Return the chunks of a batch from a noise."""
        self.velocities = []
        torch.randn_like = lambda mask: noise
        try:
            return self.model(**inputs, seed=0).actions
        finally:
            torch.randn_like = self.randn_like

    def keep_velocity(self, **arguments) -> torch.Tensor:
        """Run one step."""
        layers = list(arguments['past_key_values'])[-len(self.model.dit.layers):]
        self.cache = torch.stack([torch.stack(pair[:2], 1) for pair in layers], 1)
        self.velocities.append(self.step(**arguments))
        return self.velocities[-1]

    def keep_seen(self, *arguments, **keywords):
        """Run the vision tower."""
        self.seen = self.see(*arguments, **keywords)
        return self.seen


def make_processor(processing: ModuleType, tokenizer: Tokenizer):
    """Return the model's processor; it has no use for one of videos."""
    ProcessorMixin.check_argument_for_proper_class = lambda *arguments: None
    fast = Qwen2TokenizerFast(tokenizer_object=tokenizer, pad_token='<|endoftext|>',
                              eos_token='<|im_end|>')
    pictures = Qwen2VLImageProcessor(
        patch_size=8, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3,
        image_std=[0.5] * 3, min_pixels=256, max_pixels=6144,
        action_config={ROBOT: statistics()})
    return processing.MiBotProcessor(pictures, fast, None)


def save_checkpoint(model, processor, tokenizer: Tokenizer) -> None:
    """Save as Xiaomi does, in two files, and with what this package is told besides."""
    folder = HERE / 'xiaomi'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    own = {'views': VIEWS, 'image_sizes': {name: list(size) for name, size in CAMERAS.items()}}
    (folder / 'config.json').write_text(json.dumps(CONFIG | own, indent=2) + '\n')
    pictures = json.loads(processor.image_processor.to_json_string())
    (folder / 'preprocessor_config.json').write_text(json.dumps(pictures) + '\n')
    tokenizer.save(str(folder / 'tokenizer.json'), pretty=False)
    stored = {key: weight.bfloat16() for key, weight in sorted(model.state_dict().items())
              if key != 'vlm.lm_head.weight'}
    names = [f'model-0000{part}-of-00002.safetensors' for part in (1, 2)]
    keys = list(stored)
    halves = keys[:len(keys) // 2], keys[len(keys) // 2:]
    for name, half in zip(names, halves, strict=True):
        save_file({key: stored[key] for key in half}, folder / name, metadata={'format': 'pt'})
    index = {'metadata': {'total_size': sum(weight.nbytes for weight in stored.values())},
             'weight_map': {key: name for name, half in zip(names, halves, strict=True)
                            for key in half}}
    (folder / 'model.safetensors.index.json').write_text(json.dumps(index) + '\n')


def main(folder: Path) -> None:
    """Write everything beside this file."""
    torch.set_num_threads(1)
    modeling, processing = load_code(folder)
    tokenizer = make_tokenizer()
    model, processor = build(modeling), make_processor(processing, tokenizer)
    recorder = Recorder(model)
    mask = processor.get_action_mask(ROBOT)
    golden, texts, pictures, states, noises = {}, [], [], [], []
    for number, instruction in enumerate(PROMPTS):
        seen = observe(number)
        golden |= {f'{number}.{key}': torch.from_numpy(value.copy())
                   for key, value in seen.items()}
        cameras = [camera for camera in CAMERAS if camera in seen]
        texts.append(prompt_of(instruction, cameras))
        pictures += (images := [Image.fromarray(seen[camera]) for camera in cameras])
        inputs = processor(text=texts[-1:], images=images, padding=True, return_tensors='pt')
        noise = torch.rand((1, HORIZON, WIDE), generator=torch.Generator().manual_seed(number))
        noises.append((noise - 0.5) * 3.4)
        states.append(torch.nn.functional.pad(torch.from_numpy(seen['state']),
                                              (0, WIDE - STATE)).view(1, 1, -1))
        chunk = recorder.run(noises[-1], **inputs, state=states[-1], action_mask=mask)
        tokens, taps = recorder.seen
        golden |= {f'{number}.noise': noises[-1][0], f'{number}.chunk': chunk[0],
                   f'{number}.tokens': inputs['input_ids'][0].int(),
                   f'{number}.grids': inputs['image_grid_thw'].int(), f'{number}.seen': tokens,
                   f'{number}.taps': torch.stack(list(taps)), f'{number}.cache': recorder.cache[0],
                   f'{number}.velocities': torch.cat(recorder.velocities),
                   f'{number}.actions': processor.decode_action(chunk, ROBOT)[0]}
        if number == 0:
            values = inputs['pixel_values'].unflatten(1, (3, 2, -1))
            assert torch.equal(values[:, :, 0], values[:, :, 1])
            golden['0.pixels'] = values[:8, :, 0]
            golden['cropped'] = torch.from_numpy(crop(images[0], 48, 64, 0.95))
            golden['0.patches'] = ((values[:, :, 0] + 1) * 127.5).round().to(torch.uint8)
    inputs = processor(text=texts, images=pictures, padding=True, return_tensors='pt')
    golden['batch.chunk'] = recorder.run(torch.cat(noises), **inputs, state=torch.cat(states),
                                         action_mask=mask.repeat(len(texts), 1, 1))
    versions = {'transformers': transformers.__version__, 'pillow': PIL.__version__,
                'torch': torch.__version__.split('+')[0], 'prompts': json.dumps(PROMPTS),
                'python': '.'.join(map(str, sys.version_info[:2]))}
    golden = {key: value.detach().contiguous().clone() for key, value in golden.items()}
    save_file(golden, HERE / 'xiaomi.safetensors', metadata=versions)
    save_checkpoint(model, processor, tokenizer)


if __name__ == '__main__':
    main(Path(sys.argv[1]))
