# SPDX-License-Identifier: Apache-2.0
"""
Times pi0 beside lerobot's pi0 in PyTorch, both with random weights on one GPU.

python3 benchmarks/peers.py [--batches 1 2 4] [--calls 40] [--compile] [--json FILE]

Needs Python 3.12 and lerobot: python3 -m pip install 'lerobot[pi]==0.6.1'. Both models have the
published size, three cameras, 48 prompt tokens, chunks of 50, ten steps; lerobot's bfloat16 leaves
SigLIP, the norms and the ends in float32. A time is that of one call from tensors on the device to
actions on the device, on the wall clock: pictures are scaled and text is turned into tokens
before. Here it is two CUDA graphs, one after the other, and the copy of the inputs into them;
--compile adds lerobot's under torch.compile, which takes about five minutes for each batch size.
Medians, ms; every call has inputs of its own. Knows no checkpoints.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
import json
import logging
from pathlib import Path
from statistics import median
import sys
from time import perf_counter
from typing import Any

from adit_kernels import capture, make_model, parse
import torch
from torch import Tensor

from robion_ros.models.pi0_config import KEYS, PI0

WARM_UPS = 10


def import_lerobot() -> tuple[Any, Any]:
    """Return lerobot's class of pi0 and of its sizes; exit where they cannot be imported."""
    try:
        version('transformers')  # Without it lerobot can be imported, but has no layers.
        from lerobot.policies.pi0.configuration_pi0 import PI0Config
        from lerobot.policies.pi0.modeling_pi0 import PI0Pytorch
    except ImportError as error:
        raise SystemExit(f"lerobot's pi0 cannot be imported: {error}; with Python 3.12, python3 "
                         "-m pip install 'lerobot[pi]==0.6.1'") from error
    return PI0Pytorch, PI0Config


def make_lerobot(network: Any, config: Any, device: str) -> Any:
    """Build lerobot's pi0 in its published size with random weights."""
    sizes = config(dtype='bfloat16', device=device, chunk_size=PI0.horizon,
                   n_action_steps=PI0.horizon, num_inference_steps=PI0.steps)
    with torch.device(device):
        return network(sizes).requires_grad_(False).eval()


def used_parameters(lerobot: Any) -> int:
    """Count the parameters that inference reads: the heads that name words are not."""
    weights = dict(lerobot.named_parameters())
    return sum(weights[key].numel() for _, key in KEYS['pi0'].pairs(weights))


def draw(batch: int, device: str) -> dict[str, Tensor]:
    """Draw what a batch of chunks is made of, as pi0 here takes it."""
    size = PI0.image_size
    return {'images': torch.randint(256, (batch, PI0.cameras, size, size, 3), device=device,
                                    dtype=torch.uint8),
            'image_mask': torch.ones(batch, PI0.cameras, device=device, dtype=torch.bool),
            'tokens': torch.randint(PI0.vocabulary, (batch, PI0.prompt_tokens), device=device),
            'token_mask': torch.ones(batch, PI0.prompt_tokens, device=device, dtype=torch.bool),
            'state': torch.randn(batch, PI0.padded_size, device=device),
            'noise': torch.randn(batch, PI0.horizon, PI0.padded_size, device=device)}


def draw_for_lerobot(batch: int, device: str) -> dict[str, Any]:
    """Draw the same as lerobot's pi0 takes it."""
    inputs = draw(batch, device)
    images = (inputs['images'].float() / 127.5 - 1).movedim(-1, 2).contiguous()
    return {'images': list(images.unbind(1)), 'img_masks': list(inputs['image_mask'].unbind(1)),
            'lang_tokens': inputs['tokens'], 'lang_masks': inputs['token_mask'],
            'state': inputs['state'], 'noise': inputs['noise']}


