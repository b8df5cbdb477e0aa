"""Not yet."""


def run(bug: str | None) -> int:
    return 0


def listing() -> str:
    return ""
