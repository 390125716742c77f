import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import UsageError
from kvplan.units import ceil_div, format_tokens, parse_size, parse_token_list, parse_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("1", 1), ("131072", 131072), ("1k", 1000), ("1K", 1024), ("25.6k", 25600), ("1m", 10**6), ("1M", 1 << 20)],
)
def test_token_suffixes_follow_vllm(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("80GiB", 80 << 30), ("141GB", 141 * 10**9), ("1.5 MiB", 3 << 19), ("2kB", 2000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e9", "12q", "k", "nan", "inf", "९", "1" * 50, "1 000"])
def test_what_is_not_a_token_count_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_tokens(text)


def test_a_list_keeps_order_and_drops_repeats() -> None:
    assert parse_token_list("128K,1m,131072") == [131072, 10**6]


@given(st.integers(1, 10**9))
def test_a_formatted_count_reads_back(tokens: int) -> None:
    assert parse_tokens(format_tokens(tokens).replace(",", "")) == tokens


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_div_is_the_least_multiple_that_holds(value: int, by: int) -> None:
    result = ceil_div(value, by)
    assert result * by >= value > (result - 1) * by
