# SPDX-License-Identifier: Apache-2.0
"""Every interface reads like documentation, and is generated as it is written."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
import re

import pytest

ROOT = Path(__file__).resolve().parents[1]
INTERFACES = sorted([*ROOT.glob('msg/*.msg'), *ROOT.glob('srv/*.srv')])
LINE = re.compile(r'(?P<type>[\w/]+(\[[<=\d]*\])?) +(?P<name>\w+)( *= *(?P<value>.+))?')

pytestmark = pytest.mark.parametrize('path', INTERFACES, ids=lambda path: path.stem)


@dataclass(frozen=True)
class Entry:
    """One field or constant."""

    type: str
    name: str
    value: str | None
    """Of a constant; None for a field."""
    comment: str
    """The comment directly above."""


def sections(path: Path) -> list[list[Entry]]:
    """Return the entries of a message, or of a service's request and response."""
    found: list[list[Entry]] = [[]]
    comment: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith('#'):
            comment.append(line.removeprefix('#').strip())
            continue
        if line == '---':
            found.append([])
        elif line:
            match = LINE.fullmatch(line)
            assert match, f'{path.name}: {line!r} is neither a comment, a field nor a constant'
            found[-1].append(Entry(match['type'], match['name'], match['value'],
                                   ' '.join(comment)))
        comment = []
    return found


def fields(section: list[Entry]) -> list[Entry]:
    return [entry for entry in section if entry.value is None]


def generated(path: Path) -> list[type]:
    interface = getattr(import_module(f'robion_ros.{path.parent.name}'), path.stem)
    return [interface.Request, interface.Response] if path.suffix == '.srv' else [interface]


def test_file_opens_with_purpose_and_sender(path: Path) -> None:
    opening, _, rest = path.read_text().partition('\n\n')
    lines = opening.splitlines()
    assert all(line.startswith('# ') for line in lines)
    verb = 'Called by ' if path.suffix == '.srv' else '(Sent by |Part of )'
    assert re.search(rf'\. {verb}', ' '.join(line.removeprefix('# ') for line in lines))
    assert rest.startswith('# '), 'an empty line parts the opening from the first field'


def test_every_entry_has_a_comment_above(path: Path) -> None:
    entries = [entry for section in sections(path) for entry in section]
    bare = [entry.name for entry in entries if not re.search(r'\w.*[.:]$', entry.comment)]
    assert entries
    assert bare == []


def test_constants_stand_above_their_field(path: Path) -> None:
    for section in sections(path):
        for entry, following in zip(section, [*section[1:], None], strict=True):
            if entry.value is not None:
                assert entry.name.isupper()
                assert following is not None and following.type == entry.type, entry.name
            elif entry.comment.startswith('One of the constants above'):
                above = section[section.index(entry) - 1]
                assert above.value is not None, f'{entry.name}: no constants stand above'


def test_response_begins_with_success_and_message(path: Path) -> None:
    if path.suffix == '.srv':
        _, response = sections(path)
        assert [(entry.type, entry.name) for entry in fields(response)[:2]] == [
            ('bool', 'success'), ('string', 'message')]
    else:
        assert len(sections(path)) == 1


@pytest.mark.ros
def test_generated_class_has_the_fields_and_constants(path: Path) -> None:
    for section, interface in zip(sections(path), generated(path), strict=True):
        assert list(interface.get_fields_and_field_types()) == [
            entry.name for entry in fields(section)]
        for entry in section:
            if entry.value is not None:
                assert getattr(interface, entry.name) == int(entry.value)
