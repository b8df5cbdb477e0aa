"""The command line of `controller-mock`: what may be said, and the help that explains it.

It decides flags, defaults and their ranges. It refuses to touch a file, a socket or the
store: it returns options, or PrpError ``usage_invalid``.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from controller_mock.console.data_directory import default_directory
from controller_mock.io.listener import DEFAULT_PATH, LOOPBACK
from controller_mock.io.runner_process import RECONNECT_GRACE_MS
from controller_mock.io.supervisor import RESTARTS_MAX
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LEASE_TTL_MS, LEASE_TTL_MS_CEILING

_STATUSES: Final = """\
exit status:
  0   done; `run`: the run succeeded
  1   `run`: the run failed
  2   interrupted; `run`: the run was cancelled, or its program could not be started
  3   `run`: the outcome is unknown, e.g. an interrupted program was not started again
  64  the command line is wrong
  65  a durable file is damaged, foreign or of another version; nothing was changed
  69  an address could not be bound, or a runner could not be started or kept alive
  70  a fault of this program; the store is whole
  73  the data directory is not usable, or another controller has it
  74  the disk refused a write
  76  runner and controller remember different histories
  77  a runner got no usable ticket
"""
_RUN_HELP: Final = """\
Runs CMD under a runner daemon of its own and shows what happens on standard error; CMD's own
output goes to standard output. A killed runner is started again with a fresh ticket. Ctrl-C
cancels the run; twice stops the runner, three times kills it.

A program that was interrupted by its runner's death is not started again unless
--resume-interrupted allows it: what it did outside is unknown.
"""


_SERVE_HELP: Final = """\
Serves until SIGINT or SIGTERM. One line of JSON on standard output says where, and how to start
a runner for each --run. SIGHUP issues fresh tickets. It queues no command of its own: a runner
delivers what it holds and waits, also behind the end of its run, until it gets a SIGTERM.
"""
_INSPECT_HELP: Final = """\
Shows all runs as a table, or of one run its events by type, connections, commands and how it
ended. It only reads.
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting with a status that means something else here."""

    def error(self, message: str) -> NoReturn:
        raise PrpError(ErrorCode.USAGE_INVALID, f"{message}; see {self.prog} --help")


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Return the parsed command line; `verb` says which command it is.

    Raises:
        PrpError: USAGE_INVALID.
        SystemExit: after --help was printed.
    """
    parser = _Parser(
        prog="controller-mock",
        description="The controller of agent runs: issues tickets, stores events, queues commands.",
        epilog=_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    common = _Parser(add_help=False)
    common.add_argument(
        "--data",
        type=Path,
        default=default_directory(environment),
        metavar="DIR",
        help="where runs are kept (default: %(default)s)",
    )
    common.add_argument(
        "--verbose",
        action="store_true",
        help="also log why connections were closed, and trace a fault of this program",
    )
    _describe_run(
        verbs.add_parser(
            "run",
            parents=[common],
            help="run a program under a runner and watch it",
            description=_RUN_HELP,
            epilog=_STATUSES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            usage="%(prog)s [options] -- CMD [ARG ...]",
        )
    )
    _describe_serve(
        verbs.add_parser(
            "serve",
            parents=[common],
            help="serve runners that are started elsewhere",
            description=_SERVE_HELP,
            epilog=_STATUSES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _describe_inspect(
        verbs.add_parser(
            "inspect",
            parents=[common],
            help="show what is stored, beside a controller that may be running",
            description=_INSPECT_HELP,
            epilog=_STATUSES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    return parser.parse_args(argv)


def _describe_run(run: _Parser) -> None:
    run.add_argument("--run-id", metavar="ID", help="the run's name (default: a fresh one)")
    run.add_argument("--cwd", type=Path, metavar="DIR", help="where CMD runs (default: here)")
    run.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="hand this environment variable on to CMD; repeat for more",
    )
    run.add_argument(
        "--resume-interrupted",
        type=_integer(0, 1_000_000),
        default=0,
        metavar="N",
        help="start CMD again up to N times after its runner died (default: 0); only for a"
        " program that may safely run twice",
    )
    run.add_argument(
        "--restarts",
        type=_integer(0, 1_000_000),
        default=RESTARTS_MAX,
        metavar="N",
        help="restart a dead runner at most N times in ten minutes (default: %(default)s)",
    )
    run.add_argument(
        "--runner", metavar="FILE", help="the runner's executable (default: this installation's)"
    )
    _add_times(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help=argparse.SUPPRESS)


def _describe_serve(serve: _Parser) -> None:
    serve.add_argument("--host", default=LOOPBACK, help="address to bind (default: %(default)s)")
    serve.add_argument(
        "--port", type=_integer(0, 65_535), default=0, help="port to bind (default: a free one)"
    )
    serve.add_argument("--path", default=DEFAULT_PATH, help="URL path (default: %(default)s)")
    serve.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM certificate chain")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM key of the certificate")
    serve.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="ID",
        help="a run to serve, created if it is new; repeat for more",
    )
    serve.add_argument(
        "--ticket-file",
        metavar="FILE",
        help="write the run's ticket there, mode 0600; {run} stands for the run's id",
    )
    _add_times(serve)


def _describe_inspect(inspect: _Parser) -> None:
    inspect.add_argument("run", nargs="?", metavar="RUN", help="one run (default: all)")
    inspect.add_argument("--json", action="store_true", help="as one JSON value")


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reconnect-grace-ms",
        type=_integer(1, 24 * 3600 * 1000),
        default=RECONNECT_GRACE_MS,
        metavar="MS",
        help="a runner without controller ends after this long (default: %(default)s)",
    )
    parser.add_argument(
        "--lease-ttl-ms",
        type=_integer(1_000, LEASE_TTL_MS_CEILING),
        default=LEASE_TTL_MS,
        metavar="MS",
        help="life of a connection lease without renewal (default: %(default)s)",
    )


def _integer(least: int, most: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")
        return int(text)

    return integer
