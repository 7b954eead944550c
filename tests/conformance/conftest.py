"""Shows the counts of the conformance tests, whether they pass or not."""


def pytest_terminal_summary(terminalreporter):
    """Print the report of each part of the suite that ran."""
    reports = (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ()))
    texts = [text for report in reports for name, text in report.user_properties if name == "conformance"]
    if texts:
        terminalreporter.section("ONNX backend tests")
    for text in texts:
        terminalreporter.write_line(text)
