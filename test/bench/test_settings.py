# SPDX-License-Identifier: Apache-2.0
"""Names of models and their deadlines."""

import pytest

from robion_ros.bench.settings import find_slos, name_models, Traffic


def test_models_of_one_architecture_are_numbered() -> None:
    assert name_models(['pi0', 'tiny', 'pi0']) == {'pi0_1': 'pi0', 'tiny': 'tiny', 'pi0_2': 'pi0'}


@pytest.mark.parametrize(('given', 'expected'), [
    ({}, {'pi0_1': 0.156, 'pi0_2': 0.156}),
    ({'': 0.2}, {'pi0_1': 0.2, 'pi0_2': 0.2}),
    ({'pi0': 0.2, '': 0.3}, {'pi0_1': 0.2, 'pi0_2': 0.2}),
    ({'pi0_2': 0.1, '': 0.3}, {'pi0_1': 0.3, 'pi0_2': 0.1}),
], ids=['the paper', 'all', 'architecture', 'model'])
def test_the_nearest_deadline_counts(given: dict[str, float], expected: dict[str, float]) -> None:
    assert find_slos({'pi0_1': 'pi0', 'pi0_2': 'pi0'}, given) == expected


@pytest.mark.parametrize(('given', 'problem'), [
    ({}, 'no deadline is known for tiny'), ({'tony': 0.1}, "'tony' is none of the models tiny"),
], ids=['none', 'unknown'])
def test_a_deadline_that_is_missing_or_nobodys_is_named(given: dict[str, float],
                                                        problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        find_slos({'tiny': 'tiny'}, given)


@pytest.mark.parametrize('change', [{'rate': 0.0}, {'epochs': 0}, {'seconds': 0.4}, {'lead': -1.0},
                                    {'target': 1.5}], ids=lambda change: next(iter(change)))
def test_traffic_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Traffic(**change)  # type: ignore[arg-type]
