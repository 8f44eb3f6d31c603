# SPDX-License-Identifier: Apache-2.0
"""
Times each stage of a model with random weights alone on one GPU, beside what the GPU allows.

python3 benchmarks/stages.py [--architecture pi0] [--batches 1 2 4] [--json FILE]

Each stage is one CUDA graph; medians, ms. The limit of the VLM stage is the time of its matrix
products at the rate of one large product, that of the ADiT stage the time in which its weights
are read once a step, both measured in the same run. For models built like pi0.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import median
from typing import Any

from adit_kernels import capture, copy_bandwidth, make_model, median_time, parse
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from robion_ros.engine.batch import stack
from robion_ros.engine.warm_up import example
from robion_ros.models import fused  # noqa: F401, registers its operations.
from robion_ros.models.protocol import Tensors

SIZE = 8192
"""Of the product that the rate is measured with."""


def product_rate() -> float:
    """Return what one large bfloat16 product does, FLOP/s."""
    left, right = (torch.randn(SIZE, SIZE, device='cuda').bfloat16() for _ in range(2))
    return 2 * SIZE**3 / median_time(capture(lambda: left @ right)) * 1e3


def weight_bytes(module: nn.Module) -> int:
    """Return the size of a module's matrices."""
    return sum(weight.nbytes for weight in module.parameters() if weight.ndim == 2)


def measure(model: Any, batch: int, rate: float, bandwidth: float) -> dict[str, float]:
    """Time both stages at a batch size, ms."""
    ticket = example('model', model)
    inputs = {name: tensor.cuda() for name, tensor in stack((ticket,) * batch).items()}
    context, noise = model.vlm(inputs), model.noise(range(batch)).cuda()
    vlm = median_time(capture(lambda: model.vlm(inputs)))
    adit = median_time(capture(lambda: model.adit(context, noise)))
    reading = model.config.steps * weight_bytes(model.network.expert)
    return {'batch': batch, 'vlm': vlm, 'vlm limit': count_products(model, inputs) / rate * 1e3,
            'adit': adit, 'adit limit': reading / bandwidth * 1e3}


@register_flop_formula(torch.ops.robion.attend)
def _(queries: list[int], keys: list[int], *_: Any, **__: Any) -> int:
    batch, heads, tokens, size = queries
    return 4 * batch * heads * tokens * keys[2] * size


@register_flop_formula(torch.ops.robion.gated)
def _(x: list[int], weights: list[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weights[0]


@register_flop_formula(torch.ops.aten._addmm_activation)
def _(bias: list[int], left: list[int], right: list[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(left) * right[1]


def count_products(model: Any, inputs: Tensors) -> int:
    """Return the operations of the products in a VLM stage; layers do not run compiled then."""
    with torch.compiler.set_stance('force_eager'), FlopCounterMode(display=False) as counter:
        model.vlm(inputs)
    return counter.get_total_flops()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parse(parser)
    with torch.inference_mode():
        model = make_model(arguments.architecture)
        rate, bandwidth = median([product_rate() for _ in range(3)]), copy_bandwidth()
        print(f'{torch.cuda.get_device_name()}, torch {torch.__version__}, products at '
              f'{rate / 1e12:.0f} TFLOP/s, copies at {bandwidth / 1e12:.2f} TB/s')
        rows = []
        for batch in arguments.batches:
            rows.append(measure(model, batch, rate, bandwidth))
            print('  '.join(f'{name} {value:.2f}' if isinstance(value, float)
                            else f'{name} {value}' for name, value in rows[-1].items()),
                  flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({'rate': rate, 'bandwidth': bandwidth,
                                              'rows': rows}, indent=1) + '\n')


if __name__ == '__main__':
    main()
