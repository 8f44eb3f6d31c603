# SPDX-License-Identifier: Apache-2.0
"""
Pictures of a result that can be read without the text: PNG and SVG, drawn with matplotlib.

Reads what results.py keeps, so that they can be drawn on another machine, and later. Knows
nothing of how it was measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robion_ros.bench.report import differing
from robion_ros.bench.settings import BenchError

Found = Mapping[str, Any]
Draw = Callable[[Any, Found], None]

COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000')
"""Okabe and Ito's, which the colour-blind can tell apart."""
MARKERS = 'osD^vP*'
SUFFIXES = '.png', '.svg'


def find_pyplot() -> Any:
    """Return what draws; raise BenchError where it is not installed."""
    try:
        import matplotlib
        matplotlib.use('agg')
        from matplotlib import pyplot
    except ImportError as error:
        raise BenchError(f'plots need matplotlib ({error}): pip install matplotlib, or leave '
                         '--plots out and draw elsewhere: robion bench plot FILE.json') from None
    return pyplot


def make_folder(path: str) -> None:
    """Make the folder of plots; raise BenchError where it cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f'--plots {path} cannot be made: {error.strerror}') from None


def draw(found: Found, folder: Path, stem: str) -> list[Path]:
    """Draw every picture that a result has data for; return the files."""
    if found['kind'] not in PICTURES:
        raise BenchError(f'there are no pictures of {found["kind"]!r}, only of '
                         f'{", ".join(PICTURES)}')
    pyplot = find_pyplot()
    if not found['rows']:
        raise BenchError('there is nothing to draw: no row was measured')
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for what, width, paint in PICTURES[found['kind']]:
        if what == 'caps' and all(row['way'] != 'fixed cap' for row in found['rows']):
            continue
        if what == 'capacity' and not found['results']:
            continue
        figure = pyplot.figure(figsize=(width, 4.8), layout='constrained')
        axes = figure.add_subplot()
        paint(axes, found)
        write_plainly(axes)
        figure.text(0.005, 0.005, conditions(found), fontsize=6, color='#555555')
        figure.get_layout_engine().set(rect=(0, 0.035, 1, 0.965))
        for suffix in SUFFIXES:
            written.append(folder / f'{stem}_{what}{suffix}')
            try:
                figure.savefig(written[-1], dpi=160)
            except OSError as error:
                written[-1].unlink(missing_ok=True)
                raise BenchError(f'{written[-1]} cannot be written: {error.strerror}') from None
        pyplot.close(figure)
    return written


def write_plainly(axes: Any) -> None:
    """Write numbers out on logarithmic axes, and robots as whole numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == 'log':
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:g}'))
            axis.set_minor_formatter('')
        elif axis.get_label_text().startswith('robots'):
            axis.set_major_locator(MaxNLocator(integer=True))


def draw_attainment(axes: Any, found: Found) -> None:
    """Draw the part of the requests met against robots, a line for each way of serving."""
    for style, label, rows in series(found['rows']):
        rows = [row for row in rows if not row['decided_early']] or rows
        axes.plot([row['robots'] for row in rows], [row['worst'] * 100 for row in rows],
                  label=label, **style)
    target = found['settings']['target'] * 100
    axes.axhline(target, color='#888888', linestyle='--', linewidth=1)
    axes.annotate(f'target: {target:g} %', (0.01, target), xycoords=('axes fraction', 'data'),
                  va='top', fontsize=8, color='#555555')
    axes.set(xlabel=f'robots, each asking at {found["settings"]["rate"]:g} Hz',
             ylabel='requests answered within the deadline, %', ylim=(-2, 103),
             title=f'Robots served in time: {models(found)}')
    axes.legend()
    axes.grid(alpha=0.3)


def draw_latency(axes: Any, found: Found) -> None:
    """Draw median and 99th percentile of the latency against robots."""
    for style, label, rows in series(found['rows']):
        known = [row for row in rows if row['latency_ms']['p50'] is not None]
        robots = [row['robots'] for row in known]
        axes.plot(robots, [row['latency_ms']['p50'] for row in known], label=label, **style)
        axes.plot(robots, [row['latency_ms']['p99'] for row in known],
                  **style | {'linestyle': ':', 'markerfacecolor': 'none'})
    mark_deadlines(axes.axhline, found)
    axes.plot([], [], color='#555555', label='solid: median')
    axes.plot([], [], color='#555555', linestyle=':', label='dotted: 99th percentile')
    axes.set(xlabel=f'robots, each asking at {found["settings"]["rate"]:g} Hz', yscale='log',
             ylabel='observation to chunk at the robot, ms',
             title=f'Latency of answered requests: {models(found)}')
    axes.legend()
    axes.grid(alpha=0.3, which='both')


