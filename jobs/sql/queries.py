"""The ready queries: one text each, which DataFusion and Spark answer alike.

Decides what operators are offered; each says how its answer is read. They read the views of
`jobs.sql.views` and the tables.
"""

from dataclasses import dataclass

from jobs.sql.views import day, instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A ready query. question: what it answers; reading: what is normal, and what to do if not.

    The rows come in an order that depends on nothing but the tables.
    """

    name: str
    question: str
    reading: str
    text: str


def _reach(*tables: str) -> str:
    """Rows of plans stay for ever and say nothing of how far back the others reach."""
    but = {"decisions": " WHERE kind <> 'plan'"}
    parts = (
        f"SELECT cluster, '{name}' AS about, COUNT(*) AS row_count, "
        f"{instant('MIN(at_ms)')} AS since, {instant('MAX(at_ms)')} AS until "
        f"FROM {name}{but.get(name, '')} GROUP BY cluster"
        for name in tables
    )
    return "\n" + "\nUNION ALL ".join(parts) + "\nORDER BY cluster, about"


QUERIES = (
    Query(
        name="most-moved",
        question="Which bundles moved most?",
        reading="A bundle that moves more than a few times a day is too large for where it goes "
        "(split it), or its load comes and goes (pin it, or raise the hits that are needed).",
        text="""
SELECT cluster, bundle, COUNT(*) AS moves, COUNT(DISTINCT to_broker) AS owners,
  SUM(CASE WHEN cause = 'shed' THEN 1 ELSE 0 END) AS shed,
  SUM(CASE WHEN cause = 'failover' THEN 1 ELSE 0 END) AS failovers, MAX(opened_at) AS last_at
FROM moves GROUP BY cluster, bundle
ORDER BY moves DESC, cluster, bundle LIMIT 50""",
    ),
    Query(
        name="thrash-by-day",
        question="How many moves took a bundle back to where it had just been?",
        reading="`thrash` is returns within an hour / moves; 0 is normal. Above 0.05 balancing "
        "works against itself: thresholds too close to the load's noise, or too few hits.",
        text="""
SELECT m.cluster, m.day, COUNT(*) AS moves, COUNT(r.version_id) AS returns,
  ROUND(CAST(COUNT(r.version_id) AS DOUBLE) / COUNT(*), 4) AS thrash
FROM moves m LEFT JOIN returns r
  ON r.cluster = m.cluster AND r.bundle = m.bundle AND r.version_id = m.version_id
GROUP BY m.cluster, m.day ORDER BY m.cluster, m.day""",
    ),
    Query(
        name="no-help",
        question="Which decisions did not help?",
        reading="Compare each side before and after: a bundle that takes its load along needs a "
        "split. `not_seen`: a broker did not report in time; `moved_elsewhere`: something else "
        "came in between.",
        text="""
SELECT e.cluster, e.decision_id, d.strategy, d.reason, e.bundle, e.source, e.destination,
  e.outcome, ROUND(100 * e.source_before, 1) AS source_before,
  ROUND(100 * e.source_after, 1) AS source_after,
  ROUND(100 * e.destination_before, 1) AS destination_before,
  ROUND(100 * e.destination_after, 1) AS destination_after
FROM decision_effects e
LEFT JOIN decisions d ON d.cluster = e.cluster AND d.decision_id = e.decision_id
WHERE e.outcome <> 'helped'
ORDER BY e.decided_ms DESC, e.cluster, e.decision_id LIMIT 200""",
    ),
    Query(
        name="near-limits",
        question="Which brokers are near their limits?",
        reading="The newest minute of each broker. Above 85 in one column a broker has no room "
        "for a failover; when all are, the cluster is too small and no move helps.",
        text="""
SELECT l.cluster, l.broker, b.state, ROUND(l.usage, 1) AS highest, ROUND(l.cpu, 1) AS cpu_percent,
  ROUND(l.memory, 1) AS memory_percent, ROUND(l.direct_memory, 1) AS direct_percent,
  ROUND(l.bandwidth_in, 1) AS in_percent, ROUND(l.bandwidth_out, 1) AS out_percent,
  l.bundles, l.minute
