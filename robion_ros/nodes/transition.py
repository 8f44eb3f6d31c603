# SPDX-License-Identifier: Apache-2.0
"""
Puts a plan into force: the calls of the three phases, with what each server must know.

Runs on the planning thread, which may wait. Knows neither the solver nor the operator.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from time import time_ns

from robion_ros.manager.handover import Duties, Duty, moving, Phases, phases, Place
from robion_ros.msg import RobotAssignment, RobotStatus
from robion_ros.nodes.fleet import Fleet
from robion_ros.srv import AssignRobots

NUMBER_MARGIN = 1000
"""Added to the last known request number of a robot whose server died, since it may have
answered more requests than it lived to report."""


@dataclass(frozen=True)
class Applied:
    """What became of a transition."""

    epoch: int
    places: Mapping[str, Place]
    """Where robots are answered now; without those of failed servers that were not there."""
    failures: Mapping[str, str]
    """By server: why it did not take its part."""
    unready: Mapping[str, str]
    """Robots that were moved without having been heard by their next server."""
    stayed: Collection[str] = ()
    """Robots that were to move and did not, as the manager ends."""


class Transition:
    """One change of the assignment."""

    def __init__(self, fleet: Fleet, epoch: int, handover_timeout: float,
                 terms: Mapping[str, int]) -> None:
        """Begin after an epoch; terms are those of the servers that the plan was made for."""
        self._fleet = fleet
        self._terms = terms
        self._epoch = max(epoch, fleet.epoch())
        self._timeout = handover_timeout
        # One that nobody knows may have been answered before everything was started anew, and
        # ignores what is not greater than then. No robot asks more often than once in a ms.
        self._new = RobotAssignment(last_request=time_ns() // 10**6)
        self._handovers: dict[str, RobotAssignment] = {}
        self._failures: dict[str, str] = {}
        self._told: dict[str, int] = {}
        """The epoch that each server was given last."""

    def apply(self, old: Mapping[str, Place], new: Mapping[str, Place],
              alive: Collection[str], unsure: Iterable[str]) -> Applied:
        """
        Lead the living servers from old to new; see handover.phases.

        A robot whose old or next server fails before it was let go stays where it is; and so
        does one that its next server has not heard when others need a new plan, or the manager
        ends.
        """
        self._handovers = {
            robot: self._handover(status, robot not in old or old[robot].server not in alive)
            for robot, status in self._fleet.robots().items() if robot in new}
        steps = phases(old, new, alive, unsure)
        self._call(steps.prepare)
        new, steps = self._keep(old, new, alive, steps)
        unready: Mapping[str, str] = {}
        stayed: Collection[str] = ()
        if standbys := _standbys(old, new, alive):
            unready, lost, hurried = self._fleet.wait_ready(standbys, self._told, alive,
                                                            self._timeout)
            self._failures |= {server: f'{server} was lost while robots moved' for server in lost}
            if hurried:
                new, steps = self._keep(old, new, alive, steps, unready)
                stayed = () if lost else sorted(unready)
                standbys, unready = _standbys(old, new, alive), {}
        self._call(steps.release)
        # Who did not let go may be answering on: two must not.
        held = {robot: old[robot] for robot in standbys if old[robot].server in self._failures}
        self._call({server: {robot: replace(duty, standby=robot in held)
                             for robot, duty in duties.items()}
                    for server, duties in steps.take_over.items()})
        places = {robot: place for robot, place in {**new, **held}.items()
                  if place.server not in self._failures or old.get(robot) == place}
        return Applied(self._epoch, places, self._failures, unready, stayed)

    def confirm(self, running: Mapping[str, Place], unsure: set[str], sure: set[str]) -> int:
        """Tell servers that may do otherwise what runs; return the epoch that this took."""
        calm = {robot: place for robot, place in running.items() if place.server in sure}
        return self.apply(calm, calm, unsure | sure, unsure=unsure).epoch

    def _handover(self, status: RobotStatus, lost: bool) -> RobotAssignment:
        """
        Return what was reported last, until the server that lets the robot go says it exactly.

        lost says that nobody will; and whoever reports may have listened only.
        """
        number = status.last_request
        if lost:
            number = max(number + NUMBER_MARGIN, self._new.last_request)
        return RobotAssignment(last_request=number, watermark=status.watermark,
                               prompt=status.prompt, prompt_stamp=status.prompt_stamp)

    def _keep(self, old: Mapping[str, Place], new: Mapping[str, Place], alive: Collection[str],
              steps: Phases, robots: Container[str] = ()) -> tuple[Mapping[str, Place], Phases]:
        """Let robots stay that are named or whose old or next server has failed."""
        while stuck := {robot: old[robot] for robot in moving(old, new, alive)
                        if robot in robots
                        or self._failures.keys() & {old[robot].server, new[robot].server}}:
            new = {**new, **stuck}
            # Whoever has prepared for such a robot must be told again.
            steps = phases(old, new, alive, steps.prepare)
            self._call(steps.prepare)
        return new, steps

    def _call(self, duties: Duties) -> None:
        """Call the servers of one phase and keep what they let go."""
        requests = {server: self._request(server, robots) for server, robots in duties.items()
                    if server not in self._failures}
        for server, answer in self._fleet.call_all(requests).items():
            if answer is None:
                self._failures[server] = f'{server} did not answer'
            elif not answer.success:
                self._failures[server] = f'{server} refused: {answer.message}'
            else:
                self._handovers |= {robot.robot: robot for robot in answer.released}

    def _request(self, server: str, robots: Mapping[str, Duty]) -> AssignRobots.Request:
        self._epoch += 1
        self._told[server] = self._epoch
        items = []
        for robot, duty in sorted(robots.items()):
            known = self._handovers.get(robot) or self._new
            # Without a stamp it is the default of the model that the robot had.
            prompt = known.prompt if known.prompt_stamp else ''
            items.append(RobotAssignment(
                robot=robot, model=duty.model, server=server, standby=duty.standby,
                last_request=known.last_request, watermark=known.watermark,
                prompt=prompt, prompt_stamp=known.prompt_stamp))
        return AssignRobots.Request(epoch=self._epoch, term=self._terms.get(server, 0),
                                    robots=items)


def _standbys(old: Mapping[str, Place], new: Mapping[str, Place],
              alive: Collection[str]) -> dict[str, str]:
    """Return the next servers of the robots that living servers hand over."""
    return {robot: new[robot].server for robot in moving(old, new, alive)}


