"""Where the job reads on: after what the tables say, from what is left, or past one topic's end."""

from jobs.adapters.kafka.connection import KafkaPlace

PLACE = KafkaPlace(
    cluster_id="k",
    topics={"acks": "a", "commands": "c", "load": "anew"},
    bounds={"acks": {0: (2, 9)}, "commands": {0: (0, 7), 1: (3, 3)}, "load": {0: (0, 5)}},
)
LAST = {
    "offsets": {"acks": {"0": 4}, "commands": {"0": 2, "1": 3}, "load": {"0": 5}},
    "topics": {"acks": "a", "commands": "c", "load": "before"},
}


def test_reading_goes_on_after_the_last_commit_and_anew_where_the_topic_is_new() -> None:
    ends = {"acks": {"0": 4}, "commands": {"0": 2, "1": 3}, "load": {"0": 0}}
    assert PLACE.ends_after(LAST) == ends
    assert PLACE.ends_after(None)["acks"] == {"0": 2}


def test_a_topic_is_skipped_to_its_end() -> None:
    ends = {**PLACE.ends_after(LAST), "commands": {"0": 7, "1": 3}}
    assert PLACE.ends_beyond("commands", LAST) == ends
