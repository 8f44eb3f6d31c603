# SPDX-License-Identifier: Apache-2.0
"""
Reads a factory file (YAML) into a FactoryConfig, or another file into another dataclass.

What a file may hold follows from the annotations of config.py's dataclasses: one walk compares
the two and says of everything that is wrong the file, the line, the key and the mend. Knows no
field by name, and neither ROS nor torch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, is_dataclass, MISSING
import json
import os
from pathlib import Path
import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints, Literal, TypeVar

import yaml
from yaml.constructor import ConstructorError

from robion_ros.config import check_range, check_unique, FactoryConfig, FieldError, nearest

EXAMPLE = 'share/robion_ros/config/factory.yaml is an example'
MAX_COUNT = 10_000
"""Most names that a count may stand for."""
TAG = 'tag:yaml.org,2002:'
KINDS = {'str': 'text', 'bool': 'true or false', 'int': 'a number', 'float': 'a number',
         'null': 'empty', 'timestamp': 'a date', 'map': 'a mapping', 'seq': 'a list'}
WANTED = {str: 'text', bool: 'true or false', int: 'a whole number', float: 'a decimal number'}

T = TypeVar('T')


class ConfigError(ValueError):
    """What is wrong with a factory file: one line for each mistake."""


def load(path: str | os.PathLike[str]) -> FactoryConfig:
    """Read and check a factory file; raise ConfigError with all mistakes found."""
    return read(FactoryConfig, path, EXAMPLE)


def read(kind: type[T], path: str | os.PathLike[str], example: str) -> T:
    """Read a file into a dataclass like those of config.py; errors point to an example."""
    text = _read(path, example)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f'{path}: is empty; write {", ".join(_required(kind))}: {example}')
        walk = _Walk(path, loader, example)
        config = walk.read(kind, node, '', node.start_mark.line + 1)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f'{path}:{mark.line + 1}' if mark else path
        raise ConfigError(f'{place}: is not YAML: {error.problem or error.context}; '
                          "text that holds ': ' or begins with a sign needs quotes") from None
    except yaml.YAMLError as error:
        raise ConfigError(f'{path}: is not YAML: {error}'.replace('\n', ' ')) from None
    except RecursionError:
        raise ConfigError(f'{path}: is nested too deeply for such a file') from None
    if walk.problems:
        raise ConfigError('\n'.join(walk.problems))
    assert isinstance(config, kind)
    return config


def dump(factory: FactoryConfig) -> str:
    """Return a factory as the text of a factory file: JSON, which is YAML, too."""
    return json.dumps(asdict(factory), indent=1, ensure_ascii=False, default=dict)


def _read(path: str | os.PathLike[str], example: str) -> str:
    """Return a file's text."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f'{path}: there is no such file; {example}') from None
    except OSError as error:
        raise ConfigError(f'{path}: cannot be read: {error.strerror}') from None
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise ConfigError(f'{path}:{line}: is not UTF-8; save it in that encoding') from None


