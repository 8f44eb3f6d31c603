# SPDX-License-Identifier: Apache-2.0
"""
Times how a server takes in pictures, and what that does to its locksteps.

python3 benchmarks/ingest.py [--robots 64] [--cameras 3] [--architecture paced] [--device cpu]
                             [--executor own] [--repeats 3] [--json FILE]

Starts a factory with a manager, one real server process and robots in processes of eight, and
prints of the server, as medians of the repeats: messages heard per second, CPU time of the
process and of its threads in percent of a core, locksteps (p50 and p99 of those that run both
stages at the most frequent batch sizes; the gap between two of them; ms), and the time from the
publication of a request's last picture until the request is formed (ms). Attainment and latency
are the robots' own. --executor single puts rclpy's SingleThreadedExecutor into the server.

paced computes nothing, its stages last as long as --stages says: it shows what the host adds
where there is no GPU. Take a real architecture with --device cuda:0. Needs ROS, and a
ROS_DOMAIN_ID that no other factory has.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
import json
import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
import threading
from time import clock_gettime, monotonic, pthread_getcpuclockid, sleep, time_ns
from typing import Any

from factory import scripted, serve_or
import numpy as np

THREADS = 'executor', 'intake', 'engine', 'outbox'
SAMPLE_PERIOD = 0.5


def serve(probes: str, stages: str, executor: str, nice: int) -> int:
    """Run a server node with probes; write to a file what they find."""
    os.nice(nice)
    from paced import pace_tiny
    from rclpy.executors import SingleThreadedExecutor

    from robion_ros.engine.engine import Engine
    from robion_ros.engine.in_flight import InFlight
    from robion_ros.nodes import server
    from robion_ros.nodes.served_robot import ServedRobot
    from robion_ros.nodes.serving import Serving
    from robion_ros.nodes.spinner import Spinner
    found: dict[str, list[Any]] = {'heard': [], 'formed': [], 'locksteps': [], 'cpu': []}

    def before(kind: type, name: str, note: Callable[..., None]) -> None:
        plain = getattr(kind, name)

        def noted(*arguments: Any) -> Any:
            note(*arguments)
            return plain(*arguments)
        setattr(kind, name, noted)

    def note_formed(serving: Any, draft: Any) -> None:
        published = max(frame.published_ns for frame in draft.frames)
        found['formed'].append((monotonic(), (time_ns() - published) / 1e6))

    def note_lockstep(engine: Any, ended: InFlight | None) -> None:
        if ended and ended.seconds:
            found['locksteps'].append((ended.started, ended.started + ended.seconds, *(
                load.batch if load else 0 for load in ended.loads)))

    def sample() -> None:
        while True:
            clocks = {thread.name: clock_gettime(pthread_getcpuclockid(thread.ident))
                      for thread in threading.enumerate()
                      if thread.name in THREADS and thread.ident}
            found['cpu'].append((monotonic(), {**clocks, 'process': sum(os.times()[:2])}))
            sleep(SAMPLE_PERIOD)
    for name in ('_on_frame', '_on_state'):
        before(ServedRobot, name, lambda *_: found['heard'].append(monotonic()))
    before(Serving, '_submit', note_formed)
    before(Engine, '_record', note_lockstep)
    if executor == 'single':
        def single(hurries: Callable[[], bool] = lambda: True) -> Spinner:
            return Spinner(SingleThreadedExecutor())
        server.one_thread = single  # type: ignore[attr-defined]
    if stages:
        pace_tiny(*(float(stage) / 1e3 for stage in stages.split(',')))
    threading.Thread(target=sample, daemon=True).start()
    code = server.main()
    Path(probes).write_text(json.dumps(found))
    return code


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Run a factory once; return its figures."""
    from robion_ros.bench.arrivals import make_robots, schedule
    from robion_ros.bench.metrics import summarize
    from robion_ros.bench.network import Trip
    from robion_ros.bench.prepared import make_configs
    from robion_ros.bench.ros_graph import Graph, open_graph
    from robion_ros.bench.settings import Traffic
    from robion_ros.config import FactoryConfig, ServerConfig
    paced = options.architecture == 'paced'
    path = Path(folder, 'probes.json')
    change = partial(scripted, probes=str(path), stages=options.stages if paced else '',
                     executor=options.executor, nice=options.nice)
    slos = {'model': options.slo / 1e3}
    configs = make_configs({'model': 'tiny' if paced else options.architecture}, slos,
                           options.rate, options.cameras, 7, 0)
    factory = FactoryConfig(configs, {'server_0': ServerConfig(
        ('model',), options.device, options.max_batch)})
    traffic = Traffic(options.rate, 1, options.seconds, lead=2.0)
    trips = [Trip(arrival) for arrival in schedule(make_robots(slos, options.robots), traffic, 0)]
    graph = Graph(factory, options.robots, options.per_process, (options.size, options.size),
                  options.joint_rate, change=change)
    with open_graph(graph) as serving:
        records = [record for record in serving.run(trips) if record.arrival.counted]
        begin = serving.start + traffic.lead
    found = json.loads(path.read_text())
    robots = summarize(records)
    return {**read_probes(found, begin, begin + traffic.seconds),
            'attainment': robots['attainment'], 'latency_ms': robots['latency_ms']}


