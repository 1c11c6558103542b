"""The documents stay short: their words and pages, their largest page, and how long their sentences are."""

import pytest
from website.prose import BENCHMARKS, KINDS, pages_of, prose_of, sentences_of

from .test_shown import PAGES

MOST_WORDS = 45_000
MOST_PAGES = 38
MOST_WORDS_OF_A_PAGE = 2_500
MOST_WORDS_OF_A_SENTENCE = 40
MEAN_WORDS_OF_A_SENTENCE = 20
MOST_WORDS_OF_BENCHMARKS = 15_000


@pytest.fixture(scope="module")
def documents():
    return prose_of(pages_of(*sum(KINDS.values(), ())))


def test_sentences_are_those_of_prose():
    page = (
        '# A title. It is none\n\nOne `a. B` [two words](x.md).\n**Two ends.** (Three ends.) 4 ends. "5" is, e.g. so\n'
        "- six words\n- seven\n  words\n\n| a | table. Of cells |\n\n```console\n$ a command. Of words\n```\n"
        "<!-- a comment. Of words -->\nLast\none.\n"
    )
    assert list(sentences_of(page)) == [
        "One Code two words.", "**Two ends.**", "(Three ends.)", "4 ends.", '"5" is, e.g. so', "six words",
        "seven words", "Last one.",
    ]  # fmt: skip


def test_every_page_has_a_kind():
    assert pages_of(*sum(KINDS.values(), ()), BENCHMARKS) == sorted(PAGES)


def test_all_pages_are_read_in_a_few_hours(documents):
    assert len(documents.words) <= MOST_PAGES
    assert sum(documents.words) <= MOST_WORDS
    assert sum(prose_of(pages_of(BENCHMARKS)).words) <= MOST_WORDS_OF_BENCHMARKS


def test_no_page_is_large(documents):
    assert max(documents.words) <= MOST_WORDS_OF_A_PAGE


def test_sentences_are_short(documents):
    assert documents.mean <= MEAN_WORDS_OF_A_SENTENCE
    assert documents.longest <= MOST_WORDS_OF_A_SENTENCE
