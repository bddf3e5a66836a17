COLUMNS={
    "floor p50": ("floor_adjusted.p50", ""),
    "floor p95": ("floor_adjusted.p95", ""),
    "imb p50": ("imbalance.p50", ""),
    "imb p95": ("imbalance.p95", ""),
    "balanced": ("balanced", "1.2"),
    "moves": ("moves", ""),
    "least": ("",""),
    "thrash": ("thrash", ""),
    "splits": ("splits", ""),
    "topics": ("",""),
    "unserved": ("unserved", ""),
    "unmet": ("",""),
}
def cells_of(row): return []
def league_page(rows): return ""
