# SPDX-License-Identifier: Apache-2.0
"""
Make the golden file of openpi's PyTorch models with openpi itself; nothing else needs it.

    python test/golden/make_openpi.py

in the environment that openpi describes (commit 15a9616, transformers 4.53.2 with its replacement
files), after make_pi0.py, whose weights, observations and noise it takes. Writes what openpi's
policy makes of them: pictures, tokens and states after processing, and actions in the robot's
units. Knows nothing of this package.
"""

from io import BytesIO
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from openpi import transforms
from openpi.models import tokenizer as tokenizers
from openpi.models.pi0_config import Pi0Config
from openpi.models_pytorch import gemma_pytorch, pi0_pytorch, preprocessing_pytorch
from openpi.policies.policy import Policy
from openpi.shared import normalize
from safetensors import safe_open
from safetensors.torch import load_file, save_file
import sentencepiece
import torch
import transformers

HERE = Path(__file__).parent
IMAGE_SIZE, VOCABULARY, WORDS = 56, 400, 380
CAMERAS = 'base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'
LINES = ['pick', 'put_the blue ball into the box', 'öffne die Tür and close the drawer',
         'Task: pick, State: 0 12 128 255;\nAction: ']
SIZES = {'gemma_2b': (32, 48), 'gemma_300m': (24, 40)}
KINDS = {'pi0': {'action_horizon': 6}, 'pi05': {'action_horizon': 5, 'pi05': True},
         'pi05_plain': {'action_horizon': 5, 'pi05': True, 'discrete_state_input': False}}


def make_tokenizer() -> bytes:
    """Train a tokenizer of the kind of PaliGemma's, on a few lines."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=WORDS, model_type='bpe',
        byte_fallback=True, add_dummy_prefix=False, split_digits=True, pad_id=0, eos_id=1,
        bos_id=2, unk_id=3, remove_extra_whitespaces=False, user_defined_symbols=['\n'],
        normalization_rule_name='identity', hard_vocab_limit=False, minloglevel=2)
    return model.getvalue()


def build(config: Pi0Config, folder: Path):
    """Return openpi's model with few and narrow layers, and the weights of a folder."""
    paligemma, expert = (gemma_pytorch.PaliGemmaForConditionalGeneration,
                         gemma_pytorch.GemmaForCausalLM)

    def make_paligemma(config):
        config.text_config.vocab_size = VOCABULARY
        vars(config.vision_config).update(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=16, intermediate_size=40,
            image_size=IMAGE_SIZE, projection_dim=SIZES['gemma_2b'][0])
        return paligemma(config)

    def make_expert(config):
        config.vocab_size = 4
        return expert(config)
    gemma_pytorch.PaliGemmaForConditionalGeneration = make_paligemma
    gemma_pytorch.GemmaForCausalLM = make_expert
    pi0_pytorch._gemma = SimpleNamespace(get_config=lambda variant: SimpleNamespace(
        width=SIZES[variant][0], mlp_dim=SIZES[variant][1], depth=3, num_heads=8, num_kv_heads=1,
        head_dim=8))
    model = pi0_pytorch.PI0Pytorch(config)
    gemma_pytorch.PaliGemmaForConditionalGeneration = paligemma
    gemma_pytorch.GemmaForCausalLM = expert
    weights = {}
    for path in folder.glob('model*.safetensors'):
        weights |= {key.removeprefix('model.'): value.float()
                    for key, value in load_file(path).items()}
    head = weights.pop('paligemma_with_expert.paligemma.lm_head.weight')
    weights.setdefault('paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight',
                       head)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert all('lm_head' in key for key in missing), missing
    return model.eval()


def make(kind: str, golden: dict[str, torch.Tensor]) -> None:
    """Add what openpi makes of the observations with a model."""
    weights = HERE / kind.removesuffix('_plain')
    config = Pi0Config(dtype='float32', pytorch_compile_mode=None, **KINDS[kind])
    stats = normalize.load(HERE / 'openpi')
    quantiles = kind != 'pi0'
    tokenizer = tokenizers.PaligemmaTokenizer(config.max_token_len)
    inputs = []
    policy = Policy(
        build(config, weights), is_pytorch=True, pytorch_device='cpu',
        # As openpi's training/config.py and policy_config.py put them together.
        transforms=[transforms.Normalize(stats, use_quantiles=quantiles),
                    transforms.ResizeImages(IMAGE_SIZE, IMAGE_SIZE),
                    transforms.TokenizePrompt(tokenizer, config.discrete_state_input),
                    transforms.PadStatesAndActions(config.action_dim),
                    lambda data: inputs.append(data) or data],
        output_transforms=[transforms.Unnormalize(stats, use_quantiles=quantiles)])
    path = HERE / 'pi0.safetensors'
    with safe_open(path, 'pt') as file:
        prompts = json.loads(file.metadata()['prompts'])
    seen = load_file(path)
    for number, prompt in enumerate(prompts):
        pictures = {camera: seen.get(f'{number}.observation.images.{camera}')
                    for camera in CAMERAS}
        empty = np.zeros((40, 60, 3), np.uint8)
        noise = seen[f'{number}.noise'][:config.action_horizon]
        answer = policy.infer({
            'image': {camera: empty if picture is None else picture.numpy()
                      for camera, picture in pictures.items()},
            'image_mask': {camera: np.bool_(picture is not None)
                           for camera, picture in pictures.items()},
            'state': seen[f'{number}.observation.state'].numpy(), 'prompt': prompt},
            noise=noise.numpy())
        given = inputs[-1]
        golden |= {f'{kind}.{number}.tokens': torch.from_numpy(given['tokenized_prompt']).int(),
                   f'{kind}.{number}.state': torch.tensor(given['state'], dtype=torch.float32),
                   f'{kind}.{number}.actions': torch.tensor(answer['actions'][:, :7],
                                                            dtype=torch.float32)}
        if number == 0 and kind == 'pi0':
            golden['images'] = torch.stack([torch.from_numpy(given['image'][camera].copy())
                                            for camera in CAMERAS])


def main() -> None:
    """Write everything beside this file."""
    torch.set_num_threads(1)
    (HERE / 'openpi').mkdir(exist_ok=True)
    path = HERE / 'openpi' / 'tokenizer.model'
    path.write_bytes(make_tokenizer())
    tokenizers.download = SimpleNamespace(maybe_download=lambda *_, **__: path)
    stored, = (HERE / 'pi0').glob('policy_preprocessor_step_*.safetensors')
    stats = {}
    for key, values in load_file(stored).items():
        key, name = key.rsplit('.', 1)
        stats.setdefault({'observation.state': 'state', 'action': 'actions'}[key], {})[
            name] = values.double().tolist()
    kept = {key: {name: found[name] for name in ('mean', 'std', 'q01', 'q99')}
            for key, found in stats.items()}
    (HERE / 'openpi' / 'norm_stats.json').write_text(json.dumps({'norm_stats': kept}) + '\n')
    resized = preprocessing_pytorch.preprocess_observation_pytorch
    resized.__kwdefaults__['image_resolution'] = (IMAGE_SIZE, IMAGE_SIZE)
    golden = {}
    for kind in KINDS:
        make(kind, golden)
    save_file(golden, HERE / 'openpi.safetensors', metadata={
        'openpi': '15a9616', 'transformers': transformers.__version__,
        'torch': torch.__version__.split('+')[0]})


if __name__ == '__main__':
    main()
