# SPDX-License-Identifier: Apache-2.0
"""
`robion check`: what a checkpoint folder holds, how to write it down, and one request to it.

Knows neither architectures nor layouts: they describe themselves.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
import json
from pathlib import Path
import sys
from typing import Any

from robion_ros.commands.progress import Bar
from robion_ros.commands.proposal import propose, propose_model
from robion_ros.config import FactoryConfig, ModelConfig, ServerConfig
from robion_ros.engine.device import Device, open_device
from robion_ros.engine.memory import make_share, memory_file, outline_models, show
from robion_ros.models import registry
from robion_ros.models.description import Description, summarize_weights, WeightsSummary
from robion_ros.models.hub import locate
from robion_ros.models.layouts import detect
from robion_ros.models.trial import run_once
from robion_ros.words import count


def run(arguments: argparse.Namespace) -> int:
    """Check a folder; return 0 if it can be served, 1 if something keeps it from that."""
    found: dict[str, Any] = {'checkpoint': arguments.checkpoint, 'problems': []}
    text: list[str] = []
    try:
        inspect(arguments, found, text)
    except (ImportError, ValueError) as error:
        found['problems'] += str(error).splitlines()
    if arguments.json is None:
        print('\n'.join([*text, *(f'problem: {problem}' for problem in found['problems']),
                         'it cannot be served' if found['problems'] else 'it can be served']))
    elif arguments.json == '-':
        print(json.dumps(found, indent=2))
    else:
        Path(arguments.json).write_text(json.dumps(found, indent=2) + '\n')
    return 1 if found['problems'] else 0


def inspect(arguments: argparse.Namespace, found: dict[str, Any], text: list[str]) -> None:
    """Fill in what is found, as far as that goes; raise ValueError where it goes no further."""
    folder = locate(arguments.checkpoint)
    found['folder'] = str(folder)
    trait = detect(folder)
    found |= {'architecture': trait.architecture, 'layout': trait.layout}
    text.append(f'{folder}: {trait.architecture}, as {trait.layout} saves it')
    weights = summarize_weights(folder)
    found['weights'] = asdict(weights)
    text += format_weights(weights)
    tokenizer = arguments.tokenizer or ''
    described = registry.find(trait.architecture).inspect(folder, tokenizer)
    found |= asdict(described)
    found['problems'] = list(described.problems)
    text += format_description(described)
    # A folder is named from anywhere, a model of the hub by its name.
    named = str(folder) if Path(arguments.checkpoint).exists() else arguments.checkpoint
    model = propose_model(described, named, tokenizer)
    found['factory'] = propose(described, model, folder)
    text += ['', *found['factory'].splitlines(), '']
    if not described.problems:
        device = open_device(arguments.device)  # Says what is wrong with it.
        found['memory'] = weigh(model, device)
        text += format_memory(found['memory'])
        found['request'] = answer(model, arguments.device, found['memory'])
        text += format_request(found['request'])
        if not found['request'].get('finite', True):
            found['problems'].append('the chunk has values that are not finite')


def weigh(model: ModelConfig, device: Device) -> Mapping[str, Any]:
    """Say what a server of this model alone takes of a device, and what that has, bytes."""
    factory = FactoryConfig({'model': model}, {'server': ServerConfig(('model',), device.name)})
    share = make_share(factory, 'server', outline_models(factory, 'server', {}),
                       memory_file(device).read())
    memory = device.memory()
    return {'device': device.name, 'weights': sum(share.weights.values()),
            'beside': share.beside, 'measured': share.measured,
            'free': memory.free if memory else None, 'total': memory.total if memory else None}


def answer(model: ModelConfig, device: str, memory: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load the model on a device and run a request, unless it would not fit."""
    needed, free = memory['weights'], memory['free']
    if free is not None and free < needed * 1.1:
        return {'device': device, 'skipped': f'the weights take {show(needed)} on {device}, '
                f'{show(free)} are free'}
    with Bar(sys.stderr) as bar:
        loaded = registry.load(model, device, bar.show)
    first = run_once(loaded, device)
    # On a GPU the first request compiles.
    trial = first if device == 'cpu' else run_once(loaded, device)
    return {'device': device, 'first': first.total, **asdict(trial), 'total': trial.total}


def format_weights(weights: WeightsSummary) -> list[str]:
    """Say how many weights there are."""
    kinds = ', '.join(f'{count / 1e6:.2f} M in {kind}' for kind, count in weights.dtypes.items())
    return [f'weights: {weights.nbytes / 1e6:.1f} MB in {weights.tensors} tensors, {kinds}']


def format_description(described: Description) -> list[str]:
    """Say what a robot brings and gets."""
    cameras = ', '.join(described.cameras) or f'{described.camera_count}, by their order'
    duration, size = described.step_duration, described.image_size
    named = f': {", ".join(described.action_names)}' if described.action_names else ''
    tokenizer = {None: 'missing', '': 'none needed'}.get(described.tokenizer, described.tokenizer)
    return [
        f'cameras: {cameras}; seen as '
        f'{size if isinstance(size, str) else f"{size}x{size}"}',
        f'state: {count(described.state_size, "value")}, {described.state_units}',
        f'action: {count(described.action_size, "value")}{named}; {described.action_units}',
        f'chunk: {count(described.horizon, "step")} of '
        f'{f"{duration:g} s" if duration else "a duration that it does not say"}, '
        f'denoised in {described.denoising_steps}',
        f'prompt: at most {described.prompt_tokens} tokens; tokenizer: {tokenizer}',
        *(f'note: {note}' for note in described.notes)]


def format_memory(memory: Mapping[str, Any]) -> list[str]:
    """Say what a server of the model takes."""
    how = 'measured' if memory['measured'] else 'estimated'
    there = ('' if memory['free'] is None else
             f'; {show(memory["free"])} of {show(memory["total"])} are free')
    return [f'memory on {memory["device"]}: weights {show(memory["weights"])}, graphs and buffers '
            f'{show(memory["beside"])} ({how}){there}']


def format_request(request: Mapping[str, Any]) -> list[str]:
    """Say how long a request took."""
    if 'skipped' in request:
        return [f'no request was run: {request["skipped"]}']
    parts = ', '.join(f'{name} {request[name] * 1e3:.1f} ms'
                      for name in ('preprocess', 'vlm', 'adit', 'postprocess'))
    first = f' (the first: {request["first"]:.1f} s)' if request['device'] != 'cpu' else ''
    return [f'one request on {request["device"]}, without graphs: '
            f'{request["total"] * 1e3:.1f} ms{first}: {parts}']
