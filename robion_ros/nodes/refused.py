# SPDX-License-Identifier: Apache-2.0
"""The one way a conversion says that a message cannot be used. Knows no message."""


class Refused(ValueError):
    """A message that cannot be used; the text says what is wrong, where, and the mend."""
