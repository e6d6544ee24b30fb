"""What the README and the changelog say exists does exist."""

import re
import shlex
from pathlib import Path

import httpx
import pytest
from served import Served

from labkit.cli import COMMANDS, build_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "CHANGELOG.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def quoted(text: str) -> list[str]:
    """Return every line of the code blocks and every piece of inline code, without comments."""
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    code = [*lines, *INLINE.findall(FENCED.sub("", text))]
    return [piece.split(" #")[0].strip() for piece in code]


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z.-]+):(?!=)", makefile, re.MULTILINE)) - {".PHONY", ".NOTPARALLEL"}


def unknown_targets(text: str, makefile: str) -> list[str]:
    """Return the targets that `make` commands in `text` name and the Makefile does not have."""
    commands = [shlex.split(piece)[1:] for piece in quoted(text) if piece.startswith("make ")]
    return [word for words in commands for word in words if "=" not in word and word not in make_targets(makefile)]


def lab_commands(text: str) -> list[list[str]]:
    """Return the arguments of every `recovery-lab` command in `text`."""
    found = (re.fullmatch(r"(?:\.venv[/\\]\w+[/\\])?recovery-lab( .*)?", piece) for piece in quoted(text))
    return [(match[1] or "").split() for match in found if match]


def refused_commands(text: str) -> list[list[str]]:
    """Return the `recovery-lab` commands in `text` that its parser refuses."""
    refused = []
    for arguments in lab_commands(text):
        try:
            build_parser().parse_args(arguments or ["open"])
        except SystemExit:
            refused.append(arguments)
    return refused


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(text: str, folder: Path) -> list[str]:
    """Return the relative links in `text` that lead to no file, or to no heading of this page."""
    links = [link for link in LINK.findall(FENCED.sub("", text)) if not re.match(r"[a-z]+:", link)]
    inside = {link for link in links if link.startswith("#") and link[1:] not in anchors(text)}
    files = {link for link in links if not link.startswith("#") and not (folder / link.split("#")[0]).exists()}
    return sorted(inside | files)


def missing_paths(text: str, folder: Path) -> list[str]:
    """Return the paths that the layout block names and `folder` does not have."""
    layout = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    paths = [line.split()[0] for block in layout for line in block.splitlines()]
    return [path for path in paths if not (folder / path).exists()]


def test_every_make_command_in_the_readme_has_its_target():
    assert unknown_targets(README, MAKEFILE) == []
    assert {"make lab", "make test"} <= set(quoted(README))


def test_every_recovery_lab_command_in_the_readme_is_accepted():
    assert refused_commands(README) == []


def test_every_recovery_lab_command_is_in_the_readme():
    documented = {arguments[0] for arguments in lab_commands(README) if arguments}
    assert {command.name for command in COMMANDS} <= documented


def test_the_readme_shows_only_what_is_there():
    assert missing_paths(README, ROOT) == []


def test_make_help_describes_only_targets_that_exist():
    described = set(re.findall(r"^([a-z.-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert described >= {"help", "lab", "test", ".venv", "lint", "types", "lock", "refresh", "clean", "browser"}


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page: str):
    assert broken_links((ROOT / page).read_text(encoding="utf-8"), ROOT) == []


CURL = re.compile(r"^curl (?P<arguments>.+?) +# (?P<status>\d{3})", re.MULTILINE)


def curl(client: httpx.Client, arguments: str) -> int:
    """Do what `curl` would do with these arguments, as far as the README uses it, and return the status."""
    words, headers, body, path = iter(shlex.split(arguments)), {}, None, ""
    for word in words:
        if word == "-H":
            name, _, headers[name] = next(words).partition(": ")
        elif word == "-d":
            body = next(words).encode()
        elif word != "-i":
            path = re.sub(r"^http://127.0.0.1:\d+", "", word)
    return client.request("GET" if body is None else "POST", path, content=body, headers=headers).status_code


def test_every_curl_example_in_the_readme_is_answered_as_it_says(tmp_path: Path):
    examples = CURL.findall(README)
    assert len(examples) == README.count("\ncurl ") >= 7
    with Served("--folder", str(tmp_path)) as served, httpx.Client(base_url=served.address, timeout=30) as client:
        answered = [curl(client, arguments) for arguments, _ in examples]
    assert answered == [int(status) for _, status in examples]


def test_what_is_not_there_is_noticed(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert unknown_targets("Try `make tea PYTHON=x` or\n```sh\nmake .venv coffee # hot\n```\n", ".venv:\n") == [
        "coffee",
        "tea",
    ]
    assert refused_commands("`recovery-lab opne`, `.venv/bin/recovery-lab open --prot 1`, `recovery-lab`") == [
        ["opne"],
        ["open", "--prot", "1"],
    ]
    page = "# One thing\n[a](#one-thing) [b](#two) [c](no.md) [d](https" + "://x) [e](.)"
    assert broken_links(page, tmp_path) == ["#two", "no.md"]
    assert missing_paths("```text\nno/such/  x\n.  y\n```\n", tmp_path) == ["no/such/"]
