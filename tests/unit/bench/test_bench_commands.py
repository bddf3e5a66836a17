"""The bench of commands measures commands that are carried out, not refusals."""

from tests.bench.bench_commands import prepared
from tests.bench.command_whole import AT_REST, WHOLE


def test_command_on_one_namespace_is_refused_only_where_nothing_is_to_take_back() -> None:
    setting = prepared(4, 64, 64)
    refused = set()
    for line in WHOLE:
        own = type(setting)(setting.bench, setting.balancer, setting.state, setting.number)
        _, outcomes = own.step(line.messages(own))
        assert outcomes, line.name
        if "refused" in outcomes:
            refused.add(line.name.partition(",")[0])
    assert refused == AT_REST
