"""What a record says of a winner that was raced over several contents."""

import pytest

from tests.records import record
from triton_ops.space import Config

FAST, OTHER, DEFAULT = (Config(BLOCK=size) for size in (64, 128, 16))
SHORT = ("short", 0.5, ((FAST, 1.0), (OTHER, 2.0), (DEFAULT, 2.0)))
LONG = ("long", 0.5, ((FAST, 2.2), (OTHER, 2.0), (DEFAULT, 2.2)))
HELD_OUT = ("draw 3", 0.0, ((FAST, 1.5), (OTHER, 1.0), (DEFAULT, 1.0)))
REGRET = "regret beside the fastest raced config of each: "


@pytest.mark.parametrize(
    ("raced", "notes"),
    [
        ([], ()),
        ([("not measured", 0.5, ())], ()),
        ([SHORT, LONG], (f"{REGRET}over 2 contents 5.0% in the mean and 10.0% on long",)),
        ([HELD_OUT], (f"{REGRET}over 1 draws held out 50.0% in the mean and 50.0% on draw 3",)),
        (
            [SHORT, LONG, HELD_OUT],
            (
                f"{REGRET}over 2 contents 5.0% in the mean and 10.0% on long; "
                "over 1 draws held out 50.0% in the mean and 50.0% on draw 3",
            ),
        ),
    ],
)
def test_a_winner_over_several_contents_has_its_regret_on_the_worst_of_them(raced, notes):
    result = record(winner=FAST, default=DEFAULT, notes=("earlier",)).with_contents("a" * 32, raced)
    assert result.notes == ("earlier", *notes)
    assert [row.label for row in result.contents[1]] == [label for label, *_ in raced]


def test_a_record_answers_for_its_own_contents_alone():
    alone = record()
    assert alone.with_contents(None, [SHORT]) is alone
    several = alone.with_contents("a" * 32, [])
    assert [alone.raced_over(contents) for contents in (None, "a" * 32)] == [True, False]
    assert [several.raced_over(contents) for contents in (None, "a" * 32, "b" * 32)] == [True, True, False]


def test_a_config_that_does_not_win_for_one_content_on_which_it_is_slow_is_named():
    slow = ("slow", 0.1, ((FAST, 2.0), (OTHER, 1.0), (DEFAULT, 1.0)))
    quick = ("quick", 0.9, ((FAST, 1.0), (OTHER, 2.0), (DEFAULT, 2.0)))
    (_, note) = record(winner=OTHER, default=DEFAULT).with_contents("a" * 32, [quick, slow]).notes
    assert note.endswith(f"({FAST}), the fastest in the mean, is so by 100.0% on slow")
    (_,) = record(winner=FAST, default=DEFAULT).with_contents("a" * 32, [quick, slow]).notes
