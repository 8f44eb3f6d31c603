# SPDX-License-Identifier: Apache-2.0
"""
Where a checkpoint lies: a folder, or a copy of a model of Hugging Face's hub.

What lies on this machine is never looked for elsewhere, and a model that was downloaded once is
not downloaded again. Knows neither layouts nor architectures.
"""

from importlib import import_module
import logging
from pathlib import Path
from typing import Any

from robion_ros.config import HUB_ID
from robion_ros.models.folder import CheckpointError
from robion_ros.models.shards import is_adapter, weight_files

logger = logging.getLogger(__name__)

WANTED = ['*.json', '*.safetensors', '*.model', 'merges.txt']
"""Nothing else is downloaded: no code, no pickles."""
UNWANTED = ['training_state/*', 'checkpoints/*']


def locate(checkpoint: str) -> Path:
    """Return the folder of a checkpoint; download it where there is none and it names a model."""
    folder = Path(checkpoint).expanduser()
    if folder.exists() or not HUB_ID.fullmatch(checkpoint):
        return folder.absolute()
    try:
        hub: Any = import_module('huggingface_hub')
    except ImportError as error:
        raise CheckpointError(
            f'checkpoint {checkpoint} is not a folder; if it is a model of the Hugging Face hub, '
            'download it, or pip install huggingface_hub') from error
    try:
        found = Path(hub.snapshot_download(checkpoint, allow_patterns=WANTED,
                                           local_files_only=True))
        if not is_adapter(found):
            weight_files(found)
        return found
    except Exception:  # Not here, or not all of it; the package raises what it likes.
        logger.info('downloading %s', checkpoint)
    try:
        return Path(hub.snapshot_download(checkpoint, allow_patterns=WANTED,
                                          ignore_patterns=UNWANTED))
    except Exception as error:
        raise CheckpointError(f'checkpoint {checkpoint} is not a folder, and could not be had '
                              f'from the Hugging Face hub: {error}') from error
