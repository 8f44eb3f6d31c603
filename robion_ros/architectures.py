# SPDX-License-Identifier: Apache-2.0
"""Which architectures there are, and the module of each. Imports none of them."""

ARCHITECTURES = {
    'tiny': 'robion_ros.models.tiny',
    'pi0': 'robion_ros.models.pi0',
    'pi05': 'robion_ros.models.pi0',
    'pi0_small': 'robion_ros.models.pi0',
    'pi05_small': 'robion_ros.models.pi0',
    'smolvla': 'robion_ros.models.smolvla',
    'smolvla_small': 'robion_ros.models.smolvla',
    'xiaomi_robotics_0': 'robion_ros.models.xiaomi',
    'xiaomi_robotics_0_small': 'robion_ros.models.xiaomi',
    'gr00t_n1_5': 'robion_ros.models.gr00t',
    'gr00t_n1_5_small': 'robion_ros.models.gr00t',
}
