"""What tests need that `make test` does not have, and the run in which it must be there.

A test marked `extras` names packages and programs, and is skipped where one of them is missing. `make test-extras`
brings them, and loads this module as a plug-in of pytest: a skip fails there, and so does a run in which no test
passed. Otherwise nobody would notice when a package can no longer be installed or imported.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

DEBIAN = ("fish", "zsh")  # come with apt-get, and only root may install them
ELSEWHERE = ("GPU", "this Triton", "another system")  # what a reason names that no environment can bring


def missing_extras(*names):
    """The reason for a skip if there is neither a package nor a program of one of these names; else empty."""
    missing = [name for name in names if find_spec(name) is None and shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)}: make test-extras" if missing else ""


def parameters(names, *packages):
    """The names as parameters of a test, which needs the package or program where it gets one of its names."""
    return [pytest.param(name, marks=pytest.mark.extras(name)) if name in packages else name for name in names]


def may_skip(reason, may_install):
    """Whether a test may be skipped for a reason, by a user who may or may not install Debian's packages."""
    shells = () if may_install else map(missing_extras, DEBIAN)
    return any(text and text in reason for text in (*ELSEWHERE, *shells))


def checked(report):
    """The report of a test or of a file; a skip is a failure, unless it may be."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2]
        if not may_skip(reason, os.geteuid() == 0 and shutil.which("apt-get") is not None):
            report.outcome, report.longrepr = "failed", f"it must run here: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Have a test that is skipped fail."""
    return checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Have a file that skips itself fail."""
    return checked((yield))


def pytest_sessionfinish(session, exitstatus):
    """Have a run in which no test passed fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter is not None and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
