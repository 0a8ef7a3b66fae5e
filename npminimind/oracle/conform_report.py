"""What a conform run found, as a table, as JSON, as JUnit XML."""

from xml.etree import ElementTree

from .arrays import encode
from .findings import STATUS


def line_of(result):
    """One line of the summary."""
    run, wrong = len(result.outcomes), sum(problem is not None for _, problem in result.outcomes)
    golden = f"{run - wrong}/{run}" if run else "unsupported"
    searched = f"{result.searched} searched" if result.searched else ""
    skipped = f"{len(result.skipped)} unsupported" if run and result.skipped else ""
    notes = "  ".join(part for part in (searched, skipped) if part)
    return f"{result.operator:26s} {golden:>11s}  {STATUS[result.status]:8s} {notes}".rstrip()


def as_text(outcome):
    """The summary by suite, then each failure with its smallest input."""
    lines = [line_of(result) for result in outcome.results]
    for result in outcome.results:
        if result.failures:
            lines += ["", f"--- {result.operator}", *str(result).splitlines()[2:]]
    return "\n".join([*lines, "", closing_line(outcome)])


def closing_line(outcome):
    counts = {}
    for result in outcome.results:
        counts[STATUS[result.status]] = counts.get(STATUS[result.status], 0) + 1
    cases = sum(len(result.outcomes) for result in outcome.results)
    wrong = sum(problem is not None for result in outcome.results for _, problem in result.outcomes)
    skipped = sum(len(result.skipped) for result in outcome.results)
    text = f"{cases - wrong} of {cases} golden cases agree, {skipped} skipped as unsupported; suites: "
    text += ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
    if not cases and not outcome.ended:
        text += "\nnothing was checked: the program supports none of these operators"
    return text + (f"\nended early: {outcome.ended}" if outcome.ended else "")


def as_json(outcome):
    """Everything as plain values."""
    return {
        "command": outcome.command,
        "exit_code": outcome.exit_code,
        "ended": outcome.ended,
        "suites": [suite_as_json(result) for result in outcome.results],
    }


def suite_as_json(result):
    return {
        "suite": result.operator,
        "status": result.status,
        "cases": len(result.outcomes),
        "skipped": len(result.skipped),
        "searched": result.searched,
        "mistakes": [mistake.id for mistake in result.mistakes],
        "failures": [
            {
                "case": finding.case,
                "kind": finding.problem.kind,
                "message": finding.problem.message,
                **encode({"args": finding.args, "expected": finding.expected, "got": finding.got}),
            }
            for finding in result.failures
        ],
    }


def as_junit(outcome):
    """JUnit XML: a test suite for each suite, a test case for each golden case and one for the search."""
    root = ElementTree.Element("testsuites", name="npminimind conform")
    for result in outcome.results:
        suite = ElementTree.SubElement(root, "testsuite", name=result.operator)
        for case, problem in result.outcomes:
            add_case(suite, case.name, problem and problem.message, problem and problem.kind)
        for case in result.skipped:
            ElementTree.SubElement(add_case(suite, case.name), "skipped", message="unsupported")
        if result.searched:
            found = [finding for finding in result.failures if finding.searched]
            add_case(suite, f"{result.operator}.search", found and str(found[0]), found and found[0].problem.kind)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("./testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("./testcase/skipped"))))
    if outcome.ended:
        suite = ElementTree.SubElement(root, "testsuite", name="run", tests="1", failures="1")
        add_case(suite, "run.to_the_end", outcome.ended, "ended")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def add_case(suite, name, message=None, kind=None):
    case = ElementTree.SubElement(suite, "testcase", classname=suite.get("name"), name=name)
    if message:
        ElementTree.SubElement(case, "failure", type=kind, message=printable(message.splitlines()[0])).text = printable(
            message
        )
    return case


def printable(text):
    """Without the control characters that XML can't hold."""
    return "".join(c for c in text if c >= " " or c in "\n\t")
