"""The store's SQL with one guard less, or one comparison moved: each such mutant must make some test fail.

The mutants come from the sources themselves: every string of SQL in `labkit/*.py`, and both schemas. Dropped, one at
a time: each operand of an AND or OR, a WHERE of one condition, NOT, ON CONFLICT, ORDER BY, DESC, LIMIT, and of the
schemas CHECK, UNIQUE, NOT NULL, REFERENCES, STRICT and triggers. Of <, <=, > and >= the other one of the pair is put.
Primary keys stay: without one SQLite refuses most of these tables.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "labkit"
SCHEMAS = ("schema.sql", "ledger.sql")

_TOKEN = re.compile(
    r"""(?P<gap>--[^\n]*|\s+|\\n|f?"+)|(?P<text>'(?:[^']|'')*'|\{[^{}]*\}|:?\w+(?:\.\w+)*|<=|>=|<>|\|\||.)"""
)
_IS_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|AND|OR|NOT|CASE|EXISTS)\b|(^|[^\w:]):[a-z]\w*")
_CLAUSES = frozenset({"GROUP", "ORDER", "LIMIT", "RETURNING", "ON", ";"})
_STOPS = frozenset({*_CLAUSES, "AND", "OR", "WHERE", "THEN", "ELSE", "WHEN", "END", "SELECT", "FROM", "SET", ","})
Edit = tuple[str, int, int, str]  # what it does, from where to where, and what is put there
_OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True)
class Mutant:
    """One edit of one file: `source[start:end]` becomes `instead`. `place` is the name around it, for it keeps."""

    file: str
    line: int
    place: str
    what: str
    start: int
    end: int
    instead: str

    @property
    def key(self) -> str:
        return f"{self.file} {self.place}: {self.what}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.place}: {self.what}"


class _Sql:
    """The tokens of one text of SQL, with the edits that take a guard away."""

    def __init__(self, source: str, start: int, end: int) -> None:
        found = list(_TOKEN.finditer(source, start, end))
        self.gaps = [one for one in found if one["gap"] and '"' in one["gap"]]  # where Python joins two strings
        self.all = [one for one in found if one["text"]]
        self.words = [one["text"] for one in self.all]
        self.depths, depth = [], 0
        for word in self.words:
            depth -= word == ")"
            self.depths.append(depth)
            depth += word == "("

    def _ends(self, at: int, stops: frozenset[str]) -> bool:
        word = self.words[at]
        beside = word.startswith("{") and at > 0 and self.words[at - 1].startswith("'")  # more conditions are put there
        return word in stops or beside

    def after(self, at: int, stops: frozenset[str]) -> int:
        """The first token that is no longer part of what begins behind token `at`."""
        for end in range(at + 1, len(self.words)):
            if self.depths[end] < self.depths[at] or (self.depths[end] == self.depths[at] and self._ends(end, stops)):
                return end
        return len(self.words)

    def before(self, at: int, stops: frozenset[str]) -> int:
        """The first token of what ends before token `at`."""
        for begin in range(at - 1, -1, -1):
            if self.depths[begin] < self.depths[at]:
                return begin + 1
            if self.depths[begin] == self.depths[at] and self._ends(begin, stops):
                return begin + 1
        return 0

    def closing(self, at: int) -> int:
        """The token behind the bracket that closes the next one to open."""
        opening = self.words.index("(", at)
        return next(end for end in range(opening + 1, len(self.words)) if self.depths[end] == self.depths[opening]) + 1

    def cut(self, first: int, last: int) -> Edit:
        """Leave out the tokens from `first` up to `last`, but not the quotes of Python between them."""
        start, end = self.all[first].start(), self.all[last - 1].end()
        kept = "".join(one["gap"] for one in self.gaps if start < one.start() < end)
        return f"without {' '.join(self.words[first:last])}", start, end, f" {kept}"

    def conditions(self) -> Iterator[Edit]:
        """Every edit of a condition or of a clause."""
        for at, word in enumerate(self.words):
            following = self.words[at + 1] if at + 1 < len(self.words) else ""
            if word in ("AND", "OR"):
                stops = _STOPS if word == "AND" else _STOPS - {"AND"}
                yield self.cut(at, self.after(at, stops))
                begin = self.before(at, stops)
                if begin < at and self.words[begin - 1] != word:
                    yield self.cut(begin, at + 1)
            elif word == "WHERE" and (end := self.after(at, _STOPS)) == self.after(at, _CLAUSES):
                yield self.cut(at, end)
            elif word == "NOT" and (following != "NULL" or self.words[at - 1] == "IS"):
                yield self.cut(at, at + 1)
            elif (word, following) in (("ON", "CONFLICT"), ("ORDER", "BY")) or word == "LIMIT":
                yield self.cut(at, self.after(at, _CLAUSES))
            elif word == "DESC":
                yield self.cut(at, at + 1)
            elif word in _OTHER:
                end = min(at + 4, len(self.words))
                what = f"{' '.join(self.words[max(at - 3, 0) : end])}: {_OTHER[word]} instead of {word}"
                yield what, self.all[at].start(), self.all[at].end(), _OTHER[word]

    def constraints(self) -> Iterator[Edit]:
        """Every edit of a table's own guards."""
        for at, word in enumerate(self.words):
            following, first = self.words[at + 1 : at + 2], at - (self.words[at - 1] == ",")
            if word == "NOT" and following == ["NULL"] and self.words[at - 1] != "IS":
                yield self.cut(at, at + 2)
            elif word == "CHECK" or (word == "UNIQUE" and following == ["("]):
                yield self.cut(first, self.closing(at))
            elif word == "REFERENCES":
                yield self.cut(at, self.closing(at))
            elif word == "UNIQUE":
                yield self.cut(at, at + 1)
            elif word == "STRICT":
                yield self.cut(at, at + 1 + (following == [","]))
            elif word == "CREATE" and following == ["TRIGGER"]:
                yield self.cut(at, self.words.index("END", at) + 2)


