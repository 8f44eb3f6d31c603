# SPDX-License-Identifier: Apache-2.0
"""
Check a plan and recompute its objective: guards every plan that is sent, and the tests.

Shares no code with the solver, and knows neither how a plan was found nor whether it is the best.
"""

from fractions import Fraction
from itertools import combinations

from robion_ros.manager.errors import InfeasiblePlan
from robion_ros.manager.traffic import TrafficPlan, TrafficProblem


def evaluate(problem: TrafficProblem, plan: TrafficPlan) -> int:
    """Return the objective of a plan; raise InfeasiblePlan naming what it breaks."""
    for (server, model), count in plan.robots.items():
        what = f'{count} robots of {model} on {server}'
        if server not in problem.hosts:
            raise InfeasiblePlan(f'{what}: there is no such server')
        if model not in problem.hosts[server]:
            raise InfeasiblePlan(f'{what}: the server has not loaded the model')
        if count < 1:
            raise InfeasiblePlan(f'{what}: only positive numbers stand in a plan')
        if problem.capacities[server, model] < 1:
            raise InfeasiblePlan(f'{what}: the capacity is {problem.capacities[server, model]}')
    for model in problem.robots.keys() | {model for _, model in plan.robots}:
        planned = sum(count for (_, name), count in plan.robots.items() if name == model)
        if planned != problem.robots.get(model, 0):
            raise InfeasiblePlan(f'{planned} robots of {model} are planned, there are '
                                 f'{problem.robots.get(model, 0)}')
    objective = 0
    for server in problem.hosts:
        counts = {model: count for (name, model), count in plan.robots.items() if name == server}
        load = sum((Fraction(count, problem.capacities[server, model])
                    for model, count in counts.items()), Fraction())
        if load > 1:
            raise InfeasiblePlan(f'the load of {server} is {load}, must be at most 1')
        objective += sum(one * other for one, other in combinations(counts.values(), 2))
    if plan.objective != objective:
        raise InfeasiblePlan(f'the objective is {objective}, the plan says {plan.objective}')
    if plan.bound > objective or (plan.optimal and plan.bound != objective):
        raise InfeasiblePlan(f'the objective is {objective}, the bound {plan.bound} is not right')
    return objective
