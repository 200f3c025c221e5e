"""Are items made before they are asked for, in order, and no more of them than wanted?"""

import threading
from collections.abc import Iterator

import pytest
from logo_ssl.data.ahead import Ahead


def test_items_come_in_order_and_end() -> None:
    items = Ahead(iter(range(50)), 3, "numbers")
    assert list(items) == list(range(50))
    assert list(items) == []  # and does not wait for more


def test_no_more_is_made_than_may_wait() -> None:
    made, full = [], threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 4:
                full.set()  # three wait, and this is the second that has no place
            yield number

    items = Ahead(numbers(), 3, "numbers")
    assert next(items) == 0
    assert full.wait(60)
    items.join()
    assert made == [0, 1, 2, 3, 4]


def test_what_the_maker_raises_is_raised_where_the_items_are_used() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    items = Ahead(broken(), 2, "broken")
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)
    assert list(items) == []


def test_a_thread_that_hangs_is_not_waited_for_without_limit() -> None:
    go_on = threading.Event()

    def stuck() -> Iterator[int]:
        go_on.wait(60)
        yield 1

    items = Ahead(stuck(), 2, "stuck")
    items.join(0.01)
    assert items.thread.is_alive()
    go_on.set()
    items.join()
    assert not items.thread.is_alive()


def test_whoever_waits_for_an_item_is_let_go_when_no_more_are_wanted() -> None:
    go_on, got = threading.Event(), []

    def stuck() -> Iterator[int]:
        go_on.wait(60)
        yield 1

    items = Ahead(stuck(), 2, "stuck")
    waiting = threading.Thread(target=lambda: got.append(list(items)), daemon=True)
    waiting.start()
    items.close()
    waiting.join(10)
    assert got == [[]]
    go_on.set()