def capture_stages(model: Any, static: dict[str, Tensor]) -> Callable[..., Tensor]:
    """Return a function of inputs like static that runs both stages, each a CUDA graph."""
    context: dict[str, Tensor] = {}

    def adit() -> None:
        context['actions'] = model.adit(context, static['noise'])

    graphs = capture(lambda: context.update(model.vlm(static))), capture(adit)

    def run(**inputs: Tensor) -> Tensor:
        for name, value in inputs.items():
            static[name].copy_(value)
        for graph in graphs:
            graph.replay()
        return context['actions']

    return run


def time_calls(run: Callable[..., Tensor], inputs: Callable[[], dict[str, Any]], calls: int
               ) -> dict[str, float]:
    """Return the median and the longest time of calls, ms; exit if actions are not finite."""
    times = []
    for _ in range(WARM_UPS + calls):
        values = inputs()
        torch.cuda.synchronize()
        start = perf_counter()
        actions = run(**values)
        torch.cuda.synchronize()
        times.append((perf_counter() - start) * 1e3)
        if not actions.isfinite().all():
            raise SystemExit(f'actions {list(actions.shape)} are not finite: the random weights '
                             'or the model are wrong')
    return {'median': median(times[WARM_UPS:]), 'longest': max(times[WARM_UPS:])}


def time_ours(model: Any, batches: list[int], calls: int, device: str
              ) -> Iterator[dict[str, Any]]:
    """Yield a row of the report for each batch size of pi0 here."""
    how = 'CUDA graphs with kernels' if model.kernels else 'CUDA graphs'
    for batch in batches:
        run = capture_stages(model, draw(batch, device))
        yield {'model': 'robion_ros', 'how': how, 'batch': batch,
               **time_calls(run, partial(draw, batch, device), calls)}


def time_lerobot(model: Any, batches: list[int], calls: int, device: str, compiled: bool
                 ) -> Iterator[dict[str, Any]]:
    """Yield a row of the report for each batch size and way of running lerobot's pi0."""
    # With 'high', which lerobot sets when it compiles, float32 products may be made of TF32.
    ways = {'eager': 'highest', 'eager, TF32': 'high'}
    if compiled:
        ways['compiled'] = 'high'
    for how, precision in ways.items():
        torch.set_float32_matmul_precision(precision)
        for batch in batches:
            run = model.sample_actions
            if how == 'compiled':
                torch.compiler.reset()  # The next batch size would be compiled for any size.
                run = torch.compile(run, mode='reduce-overhead')
            yield {'model': 'lerobot', 'how': how, 'batch': batch,
                   **time_calls(run, partial(draw_for_lerobot, batch, device), calls)}


def measure(batches: list[int], calls: int, device: str, compiled: bool
            ) -> Iterator[dict[str, Any]]:
    """Build one model after the other; yield the rows of the report."""
    classes = import_lerobot()
    ours = make_model('pi0')
    count = sum(weight.numel() for weight in ours.network.parameters())
    yield from time_ours(ours, batches, calls, device)
    del ours
    theirs = make_lerobot(*classes, device)
    if (used := used_parameters(theirs)) != count:
        raise SystemExit(f"lerobot's pi0 uses {used:,} parameters, the one here {count:,}; "
                         'install lerobot 0.6.1')
    yield from time_lerobot(theirs, batches, calls, device, compiled)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--calls', type=int, default=40)
    parser.add_argument('--compile', action='store_true', help="lerobot's under torch.compile too")
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parse(parser)
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    rows = []
    for row in measure(arguments.batches, arguments.calls, 'cuda:0', arguments.compile):
        rows.append(row)
        print('{model}, {how}, batch {batch}: {median:.2f} ms, longest {longest:.2f}'.format(
            **row), flush=True)
    report = {'gpu': torch.cuda.get_device_name(), 'calls': arguments.calls, 'ms': rows,
              **{name: version(name) for name in ('torch', 'lerobot', 'transformers')}}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + '\n')


if __name__ == '__main__':
    main()
