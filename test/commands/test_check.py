# SPDX-License-Identifier: Apache-2.0
"""`robion check`, as somebody types it."""

import json
from pathlib import Path
import shutil

import pytest
import torch

from robion_ros.commands.arguments import run as main
from robion_ros.engine.device import CpuDevice, Memory
from robion_ros.factory_file import load

GOLDEN = Path(__file__).resolve().parents[1] / 'golden'
TOKENIZER = str(GOLDEN / 'tokenizer.json')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / 'pi05', tmp_path / 'my-checkpoint.1')


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    main(['check', *words, '--json'])
    return json.loads(capsys.readouterr().out)


def test_a_folder_is_described_and_answers(folder: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['check', str(folder), '--tokenizer', TOKENIZER]) == 0
    text = capsys.readouterr().out
    for said in (f'{folder}: pi05, as lerobot saves it', 'cameras: front, wrist; seen as 56x56',
                 'state: 8 values, scaled from a range', 'relative to the state',
                 'action: 7 values: x, y, z', 'denoised in 4', 'one request on cpu',
                 'BF16', 'it can be served'):
        assert said in text, said


def test_xiaomi_robotics_is_described_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['check', str(GOLDEN / 'xiaomi')]) == 0
    text = capsys.readouterr().out
    for said in ('xiaomi_robotics_0, as mibot saves it', 'cameras: base, wrist_left',
                 'seen as 64x80 and 64x32', 'state: 32 values, not scaled', 'action: 7 values',
                 'mean and deviation of golden',
                 'chunk: 6 steps', 'denoised in 5', 'prompt: at most 128 tokens',
                 'one request on cpu', 'BF16', 'it can be served'):
        assert said in text, said


def test_the_same_as_json(folder: Path, tmp_path: Path,
                          capsys: pytest.CaptureFixture[str]) -> None:
    said = found(capsys, str(folder), '--tokenizer', TOKENIZER)
    assert said['architecture'] == 'pi05' and said['layout'] == 'lerobot'
    assert said['problems'] == [] and said['weights']['tensors'] > 50
    assert said['request']['finite'] and said['request']['total'] > 0
    path = tmp_path / 'said.json'
    assert main(['check', str(folder), '--tokenizer', TOKENIZER, '--json', str(path)]) == 0
    assert json.loads(path.read_text())['factory'] == said['factory']


@pytest.mark.parametrize('kind', ['pi0', 'pi05', 'smolvla'])
def test_what_is_proposed_is_a_factory_file_that_serves_it(
        kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = found(capsys, str(GOLDEN / kind), *(
        () if kind == 'smolvla' else ('--tokenizer', TOKENIZER)))
    path = tmp_path / 'factory.yaml'
    name = said['factory'].splitlines()[1].strip(' :')
    path.write_text(f'{said["factory"]}servers: {{gpu_0: {{models: [{name}]}}}}\n')
    model = load(path).models[name]
    assert model.architecture == kind and model.checkpoint == str(GOLDEN / kind)
    from robion_ros.models import registry
    assert registry.load(model, 'cpu').spec.action_size == 7


def test_gr00t_is_checked_and_what_is_proposed_serves_it(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, tokenizer = GOLDEN / 'gr00t', str(GOLDEN / 'gr00t_tokenizer' / 'vocab.json')
    assert main(['check', str(folder), '--tokenizer', tokenizer]) == 0
    text = capsys.readouterr().out
    for said in (f'{folder}: gr00t_n1_5, as Isaac-GR00T saves it', 'cameras: front, wrist; seen',
                 'state: 8 values, min_max', 'action: 7 values: arm_1, arm_2',
                 'chunk: 5 steps of 0.05 s, denoised in 4', 'note: pictures are cut',
                 'one request on cpu', 'it can be served'):
        assert said in text, said
    said = found(capsys, str(folder), '--tokenizer', tokenizer)
    path = tmp_path / 'factory.yaml'
    path.write_text(f'{said["factory"]}servers: {{gpu_0: {{models: [gr00t]}}}}\n')
    model = load(path).models['gr00t']
    from robion_ros.models import registry
    assert registry.load(model, 'cpu').spec.step_duration == 0.05


def test_everything_that_is_missing_is_said(folder: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    index = folder / 'model.safetensors.index.json'
    second = folder / 'model-00002-of-00002.safetensors'
    index.write_text(json.dumps({'weight_map': {
        key: name for key, name in json.loads(index.read_text())['weight_map'].items()
        if name != second.name}}))
    assert main(['check', str(folder)]) == 1
    text = capsys.readouterr().out
    assert 'problem: ' in text and text.rstrip().endswith('it cannot be served')


def test_what_is_proposed_is_shown_beside_what_is_missing(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['check', str(folder)]) == 1
    text = capsys.readouterr().out
    assert 'tokenizer: missing' in text and 'architecture: pi05' in text
    assert 'problem: checkpoint' in text and 'has no tokenizer: copy tokenizer.json, or ' in text
    assert 'one request' not in text


@pytest.mark.parametrize(('words', 'problem'), [
    (['/nowhere'], 'checkpoint /nowhere does not exist; give the folder that holds config.json, '
     'or owner/name for a model of the Hugging Face hub'),
    ([__file__], 'test_check.py is not a folder; give the folder that holds'),
    (['.'], 'has no config.json; it has'),
])
def test_what_is_no_checkpoint_is_said(words: list[str], problem: str, tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['check', *words]) == 1
    assert problem in capsys.readouterr().out


@pytest.mark.parametrize(('words', 'problem'), [
    (['x', '--device', 'tpu'], "'tpu' must be 'cpu' or 'cuda:<index>'"),
    (['x', '--tokenizer', '/nowhere'], '/nowhere is not a file'),
    ([], 'CHECKPOINT'),
])
def test_wrong_arguments_are_named(words: list[str], problem: str,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(['check', *words])
    assert ended.value.code == 2 and problem in capsys.readouterr().err


def test_what_does_not_fit_into_memory_is_not_loaded(
        folder: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(CpuDevice, 'memory', lambda device: Memory(1000, 2 * 10**9))
    assert main(['check', str(folder), '--tokenizer', TOKENIZER]) == 0
    out = capsys.readouterr().out
    assert 'no request was run: the weights take' in out
    assert 'memory on cpu: weights ' in out and '; 0.0 MB of 2.00 GB are free' in out


def test_tiny_is_checked_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from robion_ros.config import CameraConfig, ModelConfig
    from robion_ros.models import registry
    model = registry.load(ModelConfig('tiny', {'a': CameraConfig()}, ('x',), 1.0, 1.0, 1), 'cpu')
    model.save(tmp_path)
    assert main(['check', str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert 'cameras: 1, by their order' in text and 'tokenizer: none needed' in text


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_a_device_that_is_not_there_is_a_problem_after_what_was_found(capsys) -> None:
    assert main(['check', str(GOLDEN / 'smolvla'), '--device', 'cuda:0']) == 1
    out = capsys.readouterr().out
    assert 'architecture: smolvla' in out
    assert "problem: device 'cuda:0' is not available here" in out
