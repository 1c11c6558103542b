"""The finished trials of a run: the fastest, the failures, and the times of other modes, whatever is measured again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triton_ops.space import Config
from triton_ops.tuner.trials import Trials
from triton_ops.values import Measurement, Status, Trial

DEFAULT = Config(n=0)
CONFIGS = st.integers(0, 4).map(lambda n: Config(n=n))
RUNNING = st.builds(
    lambda config, ms, mode: Trial(config, Status.OK, Measurement((ms,), mode)),
    CONFIGS, st.floats(0.1, 9.0), st.sampled_from(["graph", "event"]),
)  # fmt: skip
FAILED = st.builds(Trial, CONFIGS, st.sampled_from([Status.CRASH, Status.DEFERRED]), error=st.just("it failed"))


@given(st.lists(RUNNING | FAILED, max_size=12))
def test_what_is_told_of_all_trials_is_that_of_the_last_one_of_each_config(several):
    trials = Trials(DEFAULT)
    for trial in several:
        trials.add(trial)
    last = {trial.config: trial for trial in several}
    running = [trial for trial in last.values() if trial.ok]
    assert trials == last
    assert trials.failed == sum(trial.failed for trial in last.values())
    assert (trials.best is None, trials.best in running) == (not running, bool(running))
    assert trials.best is None or trials.best.rank == min(trial.rank for trial in running)
    default = last.get(DEFAULT)
    assert trials.default == (default if default is not None and default.ok else None)
    assert trials.pair == list(dict.fromkeys(each for each in (trials.best, trials.default) if each is not None))
    for mode in ("event", "graph", "event"):
        others = [trial.config for trial in running if trial.measurement.mode != mode]
        assert trials.of_other_modes(mode) == others
