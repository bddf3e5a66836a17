"""What may happen in a small cluster, and how often: the scenarios that are searched."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What may happen at all.

    fencing: "token" or "lease". commands: kinds with arguments, sent in this order at any time.
    instants: how many pass. lost, doubled, failures, crashes, freezes: how many at most; delays
    too, None = any order.
    """

    fencing: str
    commands: tuple[tuple[str, dict[str, object]], ...]
    instants: int
    lost: int = 0
    doubled: int = 0
    failures: int = 0
    crashes: int = 0
    freezes: int = 0
    delays: int | None = None

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budgets, in the order of the constants below; each is below 16."""
        faults = (self.lost, self.doubled, self.failures, self.crashes, self.freezes)
        return (*faults, self.delays or 0)


LOST, DOUBLED, FAILED, CRASHED, FROZEN, DELAYED = range(6)


LEFT = "t/n/0x00000000_0x80000000"
RIGHT = "t/n/0x80000000_0xffffffff"
MOVE = ("unload_bundle", {"bundle": LEFT, "destination": "b:1"})
BACK = ("unload_bundle", {"bundle": LEFT, "destination": "a:1"})
SPLIT = ("split_bundle", {"bundle": RIGHT, "unload": False})
MERGE = ("merge_bundle", {"bundle": "t/n/0x80000000_0xc0000000"})
MERGE_APART = ("merge_bundle", {"bundle": LEFT})
OVERRIDE = ("override_bundle", {"bundle": LEFT, "destination": "b:1"})
DELETE = ("delete_namespace", {"namespace": "t/n"})
CREATE = ("create_namespace", {"namespace": "t/n", "bundles": 1})
_FAULTS = {"lost": 1, "doubled": 1, "crashes": 1}
_ALLOWED = {
    "frozen": {"commands": (), "instants": 8, "freezes": 1},
    "alone": {"commands": (), "instants": 10, "crashes": 1, "freezes": 1},
    "answers": {"commands": (MOVE, BACK), "instants": 3, "lost": 1, "doubled": 1},
    "moves": {"commands": (MOVE, BACK), "instants": 8, "delays": 2, "failures": 1},
    "split": {"commands": (SPLIT,), "instants": 8, "delays": 2, "lost": 1},
    "merge": {"commands": (SPLIT, MERGE), "instants": 10, "delays": 2, "lost": 1},
    "merge-fails": {"commands": (SPLIT, MERGE), "instants": 10, "delays": 1, "failures": 1},
    "merge-crash": {"commands": (SPLIT, MERGE), "instants": 12, "delays": 1, "crashes": 1},
    "merge-apart": {"commands": (SPLIT, MERGE_APART), "instants": 12, "delays": 1, "crashes": 1},
    "merge-freeze": {"commands": (SPLIT, MERGE), "instants": 12, "delays": 1, "freezes": 1},
    "merge-override": {"commands": (SPLIT, MERGE, OVERRIDE), "instants": 10, "delays": 1},
    "override": {"commands": (MOVE, OVERRIDE), "instants": 8, "delays": 1, "crashes": 1},
    "namespace": {"commands": (DELETE, CREATE), "instants": 12, "delays": 2, "crashes": 1},
    "split-namespace": {"commands": (SPLIT, DELETE, CREATE), "instants": 12, "crashes": 1},
    "crash": {"commands": (MOVE,), "instants": 10, "delays": 1, "crashes": 1},
    "freeze": {"commands": (MOVE,), "instants": 10, "delays": 1, "freezes": 1},
    "everything": {"commands": (MOVE, SPLIT), "instants": 12, "delays": 1, **_FAULTS},
    "any-order": {"commands": (MOVE, SPLIT), "instants": 8, **_FAULTS},
}
_IN_ANY_ORDER = ("any-order", "answers")
SCENARIOS = {
    f"{name}-{fencing}": Scenario(
        fencing=fencing,
        **({"delays": None if name in _IN_ANY_ORDER else 0} | allowed),
    )
    for fencing in ("token", "lease")
    for name, allowed in _ALLOWED.items()
}
