"""How much work tests of random cases do: a little by default, more with ``--effort N``.

It decides a number. It refuses to know the tests.
"""

_factor = 1


def raise_effort(factor: int) -> None:
    """Have every test of random cases try so many times its usual number of them."""
    global _factor
    _factor = max(1, factor)


def cases(usual: int) -> int:
    """Return how many cases to try where ``usual`` is enough for every day."""
    return usual * _factor
