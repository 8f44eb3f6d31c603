# SPDX-License-Identifier: Apache-2.0
"""Tokenizers are read from files, and what is missing or wrong is said."""

import shutil
import sys

import pytest

from robion_ros.models.folder import CheckpointError
from robion_ros.models.tokenizer_files import find_tokenizer, open_tokenizer

from .golden import FOLDER

JSON, PIECES = FOLDER / 'tokenizer.json', FOLDER / 'openpi' / 'tokenizer.model'
QWEN = FOLDER / 'gr00t_tokenizer'
CHAT = '<|im_start|>', '<img>'


def open_here(folder, configured='', vocabulary=400):
    return open_tokenizer(folder, configured, 'that of the model', vocabulary)


@pytest.mark.parametrize('source', [JSON, PIECES], ids=['json', 'sentencepiece'])
def test_a_text_is_encoded_without_its_beginning(source, tmp_path):
    shutil.copy(source, tmp_path)
    tokenizer = open_here(tmp_path)
    tokens = tokenizer.encode('pick the ball')
    assert tokenizer.begin == 2 and 2 not in tokens and len(tokens) > 2
    assert max(tokens) < tokenizer.size <= 400
    assert tokenizer.encode('pick') + tokenizer.encode('\n') == tokenizer.encode('pick\n')


def test_without_a_beginning_the_file_says_what_is_added():
    plain = open_tokenizer(FOLDER / 'smolvla', '', 'that', 400, needed=())
    assert plain.begin is None and plain.encode('pick')
    adding = open_tokenizer(FOLDER, str(JSON), 'that', 400, needed=())
    assert adding.encode('pick') == [2, *open_here(FOLDER).encode('pick')]
    with pytest.raises(CheckpointError, match='model cannot be read'):
        open_tokenizer(FOLDER, str(PIECES), 'that', 400, needed=())


def test_what_is_configured_comes_first(tmp_path):
    shutil.copy(JSON, tmp_path)
    assert find_tokenizer(tmp_path, str(PIECES)) == PIECES
    assert find_tokenizer(tmp_path) == tmp_path / 'tokenizer.json'


def test_words_of_a_chat_are_single_tokens():
    tokenizer = open_tokenizer(QWEN, '', 'that of the model', 400, CHAT)
    tokens = tokenizer.encode('<|im_start|>user\npick it<img>')
    assert tokens[0] == tokenizer.begin == 341 and tokens[-1] == 343
    assert max(tokens[1:-1]) < tokenizer.size <= 341


@pytest.mark.parametrize('path', [JSON, PIECES], ids=['json', 'sentencepiece'])
def test_a_tokenizer_without_the_words_of_a_chat_is_refused(path, tmp_path):
    with pytest.raises(CheckpointError, match=r'it has no token <\|im_start\|>'):
        open_tokenizer(tmp_path, str(path), 'that of the model', 400, CHAT)


def test_a_vocabulary_is_told_from_others_by_the_words_it_lacks(tmp_path):
    for path in QWEN.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / 'added_tokens.json').unlink()
    with pytest.raises(CheckpointError, match=r'it has no token <\|im_start\|>'):
        open_tokenizer(tmp_path, '', 'that of the model', 400, CHAT)
    (tmp_path / 'added_tokens.json').write_text('{"<|im_start|>": 390, "<img>": 343}')
    with pytest.raises(CheckpointError, match='says that <img> is 343, and it would be 339'):
        open_tokenizer(tmp_path, '', 'that of the model', 400, CHAT)
    (tmp_path / 'merges.txt').unlink()
    with pytest.raises(CheckpointError, match=r'vocab\.json cannot be read'):
        open_tokenizer(tmp_path, '', 'that of the model', 400, CHAT)


def damaged(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    return lambda: open_here(tmp_path)


def test_words_that_a_model_needs_are_looked_for(tmp_path):
    shutil.copy(FOLDER / 'xiaomi' / 'tokenizer.json', tmp_path)
    needed = '<|im_start|>', '<|im_end|>'
    tokenizer = open_tokenizer(tmp_path, '', 'that of the model', 400, needed)
    assert tokenizer.encode('<|im_start|>') == [tokenizer.begin]
    with pytest.raises(CheckpointError, match=r'it has no token <\|end\|>'):
        open_tokenizer(tmp_path, '', 'that of the model', 400, (*needed, '<|end|>'))


CASES = {
    'none': (lambda path: lambda: open_here(path), 'no tokenizer: copy that of the model '
             'there, or name the file with the key tokenizer'),
    'no such file': (lambda path: lambda: open_here(path, str(path / 'x.json')),
                     'x.json is not a file'),
    'not JSON': (lambda path: damaged(path, 'tokenizer.json', b'{'), 'json cannot be read'),
    'no pieces': (lambda path: damaged(path, 'tokenizer.model', b'x'), 'model cannot be read'),
    'too large': (lambda path: lambda: open_here(path, str(JSON), 100),
                  'tokens, the model knows 100: it is not the one'),
    'no beginning': (lambda path: damaged(path, 'tokenizer.json', JSON.read_bytes().replace(
        b'<bos>', b'<beg>')), 'cannot be read: it has no token <bos>'),
}


@pytest.mark.parametrize('make, message', CASES.values(), ids=CASES)
def test_what_is_wrong_is_said(tmp_path, make, message):
    call = make(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        call()


@pytest.mark.parametrize('source, package', [(JSON, 'tokenizers'), (PIECES, 'sentencepiece')])
def test_a_missing_package_is_named(tmp_path, monkeypatch, source, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f'needs the package {package}: pip install {package}'):
        open_here(tmp_path, str(source))
