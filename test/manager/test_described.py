# SPDX-License-Identifier: Apache-2.0
"""What is taken over from a factory file that was written since."""

from dataclasses import replace

from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.manager.described import with_new_models

ARM = ModelConfig('tiny', {'front': CameraConfig()}, ('a',), 2.0, 0.2, 4)
OLD = FactoryConfig({'pick': ARM}, {'gpu_0': ServerConfig(('pick',), capacities={'pick': 3}),
                                    'gpu_1': ServerConfig(('pick',))}, {'pick': ('r',)})


def test_new_models_come_with_their_capacities_and_nothing_else_changes() -> None:
    newer = FactoryConfig(
        {'place': replace(ARM, capacity=9), 'pick': replace(ARM, capacity=1)},
        {'gpu_0': ServerConfig(('place',), capacities={'place': 7}), 'gpu_2': ServerConfig(
            ('place',))}, {'place': ('s',)})
    found = with_new_models(OLD, newer)
    assert list(found.models) == ['pick', 'place'] and found.models['pick'] == ARM
    assert list(found.servers) == ['gpu_0', 'gpu_1'] and found.robots == OLD.robots
    assert found.servers['gpu_0'].models == ('pick', 'place')
    assert found.servers['gpu_1'] == OLD.servers['gpu_1']
    assert [found.capacity(server, model) for server in found.servers
            for model in found.models] == [3, 7, 4, 9]


def test_the_same_file_changes_nothing() -> None:
    assert with_new_models(OLD, OLD) == OLD