FROM newest_loads l
JOIN brokers b ON b.cluster = l.cluster AND b.broker = l.broker
WHERE b.state <> 'forgotten'
ORDER BY highest DESC, l.cluster, l.broker""",
    ),
    Query(
        name="crash-recovery",
        question="How long did it take until a dead broker's bundles were open elsewhere?",
        reading="`took_ms` counts from the decision; the timeout before it is "
        "`ownership.broker_timeout_ms`. Some seconds are normal; null: bundles are still closed, "
        "`ballast status` shows where.",
        text="""
SELECT cluster, declared_at, broker, reason, bundles, reopened, took_ms, decision_id
FROM crashes ORDER BY declared_ms DESC, cluster, decision_id""",
    ),
    Query(
        name="staleness",
        question="For how long could lookups learn nothing new?",
        reading="By the hour: the longest time between two batches that wrote a cycle, a load "
        "report or a transition; for so long every lookup was answered from the same tables. "
        "About the decision interval is normal; minutes: the job was away.",
        text="""
SELECT cluster, CAST(from_unixtime(CAST(at_ms / 1000 AS BIGINT)
    - CAST(at_ms / 1000 AS BIGINT) % 3600) AS TIMESTAMP) AS hour,
  COUNT(*) AS batches, MAX(at_ms - before_ms) AS longest_gap_ms
FROM (SELECT cluster, at_ms,
    LAG(at_ms) OVER (PARTITION BY cluster ORDER BY at_ms) AS before_ms
  FROM (SELECT cluster, at_ms FROM ownership_events UNION SELECT cluster, at_ms FROM decisions
    UNION SELECT cluster, at_ms FROM load_history) written) gaps
GROUP BY 1, 2 ORDER BY 1, 2""",
    ),
    Query(
        name="why-moved",
        question="What moved bundles, by day?",
        reading="`shed` is balancing; `failover` crashes; `admin` commands; `repair` transitions "
        "that were stuck: those should be few.",
        text="""
SELECT m.cluster, m.day, m.cause, COALESCE(d.strategy, '') AS strategy,
  COALESCE(d.reason, '') AS reason, COUNT(*) AS moves,
  ROUND(AVG(m.took_ms), 0) AS mean_took_ms, MAX(m.took_ms) AS longest_took_ms
