# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in words. Knows no things."""


def count(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'
