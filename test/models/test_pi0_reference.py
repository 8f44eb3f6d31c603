# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5 against one plain forward pass over the whole sequence, again each step.

The reference is written for reading, in float64, from the weights' names in a checkpoint: it
shares no code with the model, keeps nothing between steps, folds nothing, and has the masks
written out. Weights of norms and biases are moved from where training starts, so that each of
them counts.
"""

import math

import pytest
import torch

from robion_ros.models.checkpoint import named_weights


class Reference:
    def __init__(self, model):
        self.c = model.config
        self.weights = {name: weight.double()
                        for name, weight in named_weights(model.network).items()}

    def linear(self, name, x):
        y = torch.einsum('...i,oi->...o', x, self.weights[f'{name}.weight'])
        return y + self.weights[f'{name}.bias'] if f'{name}.bias' in self.weights else y

    def layer_norm(self, name, x):
        x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * self.weights[f'{name}.weight'] + self.weights[f'{name}.bias']

    @staticmethod
    def silu(x):
        return x / (1 + torch.exp(-x))

    def rms_norm(self, name, x, condition=None):
        """Return x normed, and the gate of what follows."""
        x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        if condition is None:
            return x * (1 + self.weights[f'{name}.weight']), 1
        scale, shift, gate = self.linear(f'{name}.dense', condition).chunk(3)
        return x * (1 + scale) + shift, gate

    @staticmethod
    def gelu(x):
        return x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    @staticmethod
    def attention(queries, keys, values, mask):
        """Attend head by head: [T, heads, size], mask [T, T]."""
        outputs = []
        for head in range(queries.shape[1]):
            shared = head * keys.shape[1] // queries.shape[1]
            scores = queries[:, head] @ keys[:, shared].T / math.sqrt(queries.shape[-1])
            scores = torch.where(mask, scores, -1e30)
            outputs.append(scores.softmax(-1) @ values[:, shared])
        return torch.cat(outputs, -1)

    @staticmethod
    def rotate(x, places):
        """Turn [T, heads, size] as complex numbers, the halves being real and imaginary."""
        half = x.shape[-1] // 2
        speeds = torch.tensor([10_000 ** (-index / half) for index in range(half)]).double()
        turns = torch.polar(torch.ones(()).double(), places[:, None, None] * speeds)
        turned = torch.complex(x[..., :half], x[..., half:]) * turns
        return torch.cat((turned.real, turned.imag), -1)

    def see(self, image):
        c, tower = self.c, 'vision_tower'
        pixels, size = image.double() / 127.5 - 1, c.patch_size
        kernel = self.weights[f'{tower}.patch_embedding.weight']
        patches = [torch.einsum('hwc,ochw->o', pixels[y:y + size, x:x + size], kernel)
                   for y in range(0, c.image_size, size) for x in range(0, c.image_size, size)]
        x = torch.stack(patches) + self.weights[f'{tower}.patch_embedding.bias']
        x = x + self.weights[f'{tower}.position_embedding.weight']
        for index in range(c.vision_layers):
            name = f'{tower}.layers.{index}'
            y = self.layer_norm(f'{name}.layer_norm1', x)
            q, k, v = (self.linear(f'{name}.self_attn.{part}_proj', y).view(
                len(x), c.vision_heads, -1) for part in 'qkv')
            everybody = torch.ones(len(x), len(x), dtype=torch.bool)
            x = x + self.linear(f'{name}.self_attn.o_proj', self.attention(q, k, v, everybody))
            y = self.linear(f'{name}.mlp.fc1', self.layer_norm(f'{name}.layer_norm2', x))
            x = x + self.linear(f'{name}.mlp.fc2', self.gelu(y))
        return self.linear('multi_modal_projector', self.layer_norm(f'{tower}.post_layernorm', x))

    def prefix(self, inputs):
        """Return the prefix' tokens and which exist."""
        images = [self.see(image) for image in inputs['images']]
        words = self.weights['embed_tokens.weight'][inputs['tokens']] * math.sqrt(self.c.width)
        exists = [torch.full((len(image),), bool(there))
                  for image, there in zip(images, inputs['image_mask'], strict=True)]
        return torch.cat([*images, words]), torch.cat([*exists, inputs['token_mask']])

    def suffix(self, inputs, actions, time):
        """Return the tokens after the prefix, their blocks, and the condition of the norms."""
        half = self.c.expert_width // 2
        angles = [2 * math.pi * time / (4e-3 * 1e3 ** (index / (half - 1)))
                  for index in range(half)]
        embedded = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        time = torch.tensor(embedded).double()
        tokens = self.linear('action_in_proj', actions)
        # A 1 begins a block that the tokens before it do not see.
        blocks = [1] + [0] * (len(actions) - 1)
        if self.c.adaptive:
            time = self.silu(self.linear('time_mlp_in', time))
            return tokens, blocks, self.silu(self.linear('time_mlp_out', time))
        mixed = torch.cat((tokens, time.expand(len(actions), -1)), -1)
        mixed = self.linear('action_time_mlp_out',
                            self.silu(self.linear('action_time_mlp_in', mixed)))
        state = self.linear('state_proj', inputs['state'].double())
        return torch.cat((state[None], mixed)), [1, *blocks], None

    def velocity(self, inputs, actions, time):
        """Run prefix and suffix as one sequence through both stacks of layers."""
        c = self.c
        tokens, exists = self.prefix(inputs)
        suffix, blocks, condition = self.suffix(inputs, actions, time)
        parts, conditions = [tokens, suffix], [None, condition]
        exists = torch.cat((exists, torch.ones(len(suffix), dtype=torch.bool)))
        blocks = torch.tensor([0] * len(tokens) + blocks).cumsum(0)
        mask = (blocks[None] <= blocks[:, None]) & exists[None] & exists[:, None]
        places = exists.cumsum(0) - 1
        stacks = ('language_model', 'expert')
        for index in range(c.layers):
            names = [f'{stack}.{index}' for stack in stacks]
            normed, gates = zip(*(self.rms_norm(f'{name}.input_layernorm', part, condition)
                                  for name, part, condition in zip(names, parts, conditions,
                                                                   strict=True)), strict=True)
            q, k, v = (torch.cat([
                self.linear(f'{name}.self_attn.{kind}_proj', part).view(len(part), -1, c.head_size)
                for name, part in zip(names, normed, strict=True)]) for kind in 'qkv')
            output = self.attention(self.rotate(q, places), self.rotate(k, places), v, mask)
            outputs = output.split([len(part) for part in parts])
            for i, name in enumerate(names):
                x = parts[i] + gates[i] * self.linear(f'{name}.self_attn.o_proj', outputs[i])
                y, gate = self.rms_norm(f'{name}.post_attention_layernorm', x, conditions[i])
                hidden = self.gelu(self.linear(f'{name}.mlp.gate_proj', y))
                hidden = hidden * self.linear(f'{name}.mlp.up_proj', y)
                parts[i] = x + gate * self.linear(f'{name}.mlp.down_proj', hidden)
        last, _ = self.rms_norm('norm', parts[1][-len(actions):], condition)
        return self.linear('action_out_proj', last)

    def actions(self, inputs, noise):
        actions = noise.double()
        for step in range(self.c.steps):
            time = float(torch.tensor(1 - step / self.c.steps))  # Of float32, as in training.
            actions = actions - self.velocity(inputs, actions, time) / self.c.steps
        return actions


@pytest.mark.parametrize('prompt, cameras', [
    ('pick', (True, True)),
    ('put the blue cube into the bowl', (True, True)),
    ('pick', (False, True)),
    ('pick', (True, False)),
], ids=['short prompt', 'long prompt', 'no first camera', 'no last camera'])
def test_the_two_stages_equal_one_pass_over_the_whole_sequence(pi0, observe, stack, prompt,
                                                               cameras):
    inputs = stack(pi0, observe(prompt=prompt)) | {'image_mask': torch.tensor([cameras])}
    noise = pi0.noise([11])
    row = {name: tensor[0] for name, tensor in inputs.items()}
    expected = Reference(pi0).actions(row, noise[0])
    actions = pi0.adit(pi0.vlm(inputs), noise)[0]
    torch.testing.assert_close(actions.double(), expected, atol=1e-5, rtol=1e-5)
