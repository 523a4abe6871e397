"""What is added to a vocabulary: worked out by hand, and held over random vocabularies."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models

from minibert.tokenization.additions import Additions, count_tokens, find_additions, spell
from minibert.tokenization.vocabulary import SPECIAL_TOKENS


def find(words: dict[str, int], known: str, *, most: int = 100, least: int = 3) -> Additions:
    return find_additions(Counter(words), [*SPECIAL_TOKENS, *known.split()], most=most, least=least)


def test_the_run_that_saves_most_comes_first_and_the_next_is_chosen_on_what_is_left() -> None:
    """abc saves 2 x 10 tokens; then cab 2 x 3, for "ab" has lost the ten words abc; then ab 4. Of cb.. there are 2."""
    words = {"abc": 10, "ab": 4, "cab": 3, "cba": 2}
    assert find(words, "a b c ##a ##b ##c").pieces == ["abc", "cab", "ab"]
    assert find(words, "a b c ##a ##b ##c", most=2).pieces == ["abc", "cab"]
    # 2 x 2 of cba is as much as 1 x 4 of ab: by text
    assert find(words, "a b c ##a ##b ##c", least=2).pieces == ["abc", "cab", "ab", "cba"]


def test_a_shared_ending_or_beginning_beats_the_words_that_have_it() -> None:
    """##ly saves 1 x 9; each word 2 x 3 before, 1 x 3 after it."""
    words = {"aly": 3, "bly": 3, "cly": 3}
    assert find(words, "a b c ##l ##y").pieces == ["##ly", "aly", "bly", "cly"]
    # un, by all nine; then ##i would join none: the words, by text
    assert find({"una": 3, "unb": 3, "unc": 3}, "u ##n ##a ##b ##c").pieces == ["un", "una", "unb", "unc"]


def test_a_word_is_split_anew_where_the_new_piece_ends_inside_an_old_one() -> None:
    """##ab saves 12 of vab .. zab. xabc, x ##a ##bc until then, is x ##ab ##c now: xab saves 8, as much as xabc."""
    words = {"vab": 3, "wab": 3, "yab": 3, "zab": 3, "xabc": 4, "xabd": 4}
    found = find(words, "v w x y z ##a ##b ##c ##bc ##d ##bd")
    assert found.pieces == ["##ab", "xab", "xabc", "xabd", "vab", "wab", "yab", "zab"]


def test_a_token_that_costs_other_words_more_than_it_saves_is_passed_over() -> None:
    """ab would save 5, and make a ##bcd, nine times, ab ##c ##d."""
    assert find({"ab": 5, "abcd": 9}, "a ##b ##c ##d ##bcd").pieces == ["abcd", "ab"]
    assert find({"ab": 10, "abcd": 9}, "a ##b ##c ##d ##bcd").pieces == ["abcd", "ab"]
    assert find({"ab": 5, "abcd": 2, "abcde": 2, "abcdf": 2}, "a ##b ##c ##d ##bcd ##bcde ##bcdf").pieces == []


def test_characters_that_make_words_unknown_come_first_by_count() -> None:
    """ï stands in six words, 中 in five, ï inside a word in four; ö in two. a is known."""
    found = find({"中": 5, "aï": 4, "ïa": 2, "ö": 2}, "a ##a")
    assert found == Additions(["ï", "中", "##ï"], ["aï"])
    assert find({"中": 5, "aï": 4, "ïa": 2, "ö": 2}, "a ##a", most=2) == Additions(["ï", "中"], [])


def test_a_character_that_makes_no_word_unknown_is_not_added() -> None:
    assert find({"ax": 9}, "a ##x ax").characters == []
    assert find({"ax": 9, "x": 5}, "ax").characters == ["x"]


def test_han_characters_are_joined_to_nothing() -> None:
    assert find({"中": 90, "国": 80, "龘": 3}, "中 国") == Additions(["龘"], [])


def test_a_token_that_would_make_another_word_unknown_is_passed_over() -> None:
    """ab saves most (1 x 600), but abx is spelled a ##bx, and there is no ##x to follow an ab."""
    words = {"abc": 200, "abd": 200, "abe": 200, "abx": 5}
    assert find(words, "a ##b ##c ##d ##e ##bx").pieces == ["abc", "abd", "abe", "abx"]
    assert find(words, "a ##b ##c ##d ##e ##bx ##x").pieces[0] == "ab"


def test_a_word_of_more_than_100_characters_teaches_nothing() -> None:
    assert find({"ab" * 51: 9}, "a b ##a ##b") == Additions([], [])
    assert find({"é" * 101: 9}, "a") == Additions([], [])


def test_a_long_word_becomes_one_token_in_two_rounds() -> None:
    """Ten pieces; eight at most become one at a time. Beginnings and endings of eight save the same: ## first."""
    found = find({"abcdefghij": 3}, "a " + " ".join(f"##{c}" for c in "bcdefghij"))
    assert found.pieces == ["##bcdefghi", "abcdefghij"]


def test_spelling_is_the_tokenizers() -> None:
    assert spell("ab", {"a", "##b"}) == ["a", "##b"]
    assert spell("##bb", {"##b", "b"}) == ["##b", "##b"]
    assert spell("##", {"#", "###"}) == ["#", "###"]
    assert spell("abc", {"a", "ab", "##bc"}) is None  # ab is taken, and WordPiece does not go back


pieces = st.text("abc", min_size=1, max_size=3)
vocabularies = st.lists(st.one_of(pieces, pieces.map("##".__add__)), min_size=1, max_size=14, unique=True)
counted = st.dictionaries(st.text("abcd", min_size=1, max_size=7), st.integers(1, 9), max_size=14).map(Counter)


@given(vocabularies, counted, st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_whatever_the_vocabulary_the_text_gets_shorter_and_no_word_is_lost(
    known: list[str], words: Counter[str], most: int, least: int
) -> None:
    tokens = [*SPECIAL_TOKENS, *known]
    found = find_additions(words, tokens, most=most, least=least)
    shuffled = list(words.items())
    random.Random(most).shuffle(shuffled)
    assert find_additions(Counter(dict(shuffled)), tokens, most=most, least=least) == found
    new = [*found.characters, *found.pieces]
    assert len(new) <= most
    assert len({*tokens, *new}) == len(tokens) + len(new)
    grown = {*tokens, *new}
    lost = [word for word in words if spell(word, set(tokens)) is not None and spell(word, grown) is None]
    assert lost == []
    model = models.WordPiece({token: i for i, token in enumerate([*tokens, *new])}, unk_token="[UNK]")
    for word in words:
        assert [piece.value for piece in model.tokenize(word)] == (spell(word, grown) or ["[UNK]"])
    with_characters = [*tokens, *found.characters]
    known_words = Counter({word: n for word, n in words.items() if spell(word, with_characters) is not None})
    if found.pieces:
        assert count_tokens(known_words, [*tokens, *new])[0] < count_tokens(known_words, with_characters)[0]
