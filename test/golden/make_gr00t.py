# SPDX-License-Identifier: Apache-2.0
"""
Make the golden files of GR00T N1.5 with lerobot and Isaac-GR00T themselves; nothing else needs it.

    pip install torch torchvision lerobot==0.4.4 transformers==4.57.6 diffusers==0.35.2 dm-tree
    git clone -b n1.5-release https://github.com/NVIDIA/Isaac-GR00T
    PYTHONPATH=Isaac-GR00T python test/golden/make_gr00t.py \
        Isaac-GR00T/gr00t/model/backbone/eagle2_hg_model

writes a checkpoint folder as Isaac-GR00T saves it, of a network with few and narrow layers, what
lerobot saves beside its weights, a tokenizer, and what both make of three observations: inputs
after processing, features of the backbone and of the action head's own layers, the velocity at
each step, the chunk and the actions in the robot's units. The network is lerobot's copy; each
observation is a batch of its own, since padding changes what the code gives for a batch. The
folder that is named holds the settings of the processor. Knows nothing of this package.
"""

import json
from pathlib import Path
import re
import shutil
import sys
from types import SimpleNamespace

import diffusers
from gr00t_data import (
    ACTION,
    ACTIONS,
    CAMERAS,
    DIT_HEADS,
    DIT_SIZE,
    HIDDEN,
    HORIZON,
    IMAGE_SIZE,
    metadata_of,
    numbers,
    observe,
    OTHER,
    PARTS,
    PROMPTS,
    RESOLUTIONS,
    STATE,
    STATES,
    STEPS,
    TOKENS,
    VOCABULARY,
    WIDTH,
)
from gr00t_isaac import make_isaac, scale_in_every_way
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.groot import groot_n1, processor_groot
from lerobot.policies.groot.configuration_groot import GrootConfig
from lerobot.policies.groot.eagle2_hg_model import (
    configuration_eagle2_5_vl,
    image_processing_eagle2_5_vl_fast,
    modeling_eagle2_5_vl,
    processing_eagle2_5_vl,
)
from lerobot.policies.utils import prepare_observation_for_inference
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, Regex, Tokenizer, trainers
import torch
import transformers
from transformers import Qwen2TokenizerFast, Qwen3ForCausalLM, SiglipVisionModel

