"""What a job tells of its settings, and what others make of it."""

from dataclasses import replace
from typing import Any

from lbcore.config.load import (
    REPORTED,
    as_started,
    canonical,
    digest,
    parse_assignments,
    parse_config,
    reported_digest,
    reported_rows,
)
from lbcore.config.tree import Config
from lbcore.validation.check import in_force

OVERLAY = {
    "shedding": {"avg_low_hits": 55, "avg_high_hits": 77},
    "kafka": {"sasl_username": "ballast", "key_file": "/secret/key.pem"},
    "lookup": {"token_keys_file": "/secret/keys", "grants": ["root operator *"]},
    "clusters": {"west": {"shedding": {"avg_low_hits": 44}}},
}


def started(cluster: str = "east") -> Config:
    config = parse_config(OVERLAY, origin="production.toml")
    return parse_assignments(config, ["shedding.avg_high_hits=66"]).for_cluster(cluster)


def told(config: Config, at_ms: int = 1, **values: Any) -> list[dict[str, Any]]:
    present, _ = in_force(config, {key.replace("__", "."): one for key, one in values.items()})
    rows = reported_rows(config, present, digest(present))
    return [{**row, "cluster": "east", "at_ms": at_ms, "batch_id": 1} for row in rows]


def by_setting(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str, str]]:
    return {row["setting"]: (row["value"], row["origin"], row["started"]) for row in rows}


def test_each_row_has_the_value_who_set_it_and_what_it_was_started_with() -> None:
    found = by_setting(told(started(), shedding__max_unload_fraction=0.3))
    assert found["shedding.avg_low_hits"] == ("55", "production.toml", "55")
    assert found["shedding.avg_high_hits"] == ("66", "--set", "66")
    assert found["shedding.max_unload_fraction"] == ("0.3", "command", "0.5")
    assert found["shedding.strategy"] == ('"ballast"', "default", '"ballast"')
    assert by_setting(told(started("west")))["shedding.avg_low_hits"][0] == "44"


def test_what_is_each_process_s_own_is_not_told() -> None:
    sections = {key.partition(".")[0] for key in REPORTED}
    assert not sections & {"kafka", "lookup", "agent", "topics", "telemetry"}
    assert "secret" not in str(told(started()))


def test_asker_gets_all_that_the_job_decides_by_and_keeps_the_rest() -> None:
    mine = parse_config({"kafka": {"key_file": "mine.pem"}, "shedding": {"avg_low_hits": 9}})
    found = as_started(mine, told(started(), shedding__max_unload_fraction=0.3))
    assert digest(found) == digest(started())
    assert found.kafka.key_file == "mine.pem"
    assert found.origins["shedding.avg_high_hits"] == "--set"
    assert as_started(mine, told(started()), {"shedding.avg_low_hits"}).shedding.avg_low_hits == 9


def test_newest_telling_counts_whole() -> None:
    rows = [*told(started(), at_ms=2), *told(Config(), at_ms=3), *told(started("west"), at_ms=1)]
    assert canonical(as_started(started(), rows))["shedding"] == canonical(Config())["shedding"]
    assert as_started(mine := started(), []) is mine


def test_value_of_another_version_leaves_the_asker_s() -> None:
    rows = told(started())
    odd = {"shedding.avg_low_hits": "-1", "shedding.strategy": "{", "limits.gone": "1"}
    rows = [{**row, "started": odd.pop(row["setting"], row["started"])} for row in rows]
    rows.append({**rows[0], "setting": "limits.gone"})
    found = as_started(replace(Config()), rows)
    assert (found.shedding.avg_low_hits, found.shedding.avg_high_hits) == (8, 66)
    assert found.shedding.strategy == "ballast"


def test_digest_is_of_what_is_told_and_not_of_when() -> None:
    assert reported_digest(told(started(), at_ms=1)) == reported_digest(
        told(started(), at_ms=2)[::-1]
    )
    assert reported_digest(told(started())) != reported_digest(told(replace(started(), origins={})))
    assert reported_digest([]) == ""