def draw_distribution(axes: Any, found: Found) -> None:
    """Draw which part of all requests was answered within a time, at one number of robots."""
    count = telling_count(found['rows'])
    for style, label, rows in series([row for row in found['rows'] if row['robots'] == count]):
        values = rows[-1]['requests']['latency_ms']
        answered = sorted(value for value in values if value is not None)
        parts = [100 * (index + 1) / len(values) for index in range(len(answered))]
        axes.step(answered, parts, where='post', label=label,
                  color=style['color'], linestyle=style['linestyle'])
    mark_deadlines(axes.axvline, found)
    axes.set(xlabel='observation to chunk at the robot, ms', xscale='log', ylim=(0, 103),
             ylabel='requests answered within this time, % of all sent',
             title=f'Latency with {count} robots: {models(found)}')
    axes.legend()
    axes.grid(alpha=0.3, which='both')


def draw_capacity(axes: Any, found: Found) -> None:
    """Draw the largest number of robots of each way of serving."""
    results = found['results']
    labels = [label_of(result, results).replace(', ', '\n') for result in results]
    kinds = list(dict.fromkeys(result.get('deadlines') for result in results))
    colours = ([COLOURS[kinds.index(result.get('deadlines'))] for result in results]
               if len(kinds) > 1 else [COLOURS[index % len(COLOURS)] for index in
                                       range(len(results))])
    bars = axes.bar(range(len(results)), [result['capacity'] for result in results],
                    color=colours)
    axes.bar_label(bars)
    axes.set_xticks(range(len(results)), labels, fontsize=8)
    target = found['settings']['target']
    axes.set(ylabel=f'most robots with {target:.0%} of the requests in time',
             title=f'How many robots are served in time: {models(found)}')
    axes.margins(y=0.12)


def draw_caps(axes: Any, found: Found) -> None:
    """Draw the time of a lockstep against the cap of its VLM stage, a line for each pair."""
    pairs: dict[str, list[Mapping[str, Any]]] = {}
    for row in found['rows']:
        pairs.setdefault(f'VLM {row["vlm_batch"]} beside ADiT {row["adit_batch"]}',
                         []).append(row)
    for index, (pair, rows) in enumerate(pairs.items()):
        colour = COLOURS[index % len(COLOURS)]
        fixed = sorted((row for row in rows if row['way'] == 'fixed cap'),
                       key=lambda row: row['cap'])
        axes.plot([row['cap'] for row in fixed], [row['p50_ms'] for row in fixed], 'o-',
                  color=colour, markersize=3, label=pair)
        for way, line in (('no cap', '--'), ('serial', ':')):
            for row in rows:
                if row['way'] == way:
                    axes.axhline(row['p50_ms'], color=colour, linestyle=line, linewidth=1)
    axes.plot([], [], '--', color='#555555', label='dashed: side by side, no cap')
    axes.plot([], [], ':', color='#555555', label='dotted: one stage after the other')
    # Small caps take many times as long and would press the rest into a line.
    slowest = max(row['p50_ms'] for row in found['rows'] if row['way'] != 'fixed cap')
    fastest = min(row['p50_ms'] for row in found['rows'])
    axes.set(ylim=(fastest * 0.9, slowest * 1.25), ylabel='time of a lockstep, median, ms',
             xlabel='multiprocessors (SMs) that the VLM stage may use',
             title=f'A lockstep by the cap of its VLM stage: {models(found)}')
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def draw_ways(axes: Any, found: Found) -> None:
    """Draw the time of a lockstep in sequence, side by side and under caps, by batches."""
    pairs: dict[str, dict[str, float]] = {}
    for row in found['rows']:
        times = pairs.setdefault(f'{row["vlm_batch"]} beside {row["adit_batch"]}', {})
        way = {'fixed cap': 'best of all fixed caps', 'best cap': 'cap of the profile'}.get(
            row['way'], row['way'])
        times[way] = min(row['p50_ms'], times.get(way, row['p50_ms']))
    ways = list(dict.fromkeys(way for times in pairs.values() for way in times))
    width = 0.8 / len(ways)
    for index, way in enumerate(ways):
        places = [place + (index - (len(ways) - 1) / 2) * width for place in range(len(pairs))]
        bars = axes.bar(places, [times.get(way, 0.0) for times in pairs.values()], width,
                        label=way, color=COLOURS[index % len(COLOURS)])
        axes.bar_label(bars, fmt='%.1f', fontsize=7)
    axes.set_xticks(range(len(pairs)), pairs)
    axes.set(xlabel='VLM batch beside ADiT batch', ylabel='time of a lockstep, median, ms',
             title=f'Stages one after the other and side by side: {models(found)}')
    axes.legend(fontsize=8)
    axes.margins(y=0.15)