HERE = Path(__file__).parent
SPECIAL = ['<|im_start|>', '<|im_end|>', '<IMG_CONTEXT>', '<img>', '</img>']
SMALL = (r'head\.(future_tokens|position_embedding|.*encoder\.(W3|layer2)'
         r'|model\.transformer_blocks.*(to_out|net\.2))')
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r'|\s*[\r\n]+|\s+(?!\S)|\s+')
"""Splits a text into words as Qwen's tokenizers do."""
def make_tokenizer() -> Qwen2TokenizerFast:
    """Train a tokenizer built as Qwen's is on a few lines, and save it as theirs are."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    lines = [*map(str, map(list, zip(PROMPTS))), *PROMPTS, 'You are a helpful assistant.',
             'system user assistant <image 1> <image 2>']
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=VOCABULARY - 20, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder = HERE / 'gr00t_tokenizer'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tokenizer.model.save(str(folder))
    made = Qwen2TokenizerFast(
        str(folder / 'vocab.json'), str(folder / 'merges.txt'), unk_token=None,
        eos_token='<|im_end|>', pad_token='<|endoftext|>', additional_special_tokens=SPECIAL)
    (folder / 'added_tokens.json').write_text(json.dumps(made.get_added_vocab(), indent=2) + '\n')
    made.padding_side = 'left'
    return made


def make_processor(folder: Path, tokenizer):
    """Return the processor of the published assets, for smaller pictures."""
    template, settings = (json.loads((folder / f'{name}.json').read_text())
                          for name in ('chat_template', 'preprocessor_config'))
    own = {key: settings[key] for key in ('do_pad', 'do_resize', 'resample', 'use_thumbnail',
                                          'pad_during_tiling', 'rescale_factor', 'image_mean',
                                          'image_std', 'do_normalize', 'do_rescale')}
    images = image_processing_eagle2_5_vl_fast.Eagle25VLImageProcessorFast(
        size={'height': IMAGE_SIZE, 'width': IMAGE_SIZE}, **own)
    return processing_eagle2_5_vl.Eagle25VLProcessor(
        images, tokenizer, chat_template=template['chat_template'], tokens_per_tile=TOKENS)


def make_network(tokenizer):
    """Return lerobot's network, whose weights are all away from where training starts."""
    towers = {'vision_config': {
        'model_type': 'siglip_vision_model', 'hidden_size': 32, 'intermediate_size': 40,
        'num_hidden_layers': 2, 'num_attention_heads': 16, 'image_size': IMAGE_SIZE,
        'patch_size': 14}, 'text_config': {
        'architectures': ['Qwen3ForCausalLM'], 'vocab_size': VOCABULARY, 'hidden_size': WIDTH,
        'intermediate_size': 48, 'num_hidden_layers': 4, 'num_attention_heads': 4,
        'num_key_value_heads': 2, 'head_dim': 16, 'rope_theta': 1_000_000, 'rms_norm_eps': 1e-6,
        'tie_word_embeddings': True, 'use_cache': False}}
    eagle = configuration_eagle2_5_vl.Eagle25VLConfig(
        **towers, select_layer=-1, force_image_size=IMAGE_SIZE, use_pixel_shuffle=False,
        mlp_connector_layers=1, image_token_index=tokenizer.convert_tokens_to_ids('<IMG_CONTEXT>'),
        _attn_implementation='sdpa')

    def assemble(config, **_):
        config.vision_config._attn_implementation = 'sdpa'
        config.text_config._attn_implementation = 'sdpa'
        return modeling_eagle2_5_vl.Eagle25VLForConditionalGeneration(
            config, SiglipVisionModel(config.vision_config), Qwen3ForCausalLM(config.text_config))
    groot_n1.ensure_eagle_cache_ready = lambda *_: None
    groot_n1.AutoConfig = SimpleNamespace(from_pretrained=lambda *_, **__: eagle)
    groot_n1.AutoModel = SimpleNamespace(from_config=assemble)
    attention = {'dropout': 0.2, 'final_dropout': True, 'positional_embeddings': None}
    head = {
        'action_dim': ACTIONS, 'action_horizon': HORIZON, 'add_pos_embed': True,
        'backbone_embedding_dim': WIDTH, 'hidden_size': HIDDEN, 'max_seq_len': 12,
        'input_embedding_dim': DIT_HEADS * DIT_SIZE, 'max_action_dim': ACTIONS,
        'max_state_dim': STATES, 'model_dtype': 'float32', 'num_inference_timesteps': STEPS,
        'num_target_vision_tokens': 6, 'num_timestep_buckets': 1000, 'noise_beta_alpha': 1.5,
        'noise_beta_beta': 1.0, 'noise_s': 0.999, 'max_num_embodiments': 32, 'use_vlln': True,
        'tune_projector': True, 'tune_diffusion_model': True,
        'diffusion_model_cfg': {**attention, 'attention_head_dim': DIT_SIZE,
                                'num_attention_heads': DIT_HEADS, 'num_layers': 4,
                                'cross_attention_dim': WIDTH, 'output_dim': HIDDEN,
                                'interleave_self_attention': True, 'norm_type': 'ada_norm'},
        'vl_self_attention_cfg': {**attention, 'attention_head_dim': WIDTH // 4,
                                  'num_attention_heads': 4, 'num_layers': 2}}
    backbone = {'eagle_path': '', 'load_bf16': False, 'project_to_dim': None,
                'reproject_vision': False, 'select_layer': 3, 'tune_llm': False,
                'tune_visual': True, 'use_flash_attention': True}
    config = groot_n1.GR00TN15Config(
        action_dim=ACTIONS, action_horizon=HORIZON, action_head_cfg=head, backbone_cfg=backbone,
        compute_dtype='float32', hidden_size=WIDTH, model_dtype='float32')
    network = groot_n1.GR00TN15(config, '').eval()
    generator = torch.Generator().manual_seed(7)
    for name, weight in network.named_parameters():
        drawn = torch.rand(weight.shape, generator=generator) * 2 - 1
        fan = 25 if weight.ndim == 1 or name.endswith('.b') else (
            weight.shape[1] if name.endswith('.W') else weight[0].numel())
        # Where the transformer's tokens are made, so small that the epsilons of its norms count.
        size = 0.1 if re.search(SMALL, name) else 1
        # Of a precision that most of them can be stored in, as mixed checkpoints do.
        weight.data = (drawn * size * (3 / fan) ** 0.5).bfloat16().float()
    return network, config


