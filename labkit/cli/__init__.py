"""The `recovery-lab` command: a table of subcommands that load their code only when they are called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.cli.ending import carried_out

__all__ = ["COMMANDS", "Command", "build_parser", "main"]


LAST_PORT = 65_535


@dataclass(frozen=True)
class Command:
    """One subcommand: its name, its line of help, what it accepts and what it does (returns an exit code)."""

    name: str
    help: str
    accept: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `recovery-lab` with `argv` (default: the process's own arguments) and return its exit code."""
    _tolerate_narrow_consoles()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in {"-h", "--help", "--version"}):
        arguments.insert(0, "open")
    return carried_out(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    code: int = options.run(options)
    return code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every subcommand of `COMMANDS`."""
    parser = argparse.ArgumentParser(
        prog="recovery-lab",
        description="A teaching lab on agents that crash, and still neither lose nor double their work.",
        epilog="Without a command, 'open' is run.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.name, help=command.help, description=command.help)
        command.accept(subparser)
        subparser.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when asked: package metadata is slow to load."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(parser.prog, version("recovery-lab"))
        parser.exit()


def _tolerate_narrow_consoles() -> None:
    """Let a console that cannot show a letter get an escape for it: a name must never crash the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _port(text: str) -> int:
    """Read a port; a number beyond the last one makes some programs fail, and others promise what is not so."""
    if not text.isascii() or not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {LAST_PORT}, found {text!r}")
    return int(text)


def _accept_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", nargs="?", metavar="NOTEBOOK", help="a name or its beginning, such as 03")
    parser.add_argument("--port", type=_port, metavar="N", help="the port to try first (default: 8888)")
    parser.add_argument("--no-browser", action="store_true", help="print the address; open no browser")


def _run_open(options: argparse.Namespace) -> int:
    from labkit.cli.lab import open_lab

    return open_lab(options.notebook, port=options.port, browser=not options.no_browser)


def _accept_nothing(parser: argparse.ArgumentParser) -> None:
    pass


def _run_demo(options: argparse.Namespace) -> int:
    from labkit.cli.demo import run_demo

    return run_demo()


def _accept_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def _run_doctor(options: argparse.Namespace) -> int:
    from labkit.cli.doctor import run_doctor

    return run_doctor(as_json=options.json)


def _accept_matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")


def _run_matrix(options: argparse.Namespace) -> int:
    from labkit.cli.matrix import run_matrix

    return run_matrix(as_json=options.json)


_SERVE_FAULTS = "request_lost, response_lost, late, 403, 429, 503"  # by hand: what has the list loads uvicorn


def _accept_faults(parser: argparse.ArgumentParser, kinds: str) -> None:
    told = f"a share of the calls that goes wrong, such as late=0.2; may be repeated. Kinds: {kinds}"
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=RATE", help=told)


def _accept_drill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="FILE", help="defines recover(task_id, store, remotes); or a policy's name")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="how many workers to kill (default: 20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draws (default: 1)")
    parser.add_argument("--steps", type=int, default=3, choices=(1, 2, 3), help="of the task's three operations")
    _accept_faults(parser, f"refused, {_SERVE_FAULTS}")


def _run_drill(options: argparse.Namespace) -> int:
    from labkit.cli.drill import run_drill

    return run_drill(options.program, options.kills, options.seed, options.steps, options.fault)


def _accept_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="default: a free one that the system chooses"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the ledgers there (default: nowhere)")
    _accept_faults(parser, _SERVE_FAULTS)
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draws (default: 1)")
    parser.add_argument("--late-by", type=float, default=30.0, metavar="SECONDS", help="of late requests (default: 30)")


def _run_serve(options: argparse.Namespace) -> int:
    from labkit.cli.serve import run_serve

    return run_serve(options.port, options.folder, options.fault, options.seed, options.late_by)


def _accept_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="where to (default: beside your journal)")


def _run_report(options: argparse.Namespace) -> int:
    from labkit.cli.report import run_report

    return run_report(options.folder)


COMMANDS = (
    Command("open", "open the notebooks in JupyterLab", _accept_open, _run_open),
    Command("demo", "show one crash and its recovery in the terminal", _accept_nothing, _run_demo),
    Command("matrix", "show what becomes of a refund, by crash point, remote and policy", _accept_matrix, _run_matrix),
    Command("drill", "kill your own recovery code at random, with real processes", _accept_drill, _run_drill),
    Command("serve", "serve the remotes over HTTP, for any other program", _accept_serve, _run_serve),
    Command("report", "write a report on the course so far, as HTML and Markdown", _accept_report, _run_report),
    Command("doctor", "check this set-up and say what to mend", _accept_doctor, _run_doctor),
)
