# SPDX-License-Identifier: Apache-2.0
"""
Models that come and go while an engine serves: prepared on its device, then taken by it.

Both block, and are for one thread beside those that serve: on a GPU the one that prepared the
other models, so that theirs and the new graphs share what the library of matrix products keeps
for each thread. Knows neither checkpoints nor robots.
"""

from robion_ros.engine.device import Prepared
from robion_ros.engine.engine import Engine
from robion_ros.models.protocol import Model


def add_model(engine: Engine, ready: Prepared, name: str, model: Model) -> None:
    """
    Let an engine serve one more model of those that are ready.

    All or nothing: raises what the model or the device raises, RuntimeError if the model cannot
    run, and ValueError if there is one of that name.
    """
    if name in ready.models:
        raise ValueError(f'there is a model {name} already')
    added = ready.add(name, model)
    try:
        engine.add(name, added.models[name], added.times)
    except BaseException:  # Also SystemExit: the next one may have its name.
        del added
        ready.remove(name)
        raise


def remove_model(engine: Engine, ready: Prepared, name: str, timeout: float) -> bool:
    """
    Take a model from an engine, and free it; False, and nothing, if timeout s were short.

    Raise ValueError if robots are assigned to it.
    """
    ended = engine.remove(name, timeout)
    if ended:
        ready.remove(name)
    return ended
