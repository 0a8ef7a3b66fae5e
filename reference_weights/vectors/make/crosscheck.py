def all_suites(suites):
    return {s.name: [] for s in suites}
