"""What a test needs of other projects, and the run in which nothing of it may be missing."""

from types import SimpleNamespace

import pytest

from tests import extras
from tests.extras import DEBIAN, checked, may_skip, missing_extras, parameters, pytest_sessionfinish


def skipped(reason):
    where = {"nodeid": "test_it", "location": ("test_it.py", 1, "test_it"), "keywords": {}, "when": "setup"}
    return pytest.TestReport(outcome="skipped", longrepr=("test_it.py", 1, f"Skipped: {reason}"), **where)


def test_a_package_or_a_program_is_there_by_its_name():
    assert missing_extras("pytest", "sh") == ""
    assert missing_extras("no_such", "sh", "nor-this") == "there is no no_such and no nor-this: make test-extras"


@pytest.mark.parametrize(("reason", "outcome"), [
    (missing_extras("no_such"), "failed"), ("could not import 'ray'", "failed"), ("it is slow", "failed"),
    ("there is no GPU", "skipped"), ("this Triton has no listener", "skipped"), ("on another system", "skipped"),
])  # fmt: skip
def test_a_skip_fails_unless_another_machine_is_needed(reason, outcome):
    report = checked(skipped(reason))
    assert report.outcome == outcome
    assert outcome == "skipped" or report.longrepr == f"it must run here: Skipped: {reason}"


def test_an_expected_failure_is_no_skip():
    report = skipped("no matter")
    report.wasxfail = "known"
    assert checked(report).outcome == "skipped"


def test_shells_may_be_missing_where_the_user_cannot_install_them(monkeypatch):
    monkeypatch.setattr(extras.shutil, "which", lambda _: None)
    for shell in DEBIAN:
        assert may_skip(missing_extras(shell), may_install=False)
        assert not may_skip(missing_extras(shell), may_install=True)
    assert not may_skip(missing_extras("no_such"), may_install=False)


@pytest.mark.parametrize(("passed", "ended"), [(["one"], pytest.ExitCode.OK), ([], pytest.ExitCode.NO_TESTS_COLLECTED)])
def test_a_run_in_which_nothing_passed_fails(passed, ended):
    reporter = SimpleNamespace(stats={"passed": passed, "skipped": ["other"]})
    manager = SimpleNamespace(get_plugin={"terminalreporter": reporter}.get)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=manager), exitstatus=pytest.ExitCode.OK)
    pytest_sessionfinish(session, session.exitstatus)
    assert session.exitstatus == ended


def test_a_parameter_needs_the_package_of_its_name():
    one, other = parameters(["no_such", "pytest"], "no_such")
    assert (one.values, [mark.args for mark in one.marks], other) == (("no_such",), [("no_such",)], "pytest")
