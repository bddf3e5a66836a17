"""Why `ballast` misses a bar where it does: one sentence a scenario of those that are shipped.

Decides nothing; the league's page says them below the bars. A scenario that misses none has none,
and one that misses some has one: a test holds the page to it. Source: ours, from the recorded runs.
"""

from collections.abc import Mapping

_ROUNDS = (
    "It acts when two fresh reports agree (three, of small differences), so that a peak of one "
    "moves nothing: here after 70 s. `uniform` acts on the first."
)
_EVEN_ENOUGH = (
    "It stops where the last moves win less than they cost: a broker may be 5 % above the level "
    "or 20 % below. Going on to 1.00 is what others pay moves for."
)
_FILLED = (
    "The fewest moves lead to 1.2 and no further; it fills who has least up to the level, at the "
    "price of that many."
)
_NOT_ITS_OWN = "Every contestant does the same there: "

REASONS: Mapping[str, str] = {
    "g01-stale-average": f"{_EVEN_ENOUGH} (`multi-hit` makes fewer moves and stays at 1.16.)",
    "g02-one-above-three-idle": f"{_ROUNDS} {_EVEN_ENOUGH}",
    "g03-new-empty-broker": _FILLED,
    "g04-ten-at-eighty": f"It begins at 1.10, so that no move is the fewest. {_FILLED}",
    "g05-no-candidate": f"{_NOT_ITS_OWN}balancing is off, what is placed has no load to even out.",
    "g06-average-broker-spared": f"{_FILLED} {_ROUNDS}",
    "g08-hot-topics-equal-counts": _ROUNDS,
    "g09-unsplittable-bundle": "It takes the nine other bundles off the broker whose one bundle "
    "alone is too much; the bar counts what no move can undo, which is all that is left.",
    "g14-restart-between-hits": _EVEN_ENOUGH,
    "g15-load-changes-after-the-plan": "Loads differ by 30 % from report to report: 34 moves at "
    "once, and for the last three it waits until reports agree that they are needed.",
    "g16-destination-restarts": f"{_NOT_ITS_OWN}balancing is off, one bundle is moved by command.",
    "g17-last-broker-stops": f"{_NOT_ITS_OWN}the only broker that is left gets all, also what it "
    "had before.",
    "g19-second-plan-before-the-first-shows": f"{_EVEN_ENOUGH} (`multi-hit` makes fewer moves and "
    "stays at 1.16.)",
    "g20-a-third-vanishes": "It evens out, then three brokers crash, and one bundle comes back by "
    "that: 1.5 % of so few moves. The first round is after 70 s, 5.8 % of the run: the p95 is what "
    "the run began with.",
    "bitbrains-fast": "Loads change many times over from one minute to the next: a plan that sees "
    "the last report and moves for free is above the bar as long, with 61 moves. The fewest (4) "
    "know all that comes.",
    "planetlab-20110303": "The fewest (4) know all that comes; a plan by the last report makes 8 "
    "and is as long above the bar.",
    "planetlab-20110412": "Five-minute means that jump: a plan by the last report makes 74 moves "
    "and is above the bar for 47 minutes. Here what has just moved costs three times as much to "
    "move, and three reports must agree: it stays behind.",
    "scale-out": f"A round moves 15 % of all load at most (`churn_budget`), and half of all has to "
    f"move: it is there 20 s after `avg`, with 45 moves instead of 50. {_EVEN_ENOUGH}",
}
"""Scenario → why."""
