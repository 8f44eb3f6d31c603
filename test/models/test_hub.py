# SPDX-License-Identifier: Apache-2.0
"""Where checkpoints lie: on this machine first, and on the hub only if they are named so."""

import sys
from types import SimpleNamespace

import pytest

from robion_ros.models.folder import CheckpointError
from robion_ros.models.hub import locate


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Stand in for the hub's package, with one model that is not yet here."""
    calls = []

    def download(name, allow_patterns, local_files_only=False, ignore_patterns=None):
        calls.append((name, local_files_only))
        copy = tmp_path / 'cache'
        if local_files_only and not copy.exists():
            raise FileNotFoundError('not in the cache')
        if name != 'lerobot/pi0_base':
            raise OSError('404')
        copy.mkdir(exist_ok=True)
        if not local_files_only:
            (copy / 'model.safetensors').touch()
        assert not [pattern for pattern in allow_patterns if 'py' in pattern or 'bin' in pattern]
        return str(copy)
    monkeypatch.setitem(sys.modules, 'huggingface_hub', SimpleNamespace(
        snapshot_download=download))
    monkeypatch.chdir(tmp_path)
    return calls


def test_a_model_of_the_hub_is_downloaded_once(hub, tmp_path):
    assert locate('lerobot/pi0_base') == locate('lerobot/pi0_base') == tmp_path / 'cache'
    assert [local for _, local in hub] == [True, False, True]


def test_a_copy_that_was_cut_off_is_completed(hub, tmp_path):
    (tmp_path / 'cache').mkdir()
    assert locate('lerobot/pi0_base') == tmp_path / 'cache'
    assert [local for _, local in hub] == [True, False]


def test_a_folder_of_that_name_comes_first(hub, tmp_path):
    (tmp_path / 'lerobot' / 'pi0_base').mkdir(parents=True)
    assert locate('lerobot/pi0_base') == tmp_path / 'lerobot' / 'pi0_base'
    assert not hub


@pytest.mark.parametrize('name', ['/models/lerobot/pi0_base', './lerobot/pi0', 'pi0', 'a/b/c',
                                  '../lerobot/pi0'])
def test_no_path_is_looked_for_on_the_hub(hub, name):
    locate(name)
    assert not hub


def test_what_is_neither_is_said(hub):
    with pytest.raises(CheckpointError, match=r'pi9 is not a folder, and could not .* 404'):
        locate('lerobot/pi9')


def test_without_the_package_a_name_is_said_to_be_no_folder(monkeypatch):
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    with pytest.raises(CheckpointError, match=r'not a folder; .* pip install huggingface_hub'):
        locate('lerobot/pi0_base')
