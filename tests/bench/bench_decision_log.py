"""`python -m tests.bench.bench_decision_log`: rows and bytes that the decision log has in a day.

The rows of one cycle over 1,000 brokers × 100,000 bundles with skewed load are made as the balancer
makes them, once when it acts and once when it waits, and written as one Delta commit each; a day is
8,640 cycles (one in ten seconds). The worst day acts in every cycle, which the limits on moves and
the cool-downs do not allow for long.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from jobs.adapters.delta.tables import arrow_schema, ensure_table, table_path
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.decisions.candidate_rows import skip_inputs, write_candidates
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.config.tree import Config
from lbcore.model.tables import DECISION_CANDIDATES, DECISION_EFFECTS, DECISIONS, Table
from lbcore.plan.decision import Plan, PlanState, Scope
from lbcore.plan.planner import plan
from tests.bench.bench_planner import BROKERS, BUNDLES, CYCLE_MS, cluster, sections

CYCLES_A_DAY = 8_640
TRACED = Scope(splits=False, is_traced=True)


def rows_of_cycles() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Case → table → rows, of a cycle that waits and of one that acts."""
    view, config, state = cluster(BROKERS, BUNDLES), sections("avg"), PlanState()
    found = {}
    for cycle, case in ((1, "waits"), (2, "acts")):
        reported = replace(
            view.brokers, updated_at_ms=view.brokers.updated_at_ms + (cycle - 1) * CYCLE_MS
        )
        seen = replace(view, brokers=reported)
        answer, state = plan(seen, state, config, cycle * CYCLE_MS, TRACED)
        work = _work(cycle * CYCLE_MS)
        if isinstance(answer, Plan):
            ids = {one.bundle: work.next_decision() for one in answer.decisions}
            for one in answer.decisions:
                names = {"bundle": one.bundle, "source": one.source, "strategy": one.strategy}
                work.write_decision(
                    ids[one.bundle],
                    one.kind.value,
                    one.reason,
                    one.inputs,
                    destination=one.destination,
                    **names,
                )
                work.add_row(DECISION_EFFECTS.name, _effect(ids[one.bundle], one))
            write_candidates(work, answer.trace, ids)
        else:
            inputs = skip_inputs(answer.trace)
            work.write_decision(work.next_decision(), "skip", answer.reason, inputs)
            write_candidates(work, answer.trace, {})
        found[case] = dict(work.rows)
    return found


def _work(now_ms: int) -> BatchContext:
    config = Config()
    balancer = ClusterBalancer(cluster="local", config=config)
    return BatchContext.on(balancer.empty(), config, "0123456789abcdef", now_ms)


def _effect(decision_id: str, decision: Any) -> dict[str, Any]:
    usage = dict.fromkeys(
        ("source_before", "source_after", "destination_before", "destination_after"), 0.123456789
    )
    return {
        "decision_id": decision_id,
        "bundle": decision.bundle,
        "source": decision.source,
        "destination": decision.destination,
        "outcome": "helped",
        "decided_ms": 1,
        "moved_ms": 2,
        **usage,
    }


def bytes_of(table: Table, rows: list[dict[str, Any]]) -> int:
    """What one commit with these rows takes on disk, its entry in the log included."""
    with tempfile.TemporaryDirectory() as folder:
        ensure_table(folder, table)
        full = [{**row, "batch_id": 1} for row in rows]
        columns = {c.name: [row[c.name] for row in full] for c in table.columns}
        before = _size(table_path(folder, table.name))
        data = pa.table(columns, schema=arrow_schema(table))
        write_deltalake(str(table_path(folder, table.name)), data, mode="append")
        return _size(table_path(folder, table.name)) - before


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Write a line a case and table, and the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = []
    for case, tables in rows_of_cycles().items():
        for table in (DECISIONS, DECISION_CANDIDATES, DECISION_EFFECTS):
            rows = tables.get(table.name, [])
            size = bytes_of(table, rows) if rows else 0
            found.append({"case": case, "table": table.name, "rows": len(rows), "bytes": size})
            day = f"{CYCLES_A_DAY * len(rows):,} rows, {CYCLES_A_DAY * size / 1e6:,.0f} MB"
            sys.stdout.write(f"{case}: {table.name}: {len(rows):,} rows a cycle; a day: {day}\n")
    if args.output:
        args.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