def draw_timeline(axes: Any, found: Found) -> None:
    """Draw the part of the requests met in each second, and the robots without a server."""
    seconds = [row['second'] for row in found['rows']]
    axes.step(seconds, [row['attainment'] * 100 for row in found['rows']], where='post',
              color=COLOURS[0], label='requests answered within the deadline')
    axes.set(xlabel='virtual time, s', ylabel='requests of this second in time, %',
             ylim=(-2, 103), title=f'{found["settings"]["servers"]} servers: {models(found)}')
    other = axes.twinx()
    other.step(seconds, [row['unserved'] for row in found['rows']], where='post',
               color=COLOURS[1], label='robots without a server')
    other.set(ylabel='robots without a server', ylim=(0, None))
    axes.legend(loc='lower left')
    other.legend(loc='lower right')
    axes.grid(alpha=0.3)


PICTURES: Mapping[str, Sequence[tuple[str, float, Draw]]] = {
    'capacity': (('capacity', 7.2, draw_capacity), ('latency', 7.2, draw_latency)),
    'sweep': (('attainment', 7.2, draw_attainment), ('latency', 7.2, draw_latency),
              ('distribution', 7.2, draw_distribution)),
    'colocate': (('capacity', 9.6, draw_capacity), ('attainment', 7.2, draw_attainment)),
    'simulation': (('timeline', 7.2, draw_timeline),),
    'ablation': (('ways', 9.6, draw_ways), ('caps', 7.2, draw_caps)),
}


def series(rows: Sequence[Mapping[str, Any]],
           ) -> Iterator[tuple[dict[str, Any], str, list[Mapping[str, Any]]]]:
    """Yield a style, a label and the rows, by robots, of each way of serving."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(label_of(row, rows), []).append(row)
    for index, (label, group) in enumerate(groups.items()):
        style = {'color': COLOURS[index % len(COLOURS)], 'marker': MARKERS[index % len(MARKERS)],
                 'linestyle': '-', 'markersize': 4}
        yield style, label, sorted(group, key=lambda row: row['robots'])


def label_of(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what tells a way of serving from those of other rows."""
    names = differing(rows)
    if len(names) > 1 and len({row['mode'] for row in rows}) == 1:
        names.remove('mode')
    words = {'mode': '{}', 'policy': '{}', 'deadlines': '{} deadlines'}
    text = ', '.join(words[name].format(row[name]) for name in names)
    return text.replace('split', 'split (two devices)')


def telling_count(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the largest number that the first way of serving passed with, and all measured."""
    groups = [group for _, _, group in series(rows)]
    common = set.intersection(*({row['robots'] for row in group} for group in groups))
    passed = {row['robots'] for row in groups[0] if row['passes']}
    return int(max(common & passed, default=min(common, default=groups[0][0]['robots'])))


def mark_deadlines(line: Callable[..., Any], found: Found) -> None:
    """Draw the deadlines."""
    slos = sorted({slo for row in found['rows'] for slo in row['slo_ms'].values()})
    for index, slo in enumerate(slos):
        line(slo, color='#888888', linestyle='--', linewidth=1,
             label=f'deadline{"s" if len(slos) > 1 else ""}: '
             f'{", ".join(f"{value:.0f}" for value in slos)} ms' if not index else None)


def models(found: Found) -> str:
    """Return the models, deadlines and the device as a few words."""
    settings, machine = found['settings'], found['machine']
    gpus = sorted({gpu['name'] for gpu in machine['gpus'].values()})
    named = ', '.join(settings['models'])
    if found['kind'] == 'simulation':
        return f'{named}\nsimulated, stage times: {Path(settings["times"]).name}'
    return f'{named}\n{gpus[0] if gpus else machine["cpu"]}'


def conditions(found: Found) -> str:
    """Return what the figures hold for, as one line."""
    settings, machine = found['settings'], found['machine']
    words = [f'seed {settings["seed"]}']
    if found['kind'] != 'simulation':
        words.insert(0, f'batches up to {settings["max_batch"]}')
    if found['kind'] == 'simulation':
        words += [f'{settings["seconds"]:g} s', f'network: {settings["network"]}']
    elif found['kind'] == 'ablation':
        words.append(f'median of {settings["repeats"]}')
    else:
        words += [f'{settings["epochs"]} epochs of {settings["seconds"]:g} s',
                  f'network: {settings["network"]}', f'late requests: {settings["late"]}']
    return ', '.join([*words, f'torch {machine["torch"]}', f'code {machine["code"]}',
                      machine['time']])