def read_probes(found: Mapping[str, Any], begin: float, end: float) -> dict[str, Any]:
    """Return the figures of a server between two moments, s of time.monotonic()."""
    def within(rows: Sequence[Any]) -> list[Any]:
        return [row for row in rows if begin <= row[0] < end]
    locksteps = within(found['locksteps'])
    pair = Counter((vlm, adit) for _, _, vlm, adit in locksteps
                   if vlm and adit).most_common(1)[0][0]
    gaps = [after[0] - before[1] for before, after in pairwise(locksteps)
            if before[2] and after[3]]
    cpu = within(found['cpu'])
    seconds = cpu[-1][0] - cpu[0][0]
    return {
        'messages_per_s': round(sum(begin <= when < end for when in found['heard'])
                                / (end - begin), 1),
        'cpu_percent': {name: round(100 * (cpu[-1][1][name] - cpu[0][1][name]) / seconds, 1)
                        for name in ('process', *THREADS)},
        'batches': pair,
        'lockstep_ms': spread([1e3 * (stop - start) for start, stop, *sizes in locksteps
                               if tuple(sizes) == pair]),
        'gap_ms': spread([1e3 * gap for gap in gaps]),
        'formed_ms': spread([late for _, late in within(found['formed'])]),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return count, p50, p99 and their ratio."""
    p50, p99 = np.percentile(values, (50, 99)).tolist()
    return {'count': len(values), 'p50': round(p50, 3), 'p99': round(p99, 3),
            'ratio': round(p99 / p50, 4)}


def middle(runs: Sequence[Any]) -> Any:
    """Return the medians of figures, however deep they stand."""
    if isinstance(runs[0], Mapping):
        return {key: middle([run[key] for run in runs]) for key in runs[0]}
    if isinstance(runs[0], int | float):
        return median(runs)
    return runs[0]


def main() -> int:
    """Measure as told; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--robots', type=int, default=64)
    parser.add_argument('--cameras', type=int, default=3)
    parser.add_argument('--rate', type=float, default=2.0)
    parser.add_argument('--joint-rate', type=float, default=20.0)
    parser.add_argument('--size', type=int, default=224)
    parser.add_argument('--per-process', type=int, default=8)
    parser.add_argument('--architecture', default='paced')
    parser.add_argument('--stages', default='20,18', help='VLM and ADiT stage of paced, ms')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--max-batch', type=int, default=2)
    parser.add_argument('--slo', type=float, default=156.0, help='ms')
    parser.add_argument('--executor', choices=('own', 'single'), default='own')
    parser.add_argument('--nice', type=int, default=0,
                        help='of the server; -20 stands for free cores where there are none')
    parser.add_argument('--seconds', type=float, default=20.0)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--json')
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        runs = [measure(options, folder) for _ in range(options.repeats)]
    result = {'options': vars(options), 'cpus': len(os.sched_getaffinity(0)),
              'median': middle(runs), 'runs': runs}
    for key, value in result['median'].items():
        print(f'{key}: {value}')
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    serve_or(main, serve)
