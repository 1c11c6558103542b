"""What a launch option may be where a file gives it: one declaration for records, lockfiles and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.space import (
    CONFIG_FIELDS,
    LAUNCH_OPTIONS,
    Allowed,
    Config,
    ConfigSpace,
    UnlistedSpace,
    why_not_of_a_file,
)

WRONG = ("4", 4.0, True, -1, 1 << 40, None, (4,), "", float("nan"))


def wrong_for(name):
    """Values that no file may give the option: what is no number of its range, and is not allowed by itself."""
    return [value for value in WRONG if value not in LAUNCH_OPTIONS[name]]


@given(st.integers(-(2**70), 2**70), st.integers(0, 64), st.integers(0, 4096))
def test_a_range_has_its_whole_numbers_and_nothing_that_is_equal_to_one(value, low, span):
    allowed = Allowed(low, low + span)
    assert (value in allowed) == (low <= value <= low + span)
    assert float(low) not in allowed
    assert str(low) not in allowed
    assert True not in Allowed(0, 2)
    assert 1 not in Allowed(others=(True,))


@pytest.mark.parametrize("name", LAUNCH_OPTIONS)
def test_a_file_gives_an_option_a_value_of_its_range_alone(name):
    for value in wrong_for(name):
        assert f"{name} of a file is not used: it is {value!r}, and may be " in why_not_of_a_file({name: value})
    assert why_not_of_a_file({name: "anything"}, [name]) == ""  # a parameter of the kernel


@pytest.mark.parametrize("name", ["extern_libs", "arch", "debug", "ptx_version", "instrumentation_mode", "pre_hook"])
def test_a_file_gives_no_option_that_no_config_has(name):
    assert "may be None" in why_not_of_a_file({"BLOCK": 64, name: "/anything"})


def test_what_triton_writes_for_options_that_are_not_set_is_allowed():
    assert why_not_of_a_file({"BLOCK": 64, **CONFIG_FIELDS}) == ""


@pytest.mark.parametrize("limit", wrong_for("maxnreg"))
def test_a_space_that_nobody_has_listed_takes_no_limit_of_registers_that_is_none(limit):
    space = UnlistedSpace.around(ConfigSpace({"BLOCK": [64, 128]}), [{"BLOCK": 64}], (), limits_registers=True)
    assert Config(BLOCK=64, maxnreg=128) in space
    if limit == limit:  # a config holds no NaN
        assert "may be a whole number from 1 to 256" in space.why_not(Config(BLOCK=64, maxnreg=limit))
