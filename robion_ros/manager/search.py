# SPDX-License-Identifier: Apache-2.0
"""
Local search: exchanges robots between two servers at a time, by simulated annealing.

Knows no bound: how far its plans are from the best is not seen here.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from math import exp
from random import Random
import time

from robion_ros.manager.group import Group, Rows

STEPS = 400
"""Exchanges that a first round tries, for each model or server; later ones try more."""
COLD = 0.5
"""Temperature at which a round ends, in pairs of robots."""
PATIENCE = 3
"""Cycles of rounds, each twice as long as the one before, that a better plan is waited for."""
SETTLING = 500
"""Exchanges that are tried to spare robots a move, for each model and server."""

Exchange = tuple[int, int, int, int, int, int]
"""Of which server and model how many go to which server, and of which model how many back."""
Watch = Callable[[Rows], None]
"""Is told each plan that is better than all before, and at last the one that is taken."""


class State:
    """A plan under change; no exchange that is proposed overloads a server."""

    def __init__(self, group: Group, rows: Rows) -> None:
        self.group = group
        self.rows = [row[:] for row in rows]
        self.totals = [sum(row) for row in rows]
        self.free = [room - sum(map(int.__mul__, weights, row)) for room, weights, row
                     in zip(group.room, group.weights, rows, strict=True)]
        self.cells = [(server, model) for server, row in enumerate(rows)
                      for model, robots in enumerate(row) if robots]
        self._index = {cell: index for index, cell in enumerate(self.cells)}
        self._taken = [[model for model, robots in enumerate(row) if robots] for row in rows]

    def propose(self, random: Callable[[], float]) -> Exchange | None:
        """Draw an exchange: of one model to a server that has room, or for others from there."""
        giver, model = self.cells[int(random() * len(self.cells))]
        hosts = self.group.hosts[model]
        taker = hosts[int(random() * len(hosts))]
        if taker == giver:
            return None
        weights, given = self.group.weights[taker], self.rows[giver][model]
        fit = self.free[taker] // weights[model]
        choice, others = random(), self._taken[taker]
        if choice < 0.5 or not others:
            robots = min(given, fit)
            if choice < 0.1:
                robots = 1 + int(random() * robots) if robots else 0
            return (giver, model, robots, taker, 0, 0) if robots else None
        other = others[int(random() * len(others))]
        back = self.group.weights[giver]
        if other == model or not back[other]:
            return None
        if choice < 0.75:
            # All of the other, for as many as fit then.
            returned = self.rows[taker][other]
            given = min(given, (self.free[taker] + returned * weights[other]) // weights[model])
        else:
            # All of this one, for as few of the other as make room.
            returned = -((self.free[taker] - given * weights[model]) // weights[other])
            if not 0 < returned <= self.rows[taker][other]:
                return None
        if returned * back[other] - given * back[model] > self.free[giver]:
            returned = (self.free[giver] + given * back[model]) // back[other]
            if given * weights[model] - returned * weights[other] > self.free[taker]:
                return None
        return (giver, model, given, taker, other, returned) if given and returned > 0 else None

    def pairs(self, exchange: Exchange) -> int:
        """Return how many more pairs there are after an exchange."""
        giver, model, given, taker, other, returned = exchange
        left, right, totals = self.rows[giver], self.rows[taker], self.totals
        more = given * (totals[taker] - right[model] - totals[giver] + left[model])
        if returned:
            more += returned * (totals[giver] - left[other] - totals[taker] + right[other]
                                - 2 * given)
        return more

    def moved(self, exchange: Exchange) -> int:
        """Return how many more of the running robots move by an exchange."""
        giver, model, given, taker, other, returned = exchange
        more = self._lost(giver, model, -given) + self._lost(taker, model, given)
        if returned:
            more += self._lost(giver, other, returned) + self._lost(taker, other, -returned)
        return more

    def _lost(self, server: int, model: int, change: int) -> int:
        short = self.group.running[server][model] - self.rows[server][model]
        return max(0, short - change) - max(0, short)

    def apply(self, exchange: Exchange) -> None:
        """Make an exchange."""
        giver, model, given, taker, other, returned = exchange
        self._move(giver, taker, model, given)
        if returned:
            self._move(taker, giver, other, returned)

    def _move(self, giver: int, taker: int, model: int, robots: int) -> None:
        left, right, index = self.rows[giver], self.rows[taker], self._index
        if not right[model]:
            index[taker, model] = len(self.cells)
            self.cells.append((taker, model))
            self._taken[taker].append(model)
        left[model] -= robots
        right[model] += robots
        self.totals[giver] -= robots
        self.totals[taker] += robots
        self.free[giver] += robots * self.group.weights[giver][model]
        self.free[taker] -= robots * self.group.weights[taker][model]
        if not left[model]:
            place, last = index.pop((giver, model)), self.cells.pop()
            if place < len(self.cells):
                self.cells[place] = last
                index[last] = place
            self._taken[giver].remove(model)


def improve(group: Group, rows: Rows, heats: Sequence[float], deadline: float, watch: Watch,
            worth: int | None = None) -> Rows:
    """
    Search for a plan of less cost until none is found for a while, or until deadline.

    rows must serve every robot; heats are the temperatures at which rounds begin, in turn, in
    robots of a server; deadline is in s of time.monotonic(); worth is how many moved robots cost
    as much as a pair, None: more than there are. The same rows give the same plan, unless the
    deadline cuts the search short.
    """
    per_server = sum(group.robots) / len(group.servers)
    first = STEPS * (len(group.servers) + len(group.models))
    best, cost, since = rows, group.cost(rows, worth), 0
    for number, heat in zip(count(), cycle(heats)):
        if not cost or since == PATIENCE * len(heats) or time.monotonic() >= deadline:
            break
        found = anneal(group, best, (max(COLD, heat * per_server), COLD),
                       first << number // len(heats), Random(number), deadline, worth)
        since += 1
        if group.cost(found, worth) < cost:
            best, cost, since = found, group.cost(found, worth), 0
            watch(best)
    return best


def anneal(group: Group, rows: Rows, heat: tuple[float, float], steps: int, random: Random,
           deadline: float, worth: int | None = None) -> Rows:
    """
    Try so many exchanges; worse ones pass with a chance that falls with the temperature.

    heat is the temperature at the beginning and at the end, in pairs of robots; worth is that of
    improve. Return the plan of least cost met.
    """
    state = State(group, rows)
    draw, propose, pairs, moved = random.random, state.propose, state.pairs, state.moved
    unit = group.unit(worth)
    now = best = group.cost(rows, worth)
    best_rows = rows
    hot, cold = (degrees * unit for degrees in heat)
    began = time.monotonic()
    for step in range(steps):
        if not step & 255:
            clock = time.monotonic()
            if clock >= deadline:
                break
            # Where time is short, it is as cold at the deadline as after all steps.
            passed = max(step / steps, (clock - began) / (deadline - began))
            temperature = hot * (cold / hot)**passed
        exchange = propose(draw)
        if exchange is None:
            continue
        more = unit * pairs(exchange)
        if group.runs:
            more += moved(exchange)
        if more <= 0 or draw() < exp(-more / temperature):
            state.apply(exchange)
            now += more
            if now < best:
                best, best_rows = now, [row[:] for row in state.rows]
    return best_rows


def settle(group: Group, rows: Rows, deadline: float) -> Rows:
    """Spare running robots their move without more pairs."""
    heat, steps = (1.0, 0.3 / (1 + group.runs)), SETTLING * len(group.servers) * len(group.models)
    settled = anneal(group, _bring_back(group, rows), heat, steps, Random(0), deadline)
    return _bring_back(group, settled)


def _bring_back(group: Group, rows: Rows) -> Rows:
    """Move robots to where as many run, wherever that makes no more pairs."""
    state = State(group, rows)
    changed = True
    while changed:
        changed = False
        for giver, model in state.cells[:]:
            for taker in group.hosts[model]:
                for exchange in _returns(state, giver, model, taker):
                    if state.pairs(exchange) <= 0 and state.moved(exchange) < 0:
                        state.apply(exchange)
                        changed = True
                        break
    return state.rows


def _returns(state: State, giver: int, model: int, taker: int) -> Iterator[Exchange]:
    """Yield exchanges that bring robots back to taker, alone or for others that leave it."""
    group, rows = state.group, state.rows
    weights, back = group.weights[taker], group.weights[giver]
    robots = min(rows[giver][model], group.running[taker][model] - rows[taker][model])
    if taker == giver or robots < 1:
        return
    fit = state.free[taker] // weights[model]
    if fit:
        yield giver, model, min(robots, fit), taker, 0, 0
    for other, here in enumerate(rows[taker]):
        if here and other != model and back[other] and fit < robots:
            returned = min(here, -((state.free[taker] - robots * weights[model])
                                   // weights[other]))
            given = min(robots, (state.free[taker] + returned * weights[other]) // weights[model])
            if given and returned * back[other] - given * back[model] <= state.free[giver]:
                yield giver, model, given, taker, other, returned


def even_out(group: Group, rows: Rows) -> Rows:
    """Bring the loads of every two servers as close as neither pairs nor moves become more."""
    state = State(group, rows)
    changed = True
    while changed:
        changed = False
        for giver, model in state.cells[:]:
            for taker in group.hosts[model]:
                exchange = _balance(state, giver, model, taker)
                if exchange and state.pairs(exchange) <= 0 and state.moved(exchange) <= 0:
                    state.apply(exchange)
                    changed = True
    return state.rows


def _balance(state: State, giver: int, model: int, taker: int) -> Exchange | None:
    """Return how many of a model bring the loads of two servers closest; None if none does."""
    group = state.group
    full, empty = (1 - state.free[server] / group.room[server] for server in (giver, taker))
    more, less = (1 / group.capacities[server][model] for server in (taker, giver))
    robots = min(state.rows[giver][model], round((full - empty) / (more + less)))
    if taker == giver or robots < 1:
        return None
    # Rounding might bring back next time what it took this time.
    if max(full - robots * less, empty + robots * more) > full - 1e-9:
        return None
    return giver, model, robots, taker, 0, 0
