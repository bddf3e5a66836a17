"""The agent around word_store.py, as `ballast run-agent` does (docs/agent.md)."""

import os
import signal
import sys

import word_store

from ballast import Agent, Identity, KafkaAddress, new_incarnation

cluster, broker, bootstrap = sys.argv[1:]
identity = Identity(
    cluster=cluster,
    broker=broker,
    incarnation=new_incarnation(),  # each start is another one, and begins with nothing open
    web_service_url=f"http://127.0.0.1:{os.environ['WORD_PORT']}",
)
agent = Agent(identity, KafkaAddress(bootstrap=bootstrap), word_store.make())
signal.signal(signal.SIGTERM, lambda *_: agent.ask_to_stop())
agent.start()
agent.wait()  # returns after SIGTERM, when the bundles are elsewhere or the time for it is over
agent.close()
sys.exit(f"not handed on in time: {agent.left}" if agent.left else 0)
