"""Tests of the queue before the core."""

from collections import deque

from runnerd.inbox import Inbox


def test_inbox_wakes_its_reader_once_for_all_that_arrives_together() -> None:
    wakes: list[int] = []
    inbox: Inbox[int] = Inbox(lambda: wakes.append(len(wakes)))

    inbox.post(1)
    inbox.post(2)

    assert wakes == [0]
    assert inbox.take() == deque((1, 2))
    assert inbox.is_empty


def test_inbox_wakes_its_reader_again_when_something_arrives_after_everything_was_taken() -> None:
    wakes: list[int] = []
    inbox: Inbox[int] = Inbox(lambda: wakes.append(len(wakes)))
    inbox.post(1)
    inbox.take()

    inbox.post(2)

    assert wakes == [0, 1]
    assert not inbox.is_empty
