"""Who runs this program, by the name that the operating system knows.

It decides what stands for a user without a name. It refuses to believe the environment.
"""

import os
import pwd


def user_name() -> str:
    """Return the name of this process's user."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