def save_network(network, config, metadata) -> None:
    """Save a checkpoint as Isaac-GR00T's training does, in two files of mixed precision."""
    folder = HERE / 'gr00t'
    shutil.rmtree(folder, ignore_errors=True)
    (folder / 'experiment_cfg').mkdir(parents=True)
    (folder / 'experiment_cfg' / 'metadata.json').write_text(json.dumps(metadata) + '\n')
    values = {'architectures': ['GR00T_N1_5'], 'model_type': 'gr00t_n1_5',
              'torch_dtype': 'bfloat16', **{key: getattr(config, key) for key in (
                  'action_dim', 'action_horizon', 'action_head_cfg', 'backbone_cfg',
                  'compute_dtype', 'hidden_size', 'model_dtype')}}
    (folder / 'config.json').write_text(json.dumps(values, indent=2) + '\n')
    weights = {key: weight.contiguous().clone() for key, weight in
               sorted(network.state_dict().items())}
    stored = {key: weight if 'norm' in key or 'future' in key else weight.bfloat16()
              for key, weight in weights.items()}
    keys, names = list(stored), [f'model-0000{part}-of-00002.safetensors' for part in (1, 2)]
    halves = keys[:len(keys) // 2], keys[len(keys) // 2:]
    for name, half in zip(names, halves, strict=True):
        save_file({key: stored[key] for key in half}, folder / name, metadata={'format': 'pt'})
    index = {'metadata': {'total_size': sum(weight.nbytes for weight in stored.values())},
             'weight_map': {key: name for name, half in zip(names, halves, strict=True)
                            for key in half}}
    (folder / 'model.safetensors.index.json').write_text(json.dumps(index) + '\n')


class Recorder:
    """Keeps what the parts of a network give."""

    def __init__(self, network) -> None:
        head = network.action_head
        self.velocities: list[torch.Tensor] = []
        self.kept: dict[str, torch.Tensor] = {}
        head.action_decoder.register_forward_hook(
            lambda module, given, found: self.velocities.append(found[0, -HORIZON:]))
        for name, module in (('features', network.backbone),
                             ('seen', network.backbone.eagle_model.mlp1),
                             ('adapted', head.vl_self_attention),
                             ('state_token', head.state_encoder),
                             ('keys', head.model.transformer_blocks[2].attn1.to_k),
                             ('values', head.model.transformer_blocks[2].attn1.to_v)):
            module.register_forward_hook(self.keep(name))

    def keep(self, name: str):
        """Return a hook that keeps what a module gives under a name."""
        def hook(module, given, found):
            self.kept[name] = (found['backbone_features'] if name == 'features' else found).clone()
        return hook


def answer(network, recorder, number: int, inputs) -> dict[str, torch.Tensor]:
    """Return what a network makes of one observation's inputs, all it gives on the way, too."""
    recorder.velocities.clear()
    torch.manual_seed(number)
    noise = torch.randn(1, HORIZON, ACTIONS)
    torch.manual_seed(number)
    with torch.inference_mode():
        chunk = network.get_action(inputs)['action_pred']
    kept = dict(recorder.kept, pixels=inputs['eagle_pixel_values'])
    few = {'seen': number != 0, 'pixels': number != 0, 'keys': number != 2, 'values': number != 2}
    kept = {name: value if name in ('seen', 'pixels') else value[0]
            for name, value in kept.items() if not few.get(name)}
    return {'noise': noise[0], 'chunk': chunk[0], 'velocities': torch.stack(recorder.velocities),
            'tokens': inputs['eagle_input_ids'][0].int(), 'network_state': inputs['state'][0, 0],
            **kept}


def make_lerobot(network, recorder, processor, observations):
    """Save what lerobot saves beside the weights; return what it makes of the observations."""
    inputs = {f'observation.images.{camera}': PolicyFeature(
        FeatureType.VISUAL, (3, resolution[1], resolution[0]))
        for camera, resolution in zip(CAMERAS[::-1], RESOLUTIONS, strict=True)}
    inputs['observation.state'] = PolicyFeature(FeatureType.STATE, (STATE,))
    config = GrootConfig(
        device='cpu', push_to_hub=False, input_features=inputs, embodiment_tag='gr1',
        max_state_dim=STATES, max_action_dim=ACTIONS, base_model_path='../gr00t',
        output_features={'action': PolicyFeature(FeatureType.ACTION, (ACTION,))})
    stats = {key: {name: torch.tensor(values) for name, values in numbers(size, seed).items()}
             for seed, (key, size) in enumerate((('observation.state', STATE),
                                                 ('action', ACTION)))}
    processor_groot._build_eagle_processor = lambda *_: processor
    before, after = processor_groot.make_groot_pre_post_processors(config, stats)
    folder = HERE / 'gr00t_lerobot'
    shutil.rmtree(folder, ignore_errors=True)
    config.save_pretrained(folder)
    before.save_pretrained(folder)
    after.save_pretrained(folder)
    found = {}
    for number, (seen, prompt) in enumerate(zip(observations, PROMPTS, strict=True)):
        named = {f'observation.{"state" if name == "state" else f"images.{name}"}': value.copy()
                 for name, value in seen.items()}
        inputs = before(prepare_observation_for_inference(named, torch.device('cpu'), prompt))
        row = answer(network, recorder, number, {
            key: value for key, value in inputs.items()
            if key in ('state', 'state_mask', 'embodiment_id') or key.startswith('eagle_')})
        row['actions'] = torch.stack([after(action[None, :ACTION])[0] for action in row['chunk']])
        found |= {f'lerobot.{number}.{name}': value for name, value in row.items()}
    return found


def main() -> None:
    """Write everything beside this file."""
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    processor = make_processor(Path(sys.argv[1]), tokenizer)
    network, config = make_network(tokenizer)
    metadata = metadata_of(PARTS)
    save_network(network, config, metadata)
    recorder = Recorder(network)
    observations = [observe(number) for number in range(len(PROMPTS))]
    golden = {f'{number}.{name}': torch.from_numpy(value)
              for number, seen in enumerate(observations) for name, value in seen.items()}
    golden |= make_lerobot(network, recorder, processor, observations)
    golden |= make_isaac(processor, observations, metadata, lambda number, inputs: answer(
        network, recorder, number, inputs))
    other, scaled = scale_in_every_way()
    golden |= scaled
    versions = {'lerobot': '0.4.4', 'transformers': transformers.__version__,
                'diffusers': diffusers.__version__, 'torch': torch.__version__.split('+')[0],
                'python': '.'.join(map(str, sys.version_info[:2])),
                'prompts': json.dumps(PROMPTS), 'modes': json.dumps(OTHER),
                'metadata': json.dumps(other)}
    save_file({key: value.contiguous().clone() for key, value in golden.items()},
              HERE / 'gr00t.safetensors', metadata=versions)


if __name__ == '__main__':
    main()