def mutants() -> list[Mutant]:
    """Every mutant, in the order of the sources. Two alike in one place are told apart by a number."""
    found: dict[str, Mutant] = {}
    for path in sorted((*PACKAGE.glob("*.py"), *map(PACKAGE.joinpath, SCHEMAS))):
        source = path.read_text(encoding="utf-8")
        for place, (what, start, end, instead) in _edits(path.name, source):
            line, where = source.count("\n", 0, start) + 1, place or _place_in_schema(source, end)
            one, number = Mutant(path.name, line, where, what, start, end, instead), 2
            while one.key in found:
                one, number = replace(one, what=f"{what} ({number})"), number + 1
            found[one.key] = one
    return list(found.values())


def _edits(name: str, source: str) -> Iterator[tuple[str, Edit]]:
    if name.endswith(".sql"):
        sql = _Sql(source, 0, len(source))
        yield from (("", edit) for edit in (*sql.conditions(), *sql.constraints()))
        return
    starts = [0, *(end.end() for end in re.finditer("\n", source))]
    lines = source.split("\n")
    for place, node in _strings(ast.parse(source), ""):
        start, end = (
            starts[row - 1] + len(lines[row - 1].encode()[:column].decode())
            for row, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        )
        if _IS_SQL.search(source, start, end):
            yield from ((place, edit) for edit in _Sql(source, start, end).conditions())


def _strings(node: ast.AST, place: str) -> Iterator[tuple[str, ast.Constant | ast.JoinedStr]]:
    """Every string that is not a docstring, and the names around it."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield place, node
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield from _strings(value, f"{place} {ast.unparse(key).rpartition('.')[2]}" if key else place)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        if isinstance(node, ast.FunctionDef):
            place = node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not place:
            place = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for child in ast.iter_child_nodes(node):
            yield from _strings(child, place)


def _place_in_schema(source: str, end: int) -> str:
    created = re.findall(r"CREATE \w+ (\w+)", source[:end])[-1]
    column = re.search(r"\n +([a-z]\w*) [^\n]*\Z", source[:end])
    return f"{created}.{column[1]}" if column else str(created)
