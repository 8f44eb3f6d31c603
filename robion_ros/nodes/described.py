# SPDX-License-Identifier: Apache-2.0
"""
The factory file, read again where it may describe models that it did not at the start.

Knows neither servers nor plans.
"""

from collections.abc import Iterable

from robion_ros.config import FactoryConfig
from robion_ros.factory_file import ConfigError, load
from robion_ros.manager.described import with_new_models
from robion_ros.manager.population import BadPopulation


def knowing(factory: FactoryConfig, path: str, models: Iterable[str]) -> FactoryConfig:
    """
    Return the factory, with what its file has new if it lacks one of models.

    Raise BadPopulation where the file cannot be read.
    """
    if factory.models.keys() >= set(models):
        return factory
    try:
        return with_new_models(factory, load(path))
    except ConfigError as error:
        raise BadPopulation(str(error)) from error
