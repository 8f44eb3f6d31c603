# SPDX-License-Identifier: Apache-2.0
"""
The VLM stage on one device and the ADiT stage on another, whole batches handed across.

The stages do not wait for each other: while the ADiT stage of one batch runs, the VLM stages of
later ones may, up to one finished batch that waits. Knows neither queues nor models.
"""

from collections.abc import Mapping
from functools import partial
from queue import Queue
from threading import Thread

from robion_ros.engine.answers import Answer
from robion_ros.engine.batch import Batch
from robion_ros.engine.device import Device
from robion_ros.engine.in_flight import Entering, InFlight, Leaving
from robion_ros.engine.pipelines import hand_over, run_adit, run_vlm
from robion_ros.models.protocol import Model

WAITING = 1
"""Batches between the stages; a VLM stage that is ahead waits."""


class Split:
    """A pipeline over two devices; the models of both have the same weights."""

    def __init__(self, vlm_models: Mapping[str, Model], vlm_device: Device,
                 adit_models: Mapping[str, Model], adit_device: Device) -> None:
        self._vlm_models, self._adit_models = vlm_models, adit_models
        self._vlm = vlm_device.stage('vlm')
        self._adit = adit_device.stage('adit')
        self._between: Queue[tuple[Entering, Answer] | None] = Queue(WAITING)
        self._thread = Thread(target=self._run, name='split', daemon=True)
        self._thread.start()

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Run a batch's VLM stage and hand it over; nothing stays in flight here."""
        assert batch is not None and in_flight is None, 'a tick leaves nothing behind'
        vlm = self._vlm.launch(partial(run_vlm, self._vlm_models, batch, None))
        vlm.wait()
        self._between.put((Entering(batch, vlm), answer))
        return None

    def close(self) -> None:
        """Finish what was handed over and free the stages."""
        self._between.put(None)
        self._thread.join()
        self._vlm.close()
        self._adit.close()

    def _run(self) -> None:
        while entry := self._between.get():
            entering, answer = entry
            if entered := hand_over(entering, answer):
                batch = entering.batch
                # The stage copies the context to its own device before anything else.
                adit = self._adit.launch(partial(run_adit, self._adit_models, batch, entered))
                Leaving(self._adit_models[batch.model], entering, adit).answer(answer)
