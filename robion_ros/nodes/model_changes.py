# SPDX-License-Identifier: Apache-2.0
"""
Models that come and go while a server serves: the services, from the call to the answer.

One change at a time. What takes long runs in a thread beside the executor; what robots and the
manager see changes on the executor alone, when that is done. Knows neither graphs nor requests.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TYPE_CHECKING

from rclpy.node import Node

from robion_ros.config import nearest
from robion_ros.factory_file import ConfigError
from robion_ros.factory_file import load as load_factory
from robion_ros.nodes import qos
from robion_ros.nodes.convert import to_duration
from robion_ros.nodes.late_service import Answer, LateService
from robion_ros.srv import LoadModel, UnloadModel

if TYPE_CHECKING:
    from robion_ros.nodes.serving import Loaded, Serving

LOAD, UNLOAD = LoadModel.Response, UnloadModel.Response


class Problem(NamedTuple):
    """Why a change cannot be."""

    error_code: int
    message: str


Finish = Callable[[], Any]
"""What runs on the executor at the end of a change, and returns the response."""


class Change(NamedTuple):
    """What is under way."""

    what: str
    future: Future[Finish | Problem]
    kind: Any
    """Of the response."""
    answer: Answer


class ModelChanges:
    """The services load_model and unload_model of a server."""

    def __init__(self, node: Node, name: str, path: str, timeout: float,
                 serving: 'Callable[[], Serving | None]') -> None:
        """Offer them; path is the factory file's, timeout that of requests in flight, s."""
        self._node, self._name, self._path, self._timeout = node, name, path, timeout
        self._serving = serving
        self._change: Change | None = None
        LateService(node, LoadModel, qos.private(name, qos.LOAD_MODEL), self._on_load)
        LateService(node, UnloadModel, qos.private(name, qos.UNLOAD_MODEL), self._on_unload)

    @property
    def busy(self) -> bool:
        """Whether a model comes or goes."""
        return self._change is not None

    def settle(self) -> bool:
        """Put into force what is ready, and answer; return whether anything was."""
        change = self._change
        if change is None or not change.future.done():
            return False
        self._change = None
        result = change.future.result()
        if isinstance(result, Problem):
            self._refuse(change.kind, change.answer, result)
        else:
            response = result()
            self._node.get_logger().info(response.message)
            change.answer(response)
        return True

    def abandon(self) -> None:
        """Answer that what is under way comes to nothing, as the models are let go."""
        if self._change:
            change, self._change = self._change, None
            self._refuse(change.kind, change.answer, Problem(
                LOAD.NOT_CONFIGURED, f'{change.what} came to nothing: {self._name} let all its '
                'models go meanwhile'))

    def _on_load(self, request: LoadModel.Request, answer: Answer) -> None:
        serving, start = self._serving(), monotonic()
        if problem := self._obstacle():
            self._refuse(LOAD, answer, problem)
        elif serving and request.model in serving.configs:
            self._refuse(LOAD, answer, Problem(
                LOAD.ALREADY_HELD, f'{self._name} holds {request.model} already; to load it '
                'anew, unload it first'))
        elif serving:
            self._begin(serving, f'loading {request.model}', LOAD, answer,
                        lambda: self._load(serving, request.model, start))

    def _on_unload(self, request: UnloadModel.Request, answer: Answer) -> None:
        serving, model = self._serving(), request.model
        if problem := self._obstacle():
            self._refuse(UNLOAD, answer, problem)
        elif serving and model not in serving.configs:
            self._refuse(UNLOAD, answer, Problem(
                UNLOAD.NOT_HELD, f'{self._name} does not hold {model!r}; '
                f'{nearest(model, serving.configs)}'))
        elif serving and (robots := serving.roster.users(model)):
            self._refuse(UNLOAD, answer, Problem(
                UNLOAD.IN_USE, f'{self._name} serves {", ".join(robots)} with {model}; give them '
                'another model or server first'), robots)
        elif serving:
            serving.roster.withdraw(model)
            self._begin(serving, f'unloading {model}', UNLOAD, answer,
                        lambda: self._unload(serving, model))

    def _obstacle(self) -> Problem | None:
        """Return why no change can begin."""
        if not self._serving():
            return Problem(LOAD.NOT_CONFIGURED, f'{self._name} is not configured; configure it '
                           'first')
        if self._change:
            return Problem(LOAD.BUSY, f'{self._name} is {self._change.what}; call again when '
                           'that is done')
        return None

    def _begin(self, serving: 'Serving', what: str, kind: Any, answer: Answer,
               job: Callable[[], Finish | Problem]) -> None:
        self._node.get_logger().info(what)
        self._change = Change(what, serving.thread.submit(job), kind, answer)

    def _refuse(self, kind: Any, answer: Answer, problem: Problem,
                robots: list[str] | None = None) -> None:
        serving = self._serving()
        self._node.get_logger().warning(problem.message)
        answer(kind(message=problem.message, error_code=problem.error_code,
                    models=list(serving.roster.models) if serving else [],
                    **{'robots': robots} if robots else {}))

    def _load(self, serving: 'Serving', model: str, start: float) -> Finish | Problem:
        """Read the file and load a model, beside the executor."""
        try:
            factory = load_factory(self._path)
        except ConfigError as error:
            return Problem(LOAD.BAD_FILE, str(error))
        if model not in factory.models:
            others = sorted(factory.models.keys() - serving.configs.keys())
            return Problem(LOAD.UNKNOWN_MODEL, f'{self._path} describes no model {model!r}; '
                           f'{nearest(model, others)}, or write it into the file first')
        try:
            loaded = serving.load(model, factory)
        except BaseException as error:  # Also SystemExit: the server goes on.
            text = str(error) if isinstance(error, ValueError) else (
                f'models.{model}: {type(error).__name__}: {error}')
            return Problem(LOAD.NOT_LOADED, text)
        named = factory.servers.get(self._name)
        lack = '' if named and model in named.models else (
            f'; {self._path} does not name it in servers.{self._name}.models: write it there, or '
            'it is gone with the next start')
        return lambda: self._take(serving, model, loaded, lack, start)

    def _take(self, serving: 'Serving', model: str, loaded: 'Loaded', lack: str,
              start: float) -> LoadModel.Response:
        from robion_ros.engine.memory import show  # With torch, which is loaded by now.
        serving.take(model, loaded)
        seconds = monotonic() - start
        return LOAD(
            success=True, models=list(serving.roster.models), weights=loaded.weights,
            load_time=to_duration(seconds),
            message=f'{self._name} holds {model}: {show(loaded.weights)} of weights, '
                    f'loaded and tried in {seconds:.1f} s{lack}')

    def _unload(self, serving: 'Serving', model: str) -> Finish | Problem:
        """Let a model go, beside the executor."""
        if serving.unload(model, self._timeout):
            return lambda: self._let_go(serving, model)
        return lambda: self._keep(serving, model)

    def _keep(self, serving: 'Serving', model: str) -> UnloadModel.Response:
        serving.roster.offer(model, serving.configs[model])
        return UNLOAD(
            error_code=UNLOAD.STILL_RUNNING, models=list(serving.roster.models),
            message=f'requests of {model} were still running after {self._timeout} s; '
                    f'{self._name} holds it as before: call again')

    def _let_go(self, serving: 'Serving', model: str) -> UnloadModel.Response:
        serving.forget(model)
        named = Path(self._path).name
        return UNLOAD(success=True, models=list(serving.roster.models),
                      message=f'{self._name} holds {model} no more; what {named} names for it is '
                              'loaded again at its next start')
