# SPDX-License-Identifier: Apache-2.0
"""
What the models are built of: attention, transformer layers, masks, random weights.

Parameters are named as in Hugging Face checkpoints. Shapes never depend on values, so whatever
is built of these can be captured as a CUDA graph. Knows neither robots nor checkpoint files.
Axis letters: B batch, T tokens, K tokens attended to, H heads, G heads of keys and values,
D head size, W width.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
import math
from typing import Any

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models import fused
from robion_ros.models.rotary import Rotary, rotate

gelu_tanh = partial(F.gelu, approximate='tanh')
plain_norm = partial(nn.RMSNorm, eps=1e-6)


class FusedLinear(nn.Linear):
    """Several projections of one input as a single product; a checkpoint holds them apart."""

    def __init__(self, width: int, parts: Mapping[str, int], bias: bool = False) -> None:
        super().__init__(width, sum(parts.values()), bias)
        self.parts = parts


class Attention(nn.Module):
    """Attention whose query heads share keys and values in groups."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_size: int,
                 bias: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = heads, kv_heads, head_size
        self.qkv = FusedLinear(width, {'q_proj': heads * head_size,
                                       'k_proj': kv_heads * head_size,
                                       'v_proj': kv_heads * head_size}, bias)
        self.o_proj = nn.Linear(heads * head_size, width, bias)

    def project(self, x: Tensor, turn: Rotary | None = None) -> tuple[Tensor, Tensor]:
        """Turn x [B, T, W] into queries [B, H, T, D] and keys and values [B, 2, G, T, D]."""
        if turn is not None and fused.takes_turn(x, self.head_size):
            queries, own = fused.turn_heads(self.qkv(x), *turn, self.heads, self.head_size)
            return queries.transpose(1, 2), own
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)
        turning, values = heads.split((self.heads + self.kv_heads, self.kv_heads), 1)
        if turn is not None:
            turning = rotate(turning, turn)
        queries, keys = turning.split((self.heads, self.kv_heads), 1)
        return queries, torch.stack((keys, values), 1)

    def forward(self, x: Tensor, turn: Rotary | None = None, mask: Tensor | None = None,
                past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Let x attend to past, if any, and to itself; also return its keys and values."""
        queries, own = self.project(x, turn)
        keys, values = (own if past is None else torch.cat((past, own), 3)).unbind(1)
        return self.join(attend(queries, keys, values, mask)), own

    def among(self, x: Tensor) -> Tensor:
        """Let every token of x attend to every other, wherever they stand."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)
        return self.join(attend(*heads.split((self.heads, self.kv_heads, self.kv_heads), 1)))

    def join(self, output: Tensor) -> Tensor:
        """Turn what the heads found, [B, H, T, D], into [B, T, W]."""
        return self.o_proj(output.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    """The feed-forward part of Gemma (GELU) and of Llama and Qwen (SiLU)."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate_up = FusedLinear(width, {'gate_proj': hidden, 'up_proj': hidden})
        self.down_proj = nn.Linear(hidden, width, bias=False)
        self.activation = activation
        self.silu = {F.silu: True, gelu_tanh: False}.get(activation)
        """Which of the two that are fused with the product; None: neither."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the change of x [B, T, W]."""
        weight = self.gate_up.weight
        if self.silu is not None and fused.takes_gated(x, weight):
            return self.down_proj(fused.gated(x, weight, self.silu))
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down_proj(self.activation(gate) * up)


class PreciseNorm(nn.RMSNorm):
    """RMS norm in float32, whatever x is."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x [..., W] normalised."""
        return F.rms_norm(x.float(), self.normalized_shape, self.weight, self.eps).to(x.dtype)


class DecoderLayer(nn.Module):
    """One layer of a language model or of a plain action expert."""

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, head_size: int,
                 activation: Callable[[Tensor], Tensor] = gelu_tanh,
                 norm: Callable[[int], nn.Module] = plain_norm) -> None:
        super().__init__()
        self.input_layernorm = norm(width)
        self.self_attn = Attention(width, heads, kv_heads, head_size)
        self.post_attention_layernorm = norm(width)
        self.mlp = GatedMLP(width, hidden, activation)

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor,
                past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return x [B, T, W] after this layer, and its keys and values [B, 2, G, T, D]."""
        output, own = self.self_attn(self.input_layernorm(x), turn, mask, past)
        x = x + output
        return x + self.mlp(self.post_attention_layernorm(x)), own


class VisionLayer(nn.Module):
    """One layer of SigLIP; its kernels are as few as a compiler would make of it, and faster."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attn = Attention(width, heads, heads, width // heads, bias=True)
        self.layer_norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({'fc1': nn.Linear(width, hidden),
                                  'fc2': nn.Linear(hidden, width)})

    def forward(self, x: Tensor, normed: Tensor, following: Any) -> tuple[Tensor, Tensor]:
        """
        Return x [B, T, W] after this layer, and what the following norm makes of it.

        normed is what layer_norm1 makes of x. Every token sees every other.
        """
        x, normed = add_norm(x, self.self_attn.among(normed), self.layer_norm2)
        return add_norm(x, self.mlp['fc2'](gelu_linear(normed, self.mlp['fc1'])), following)


def add_norm(x: Tensor, change: Tensor, norm: Any) -> tuple[Tensor, Tensor]:
    """Return x + change, [B, T, W], and what a LayerNorm makes of it."""
    if fused.can_run(x):
        return fused.add_norm(x, change, norm.weight, norm.bias, norm.eps)
    x = x + change
    return x, norm(x)


def gelu_linear(x: Tensor, linear: Any) -> Tensor:
    """Return gelu_tanh(linear(x)) of x [B, T, W]."""
    if x.is_cuda:  # Its library of products does both at once.
        weight, rows = linear.weight.t(), x.flatten(0, 1)
        return torch._addmm_activation(linear.bias, rows, weight, use_gelu=True).view(
            *x.shape[:2], -1)
    return gelu_tanh(linear(x))


class VisionTransformer(nn.Module):
    """SigLIP: square pictures [B, H, W, 3] from -1 to 1 to patch tokens [B, T, W]."""

    def __init__(self, image_size: int, patch_size: int, width: int, hidden: int, heads: int,
                 layers: int) -> None:
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, width, patch_size, patch_size)
        self.position_embedding = nn.Embedding((image_size // patch_size) ** 2, width)
        self.layers: Any = nn.ModuleList(VisionLayer(width, hidden, heads)
                                         for _ in range(layers))
        self.post_layernorm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of pictures."""
        # Patches do not overlap: a product does what the convolution would, faster.
        kernel, size = self.patch_embedding.weight, self.patch_embedding.kernel_size[0]
        count, rows, columns = len(images), images.shape[1] // size, images.shape[2] // size
        patches = images.reshape(count, rows, size, columns, size, 3)
        patches = patches.permute(0, 1, 3, 5, 2, 4).reshape(count, rows * columns, -1)
        x = F.linear(patches, kernel.flatten(1), self.patch_embedding.bias)
        # The embeddings may be kept in a higher precision than the layers.
        x = (x + self.position_embedding.weight).to(self.post_layernorm.weight.dtype)
        first, *following = [*(layer.layer_norm1 for layer in self.layers), self.post_layernorm]
        normed = first(x)
        for layer, norm in zip(self.layers, following, strict=True):
            x, normed = layer(x, normed, norm)
        return normed


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """
    Return softmax(q k' / sqrt(D) + mask) v: [B, H, T, D].

    mask is [B, 1, T or 1, K]. The heads of a group are laid along the token axis, so that keys
    and values are not copied for each head and every attention kernel takes the call.
    """
    if mask is not None and fused.takes_attention(queries, keys, mask):
        return fused.attend(queries, keys, values, mask).transpose(1, 2)
    batch, heads, count, size = queries.shape
    group = heads // keys.shape[1]
    # Token by token, as products before and after this lay heads, so that nothing is copied.
    rows = queries.view(batch, heads // group, group, count, size).transpose(2, 3)
    rows = rows.reshape(batch, heads // group, count * group, size)
    if mask is not None and mask.shape[2] > 1:
        mask = mask.repeat_interleave(group, 2)
    output = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
    output = output.view(batch, heads // group, count, group, size)
    return output.transpose(2, 3).flatten(1, 2)


def attention_mask(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn which tokens exist, bool [B, K], into a mask that hides the others from everybody."""
    mask = torch.zeros_like(valid, dtype=dtype).masked_fill(~valid, -math.inf)
    return mask[:, None, None]


def keys_values(layers: Iterable[Any], x: Tensor, turn: Rotary, mask: Tensor,
                past: Tensor | None = None) -> Tensor:
    """
    Run x [B, T, W] behind past for nothing but the keys and values of all DecoderLayers.

    They and past are [B, layers, 2, G, T or K, D]. Nobody attends to what the last layer would
    return, so it is not computed.
    """
    *first, last = layers
    found = []
    for index, layer in enumerate(first):
        x, own = layer(x, turn, mask, None if past is None else past[:, index])
        found.append(own)
    found.append(last.self_attn.project(last.input_layernorm(x), turn)[1])
    return torch.stack(found, 1)


def time_embedding(times: Sequence[float], width: int, shortest: float = 4e-3,
                   longest: float = 4.0) -> Tensor:
    """Return sines, then cosines, of times with periods from shortest to longest: [N, W]."""
    steps = torch.linspace(0, 1, width // 2, dtype=torch.float64)
    periods = shortest * (longest / shortest) ** steps
    angles = torch.tensor(times, dtype=torch.float64)[:, None] * 2 * math.pi / periods
    return torch.cat((angles.sin(), angles.cos()), 1).float()


def draw_noise(seeds: Sequence[int], *shape: int) -> Tensor:
    """Draw normal numbers [B, *shape] on the CPU, row i from seeds[i] alone."""
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed))
                        for seed in seeds])


def randomise(module: nn.Module, seed: int, drawn_on: torch.device | str = 'cpu') -> None:
    """
    Give a module weights drawn from seed alone, such that activations stay of order one.

    Uniform numbers of one kind of device are the same on every machine; normal ones need
    logarithms, which are not. Large models are drawn where they are.
    """
    generator = torch.Generator(drawn_on).manual_seed(seed)
    for owner in module.modules():
        for name, weight in owner.named_parameters(recurse=False):
            if weight.ndim == 1:
                scales = isinstance(owner, nn.LayerNorm | nn.RMSNorm) and name == 'weight'
                weight.data.fill_(float(scales))
                continue
            drawn = torch.rand(weight.shape, generator=generator, device=drawn_on) * 2 - 1
            weight.data.copy_(drawn * math.sqrt(3 / weight[0].numel()))
