"""The stops of the tour: a hot spot, a crash, a split, a stuck transition, and what was said.

Decides what is caused and what must then be true. Source: ours.
"""

from typing import Any

from jobs.adapters.kafka.command_client import new_command
from jobs.console import say
from jobs.local.commands import send_commands
from jobs.local.fleet_watch import fleet_client
from jobs.local.layout import CLUSTER, Size
from jobs.operating.stack_words import Whereabouts
from jobs.tour.guide import Guide
from lbcore.wire.kinds.bundle_commands import UnloadBundle

HOT, HANGING = "broker-1", "broker-5"


def start(guide: Guide, size: Size) -> None:
    """Wait until every bundle is served."""
    guide.title("the stack starts: Kafka, the streaming job, the lookup service, brokers")
    guide.wait("the tables", (guide.layout.tables / "bundle_ownership").exists)

    def served() -> bool:
        status = guide.asked_json("status")
        owned = int(status["bundles"].get("Owned", 0))
        return owned == size.bundles and all(one["msg_rate"] for one in status["broker_rows"])

    guide.wait(f"{size.bundles} bundles to be owned and their load to be known", served)
    guide.hold_soon("every bundle has an owner", f"bundles {size.bundles} Owned", "status")
    guide.hold("doctor finds the tables sound", guide.ask("doctor", codes=(0, 1)), r"ok +tables")


def hot_spot(guide: Guide, namespace: str) -> None:
    """Put a whole namespace on one broker, and wait until balancing takes some of it away."""
    guide.title(f"a hot spot: all of {namespace} goes to {HOT}")
    guide.ask("namespace", "unload", namespace, "--destination", HOT, "--timeout", "4m")
    guide.hold_alert("an alert waits: it fires when that lasts", "BallastImbalance", "pending")
    guide.hold_soon(f"top has {HOT} first", f"▶ {HOT} ", "top", "--once")
    gauge = f"SELECT 1 FROM decision_candidates WHERE phase = 'shed' AND subject = '{HOT}'"  # noqa: S608 (a name of the tour's own)
    guide.wait(f"{HOT} to be near a threshold", lambda: guide.rows(f"{gauge} LIMIT 1"))
    told = guide.ask("explain", "broker", HOT)
    guide.hold("explain says how far from its threshold it is", told, "threshold|at or above")
    _relieved(guide)


def _relieved(guide: Guide) -> None:
    """Wait until a move away from the hot spot has been carried out and judged; ask about it."""
    shed = (
        "SELECT m.bundle, m.decision_id FROM moves m JOIN decision_effects e"  # noqa: S608 (a name of the tour's own)
        f" ON e.decision_id = m.decision_id WHERE m.cause = 'shed' AND m.from_broker = '{HOT}'"
    )
    found: list[dict[str, Any]] = guide.wait(
        f"balancing to relieve {HOT}, and to see what it brought", lambda: guide.rows(shed)
    )
    told = guide.ask("explain", "decision", found[0]["decision_id"])
    guide.hold(f"a decision moved {found[0]['bundle']} away from {HOT}", told, f"from {HOT}")
    told = guide.ask("explain", "bundle", found[0]["bundle"])
    guide.hold("its history names balancing or a later cause", told, "why:")
    guide.ask("status")
    guide.hold("SQL counts the same moves", guide.ask("sql", "why-moved"), r"shed")
    guide.ask("sql", "no-help", shown=6)
    told = guide.metrics("ballast_moves_total", "ballast_imbalance", "ballast_broker_hits")
    guide.hold("and the metrics do, too", told, r"ballast_moves_total\{.*shed")
    guide.alerts()


def crash(guide: Guide) -> None:
    """Crash the broker with the most bundles, and wait until they are open elsewhere."""
    most = (
        "SELECT broker FROM owners WHERE state = 'Owned'"  # noqa: S608 (a name of the tour's own)
        f" AND broker <> '{HANGING}' GROUP BY broker ORDER BY COUNT(*) DESC, broker LIMIT 1"
    )
    dead = guide.rows(most)[0]["broker"]
    guide.title(f"a crash: {dead} is gone without a word")
    owned = f"SELECT bundle FROM owners WHERE broker = '{dead}' ORDER BY bundle"  # noqa: S608 (a name of the tables)
    bundles = [row["bundle"] for row in guide.rows(owned)]
    guide.ask("kill-broker", dead)
    recovered = (
        f"SELECT 1 FROM crashes WHERE broker = '{dead}' AND bundles > 0 AND reopened = bundles"  # noqa: S608 (a name of the tables)
    )
    guide.wait(
        f"the {len(bundles)} bundles of {dead} to be open elsewhere",
        lambda: guide.rows(recovered) and not guide.rows(owned),
    )
    guide.hold_soon(f"status names {dead}", f"{dead} found dead at", "status")
    guide.hold_soon("and so does top", rf"{dead} +silent", "top", "--once")
    guide.hold_alert(f"an alert fires for {dead}", "BallastBrokerDown", "firing", about=dead)
    told = guide.ask("explain", "bundle", bundles[0])
    guide.hold("the bundle says who died", told, rf"taken for dead[\s\S]*from {dead}")
    told = guide.ask("sql", "crash-recovery")
    guide.hold("SQL says how long its bundles were closed", told, rf"{dead} +owner_dead")
    told = guide.metrics("ballast_broker_up", "ballast_brokers", "ballast_transitions_total")
    guide.hold("metrics count the failover", told, "failover")
    guide.ask("kill-broker", dead, "--start")
    guide.hold_alert("the alert ends when it is back", "BallastBrokerDown", "", about=dead)