class _Loader(yaml.SafeLoader):
    """Takes merge keys (<<), but no key twice."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace merge keys by the keys they bring; those a mapping has itself win."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, 'a key must be a word', key.start_mark)
            if key.value in lines:
                raise ConstructorError(None, None, f'{key.value!r} stands twice, first in line '
                                       f'{lines[key.value]}; rename or remove one',
                                       key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        super().flatten_mapping(node)
        # Merged keys come first and more than once: without this, merges of merges would grow
        # without bound, and the check above would refuse a mapping that is met again by alias.
        node.value = list({key.value: (key, value) for key, value in node.value}.values())


class _Walk:
    """One walk over a file: what was wrong, and in which line each key stands."""

    def __init__(self, path: str | os.PathLike[str], loader: _Loader, example: str) -> None:
        self._problems: dict[tuple[int, str, str], str] = {}
        self._reported = 0
        self._path = path
        self._example = example
        self._loader = loader
        self._lines: dict[str, int] = {}

    @property
    def problems(self) -> list[str]:
        """What was wrong, a line each; of a mapping that is used again, but once."""
        return list(self._problems.values())

    def read(self, hint: Any, node: yaml.Node, key: str, line: int) -> Any:
        """Return what node holds, of type hint; None once a problem was reported."""
        self._lines[key] = line
        kind, note = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        if note is Path or isinstance(note, re.Pattern):
            return self._locate(note, self._scalar(str, node, key))
        if note and node.tag == f'{TAG}int':
            return self._expand(note, node, key)
        if is_dataclass(kind):
            return self._dataclass(kind, node, key)
        if get_origin(kind) is Mapping:
            return self._mapping(get_args(kind)[1], node, key)
        if get_origin(kind) is tuple:
            return self._list(get_args(kind)[0], node, key, 'a count or ' if note else '')
        return self._scalar(str if get_origin(kind) is Literal else kind, node, key)

    def _locate(self, note: Any, value: str | None) -> str | None:
        """Return a path from the file's folder, or what is none, but of a pattern."""
        path = value and os.path.abspath(Path(self._path).parent / os.path.expanduser(value))
        if value and path and note is not Path and note.fullmatch(value):
            return path if os.path.exists(path) else value
        return path

    def _dataclass(self, kind: Any, node: yaml.Node, key: str) -> Any:
        """Return a dataclass; where all its fields have defaults, the first may stand alone."""
        hints = get_type_hints(kind, include_extras=True)
        required = _required(kind)
        before = self._reported
        values: dict[str, Any] = {}
        if isinstance(node, yaml.ScalarNode) and not required:
            if node.tag != f'{TAG}null':
                first = next(iter(hints))
                values[first] = self.read(hints[first], node, key, self._lines[key])
        elif (entries := self._entries(node, key)) is not None:
            for name, line, value in entries:
                if name in hints:
                    values[name] = self.read(hints[name], value, _join(key, name), line)
                else:
                    self._report(_join(key, name), f'unknown key; {nearest(name, hints)}', line)
            if missing := [name for name in required if name not in values]:
                self._report(key, f'lacks {", ".join(missing)}; {self._example}')
        if self._reported == before:
            with self._placed(key):
                return kind(**values)
        return None

    def _mapping(self, kind: Any, node: yaml.Node, key: str) -> Any:
        """Return a mapping by name; of what has all defaults, a list of names will do."""
        if node.tag == f'{TAG}null':
            return {}
        short = is_dataclass(kind) and not _required(kind)
        if isinstance(node, yaml.SequenceNode) and short:
            names = [name for name in self._list(str, node, key) if name is not None]
            with self._placed(key):
                check_unique('', names)
            return {name: kind() for name in names}
        return {name: self.read(kind, value, _join(key, name), line)
                for name, line, value in self._entries(node, key) or ()}

    def _entries(self, node: yaml.Node, key: str) -> list[tuple[str, int, yaml.Node]] | None:
        """Return the name, line and value of each entry of a mapping."""
        if not isinstance(node, yaml.MappingNode):
            self._unlike(node, key, "a mapping ('key: value' lines)")
            return None
        try:
            self._loader.flatten_mapping(node)
        except ConstructorError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            self._report(key, str(error.problem), line)
            return None
        return [(name.value, name.start_mark.line + 1, value) for name, value in node.value]

    def _list(self, kind: Any, node: yaml.Node, key: str, wanted: str = '') -> Any:
        """Return a tuple."""
        if not isinstance(node, yaml.SequenceNode):
            return self._unlike(node, key, f'{wanted}a list, for example [a, b]')
        return tuple(self.read(kind, item, f'{key}[{index}]', item.start_mark.line + 1)
                     for index, item in enumerate(node.value))

    def _expand(self, note: Callable[[str, int], Any], node: yaml.Node, key: str) -> Any:
        """Return the names that a count stands for."""
        count = self._scalar(int, node, key)
        if count is not None:
            with self._placed(key):
                check_range('', count, 0, MAX_COUNT)
                return note(key.rpartition('.')[2], count)
        return None

    def _scalar(self, kind: Any, node: yaml.Node, key: str) -> Any:
        """Return text, a number or a truth value; none is taken for another."""
        if isinstance(node, yaml.ScalarNode):
            if kind in (str, bool) and node.tag == TAG + kind.__name__:
                return node.value if kind is str else node.value.lower() in ('true', 'yes', 'on')
            # Numbers are read by Python, for YAML 1.1 takes 010 as 8, 1:30 as 90, 1e3 as text.
            if kind in (int, float) and node.style is None:
                with suppress(ValueError):
                    return kind(node.value)
        return self._unlike(node, key, WANTED[kind])

    def _unlike(self, node: yaml.Node, key: str, wanted: str) -> None:
        """Report that a node is not what is wanted."""
        kind = KINDS.get(node.tag.removeprefix(TAG), node.tag)
        problem = f'must be {wanted}'
        if not (wanted.endswith('number') and kind == 'a number'):
            problem += f', not {kind}'
        if isinstance(node, yaml.ScalarNode) and node.value:
            problem = f'{node.value[:40]!r} {problem}'
        if wanted == WANTED[str] and node.value:
            problem += '; write it in quotes'
        elif isinstance(node, yaml.ScalarNode) and node.style:
            problem += '; write it without quotes'
        self._report(key, problem)

    @contextmanager
    def _placed(self, key: str) -> Iterator[None]:
        """Report a FieldError of the block under the key it belongs to."""
        try:
            yield
        except FieldError as error:
            problem = error.problem
            if error.other:
                other = _join(key, error.other)
                problem += f', first in line {self._line(other)} ({other})'
            self._report(_join(key, error.key), problem)

    def _report(self, key: str, problem: str, line: int | None = None) -> None:
        line = line or self._line(key)
        place = f'{self._path}:{line}: {key}: ' if key else f'{self._path}:{line}: '
        shown = ''.join(letter if letter.isprintable() else ascii(letter)[1:-1]
                        for letter in place + problem)
        self._problems.setdefault((line, key.rpartition('.')[2], problem), shown)
        self._reported += 1

    def _line(self, key: str) -> int:
        """Return the line of a key, or that of the nearest one around it."""
        while key not in self._lines:
            key = key[:max(key.rfind('.'), key.rfind('['), 0)]
        return self._lines[key]


def _required(kind: Any) -> list[str]:
    """Return the names of a dataclass' fields without default."""
    return [field.name for field in fields(kind)
            if field.default is MISSING and field.default_factory is MISSING]


def _join(key: str, name: str) -> str:
    """Return the key of something inside of key; either may be empty."""
    return f'{key}{name}' if not key or not name or name[0] == '[' else f'{key}.{name}'