FROM moves m
LEFT JOIN decisions d ON d.cluster = m.cluster AND d.decision_id = m.decision_id
GROUP BY m.cluster, m.day, m.cause, COALESCE(d.strategy, ''), COALESCE(d.reason, '')
ORDER BY m.cluster, m.day, moves DESC, m.cause, strategy, reason""",
    ),
    Query(
        name="skips",
        question="Why did cycles do nothing?",
        reading="`NoOverloadedBroker` is peace; `HitCount` waits for more reports; `NoBundles` "
        "for hours means that what is hot can't be moved: `ballast explain broker` says why.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, strategy, reason, COUNT(*) AS cycles,
  MIN(cycle) AS first_cycle, MAX(cycle) AS last_cycle
FROM decisions WHERE kind = 'skip'
GROUP BY cluster, {day("at_ms")}, strategy, reason
ORDER BY cluster, day, cycles DESC, strategy, reason""",
    ),
    Query(
        name="slow-transitions",
        question="How long do bundles stay between two owners?",
        reading="Time in each passing state, by day and by the broker that had to act; one broker "
        "with far longer ones is slow to open or close: read its log.",
        text="""
SELECT cluster, day, state, broker, COUNT(*) AS times, ROUND(AVG(lasted_ms), 0) AS mean_ms,
  MAX(lasted_ms) AS longest_ms
FROM stays WHERE state IN ('Assigning', 'Releasing', 'Splitting') AND lasted_ms IS NOT NULL
GROUP BY cluster, day, state, broker
ORDER BY longest_ms DESC, cluster, day, state, broker LIMIT 100""",
    ),
    Query(
        name="hot-bundles",
        question="Which bundles are the hottest, and how much of their broker are they?",
        reading="A `share` above 0.5 can't be balanced by moving: the hot spot would move along. "
        "It needs a split, `ballast bundle split`.",
        text="""
SELECT b.cluster, b.bundle, b.broker, ROUND(b.msg_rate, 1) AS msg_per_s,
  ROUND((b.msg_throughput_in + b.msg_throughput_out) / 1048576, 3) AS mib_per_s, b.topics,
  CASE WHEN l.msg_rate > 0 THEN ROUND(b.msg_rate / l.msg_rate, 4) END AS share
FROM bundle_loads b JOIN newest_loads l
  ON l.cluster = b.cluster AND l.broker = b.broker AND l.minute_ms = b.minute_ms
ORDER BY msg_per_s DESC, b.cluster, b.bundle, b.broker LIMIT 50""",
    ),
    Query(
        name="imbalance",
        question="How even was the load, by the minute?",
        reading="`imbalance` is max / mean of the brokers' message rates, 1 is even; "
        "`floor_adjusted` divides by the hottest bundle where that is more than the mean: what no "
        "move could better. Isolation policies make several broker groups, each with its row; one "
        "without a group is then that of draining brokers.",
        text="""
SELECT l.cluster, l.minute, l.broker_group, COUNT(*) AS brokers,
  ROUND(AVG(l.msg_rate), 1) AS mean_msg_rate,
  ROUND(MAX(l.msg_rate), 1) AS most_msg_rate,
  CASE WHEN AVG(l.msg_rate) > 0 THEN ROUND(MAX(l.msg_rate) / AVG(l.msg_rate), 3) END AS imbalance,
  CASE WHEN AVG(l.msg_rate) > 0 THEN ROUND(MAX(l.msg_rate)
    / GREATEST(AVG(l.msg_rate), COALESCE(MAX(h.hottest), 0)), 3) END AS floor_adjusted
FROM broker_loads l
LEFT JOIN (SELECT cluster, broker, minute_ms, MAX(msg_rate) AS hottest
    FROM bundle_loads GROUP BY cluster, broker, minute_ms) h
  ON h.cluster = l.cluster AND h.broker = l.broker AND h.minute_ms = l.minute_ms
GROUP BY l.cluster, l.minute, l.minute_ms, l.broker_group
ORDER BY l.cluster, l.minute_ms DESC, l.broker_group LIMIT 1440""",
    ),
    Query(
        name="why-not",
        question="What kept bundles and brokers from being chosen?",
        reading="`verdict` is the filter or limit that said no, `taken` those that were chosen; "
        "docs/tables.md explains the phases. One verdict far above the others is what to look at.",
        text="""
SELECT cluster, phase, verdict, SUM(count) AS times, COUNT(DISTINCT at_ms) AS cycles
FROM decision_candidates GROUP BY cluster, phase, verdict
ORDER BY cluster, phase, times DESC, verdict""",
    ),
    Query(
        name="who-has-what",
        question="How many bundles does each broker serve, and how many are under way?",
        reading="A broker '' is nobody: bundles that are free, or not open yet. Many of them for "
        "long: `ballast status` says why.",
        text="""
SELECT cluster, broker, state, COUNT(*) AS bundles, COUNT(DISTINCT namespace) AS namespaces,
  MIN(since) AS oldest
FROM owners GROUP BY cluster, broker, state ORDER BY cluster, broker, state""",
    ),
    Query(
        name="commands",
        question="Who asked for what, and what became of it?",
        reading="`refused`, `failed` and `timed_out` have a reason in the table `commands`.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, kind, principal, status, COUNT(*) AS commands
FROM commands GROUP BY cluster, {day("at_ms")}, kind, principal, status
ORDER BY cluster, day, kind, principal, status""",
    ),
    Query(
        name="rejected",
        question="Which messages could not be used, and why?",
        reading="None is normal. The table `rejected_reports` has each one. Of `not_kept` the"
        " detail says how many messages it stands for.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, topic, reason, COUNT(*) AS messages, MAX(detail) AS such_as
FROM rejected_reports GROUP BY cluster, {day("at_ms")}, topic, reason
ORDER BY cluster, day, messages DESC, topic, reason""",
    ),
    Query(
        name="reach",
        question="How far back does each table tell?",
        reading="Nothing is known of before `since`. Rows go after the time that docs/tables.md "
        "says. `brokers`, `namespaces`, `policies` and `pins` have the newest row of a key alone.",
        text=_reach(
            "ownership_events",
            "commands",
            "decisions",
            "decision_candidates",
            "decision_effects",
            "load_history",
            "rejected_reports",
            "audit",
        ),
    ),
)