def split(guide: Guide) -> None:
    """Split the bundle with the most messages."""
    hottest = guide.asked_json("bundles", "--limit", "1")[0]["bundle"]
    guide.title(f"a split: {hottest} carries the most")
    guide.ask("bundles", "--limit", "5")
    before = sum(guide.asked_json("status")["bundles"].values())
    told = guide.ask("bundle", "split", hottest, "--force", "--timeout", "4m")
    guide.hold("the split is done", told, "done|children")
    tenant, _, rest = hottest.rpartition("/")
    ends = rest.split("_")
    children = (
        f"SELECT bundle FROM owners WHERE namespace = '{tenant}' AND (bundle LIKE '%/{ends[0]}_0x%'"  # noqa: S608 (names of the tables)
        f" OR bundle LIKE '%_{ends[1]}') AND bundle <> '{hottest}' ORDER BY bundle"
    )
    child = guide.wait("its children", lambda: guide.rows(children))[0]["bundle"]
    told = guide.ask("explain", "bundle", child)
    guide.hold("a child says where it comes from", told, "its parent was split")
    cut = (
        f"SELECT state, broker, cause, lasted_ms, next_state FROM stays WHERE bundle = '{hottest}'"  # noqa: S608 (a name of the tables)
    )
    guide.hold(
        "SQL has its last states", guide.ask("sql", f"{cut} ORDER BY version_id"), "Splitting"
    )
    guide.hold_soon("status counts one bundle more", f"bundles {before + 1} Owned", "status")
    words = ("top", "--once")
    guide.hold_soon("top has it among the last decisions", f"split +{hottest}", *words)
    told = guide.metrics("pulsar_lb_bundles_split_total", "ballast_commands_total")
    guide.hold("metrics count it", told, r"bundles_split_total\{.* 1.0")
    guide.alerts()


def stuck(guide: Guide, where: Whereabouts) -> None:
    """Let a broker's callbacks hang, give it a bundle, and wait until that is repaired."""
    guide.title(f"a stuck transition: {HANGING} lives, but is never done with opening a bundle")
    free = (
        "SELECT bundle FROM owners WHERE state = 'Owned'"  # noqa: S608 (a name of the tour's own)
        f" AND broker <> '{HANGING}' ORDER BY bundle LIMIT 1"
    )
    bundle = guide.rows(free)[0]["bundle"]
    fleet_client(guide.layout).act("hang", HANGING)
    command = new_command(CLUSTER, UnloadBundle(bundle=bundle, destination=HANGING))
    send_commands(where.address(), [command])
    say(f"(callbacks of {HANGING} hang from now on; sent: unload {bundle} to {HANGING})", "")
    moving = f"SELECT 1 FROM stays WHERE bundle = '{bundle}' AND state = 'Assigning'"  # noqa: S608 (a name of the tables)
    guide.wait(f"{HANGING} to be asked", lambda: guide.rows(f"{moving} AND broker = '{HANGING}'"))
    guide.ask("explain", "bundle", bundle)
    guide.ask("top", "--once")
    repaired = (
        f"SELECT 1 FROM owners WHERE bundle = '{bundle}' AND state = 'Owned'"  # noqa: S608 (a name of the tables)
        f" AND broker <> '{HANGING}'"
    )
    guide.wait("another broker to have opened it", lambda: guide.rows(repaired))
    told = guide.ask("explain", "bundle", bundle)
    guide.hold("the bundle says what ended it", told, "stuck and was repaired")
    guide.hold_soon(f"{HANGING} lives: status says so", rf"{HANGING} +active", "status")
    told = guide.ask("sql", "slow-transitions", shown=8)
    guide.hold(f"SQL shows who was waited for: {HANGING}", told, f"Assigning +{HANGING}")
    told = guide.metrics("ballast_overrides_total", "ballast_decisions_total")
    guide.hold("metrics count the repair", told, 'kind="repair"')
    why = "never_opened"
    guide.hold_alert(f"an alert fires: {why}", "BallastRepairs", "firing", about=why)
    fleet_client(guide.layout).act("resume", HANGING)


def end(guide: Guide) -> None:
    """What is left of it all."""
    guide.title("what is left of it all")
    guide.ask("explain", "cluster")
    guide.ask("sql", "who-has-what")
    guide.ask("sql", "thrash-by-day")
