"""A world whose job rests, as the driver lets it: a trigger that nothing needs is passed over."""

import json

from lbcore.balancer.rest import HEARD, Heard
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules
from tests.support.worlds.world import CLUSTER, World


class RestingWorld(World):
    """A World. batches_ms: when there was a batch; passed_over: triggers without one."""

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.heard = Heard()
        self.rules = ParseRules(clusters=frozenset({CLUSTER}), limits=config.wire, loads=json.loads)
        self.rests_until_ms = 0
        self.batches_ms: list[int] = []
        self.passed_over = 0
        super().__init__(config, brokers, seed=seed)

    def step_job(self) -> None:
        """A micro-batch, unless the one before allowed the job to rest and nothing has come."""
        if self.now_ms <= self.rests_until_ms and not self._has_news():
            self.job.tick()
            self.passed_over += 1
            return
        super().step_job()
        self.batches_ms.append(self.now_ms)
        self.rests_until_ms = self.now_ms + int(str(self.reports[-1]["rest_ms"]))

    def _has_news(self) -> bool:
        unread = (
            (topic, raw)
            for (topic, partition), raws in sorted(self.log.items())
            if Topic(topic) in HEARD
            for raw in raws[self.read[topic, partition] :]
        )
        return self.heard.has_news(
            [parse(Topic(topic), raw.key, raw.value, self.rules) for topic, raw in unread]
        )
