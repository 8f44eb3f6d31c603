# SPDX-License-Identifier: Apache-2.0
"""
The factory of the file, with models that were written into it after the start.

Models may come to servers while they run; all else of a factory stays as it was read. Knows
neither the file nor who holds what.
"""

from dataclasses import replace

from robion_ros.config import FactoryConfig, ServerConfig


def with_new_models(factory: FactoryConfig, newer: FactoryConfig) -> FactoryConfig:
    """Return factory with the models, and their capacities, that only the newer file has."""
    new = newer.models.keys() - factory.models.keys()

    def extend(name: str, server: ServerConfig) -> ServerConfig:
        if name not in newer.servers:
            return server
        added = newer.servers[name]
        return replace(
            server, models=server.models + tuple(each for each in added.models if each in new),
            capacities={**server.capacities, **{each: most for each, most
                                                in added.capacities.items() if each in new}})
    models = {**factory.models, **{name: newer.models[name] for name in newer.models
                                   if name in new}}
    return replace(factory, models=models, servers={
        name: extend(name, server) for name, server in factory.servers.items()})
