"""Names of the engine keep to the glossary in CONTRIBUTING: a word that the field has no use for does not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from engine.ops.looks import LISTED, Counts
from engine.queue.metrics import Demand, Scaling, exposition
from tests.project.test_sentences import pages, prose

ROOT = Path(__file__).resolve().parents[2]

NO_DEMAND = Demand(arrivals_per_s=0, service_ms=0, backlog=0, oldest_age_ms=0, running=0, handlers_at_once=1)
COUNTS = Counts(1, waiting=1, delayed=2, active=3, dead=4, done=5, finished=6, buried=7)

#: A word that no name of the engine has -> what the glossary says instead.
PRIVATE = {
    **{"hear": "receive, notify or note", "heard": "received or notified", "hears": "receives or notes"},
    **{"hungry": "wants jobs", "mould": "header template", "alike": "same as the last"},
    **{"face": "counterpart", "news": "updates", "marker": "wake-up, or the work that it tells of"},
    **{"turn": "permit, time slice or virtual time", "turns": "permits, time slices or virtual time"},
}
#: Names that carry such a word for a reason.
EXCUSED = {"news": "so the key of the updates is called on the server"}


def names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each class, function, parameter and assigned attribute."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def words(name: str) -> set[str]:
    """`ClassRotation` and `class_rotation` -> class, rotation."""
    return set(re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().split("_"))


def private_names(paths: list[Path]) -> list[str]:
    found = [(path, *one) for path in paths for one in names(path.read_text()) if one[1] not in EXCUSED]
    private = [(*one, word) for one in found for word in sorted(words(one[2]) & PRIVATE.keys())]
    return [f"{path.relative_to(ROOT)}:{line} {name}: {PRIVATE[word]}" for path, line, name, word in private]


def test_names_of_the_engine_have_the_words_of_the_glossary() -> None:
    assert private_names(sorted((ROOT / "engine").rglob("*.py"))) == []


#: Words that prose has another one for, by the glossary; in code they may stand, as `news` does in a key.
UNUSED = r"(?i)\b(?:hears?|heard|hungry|data epoch|time slot|take[ns]? (?:\w+ )?leases?|leases? (?:is|are|w\w+) taken|the news)\b"


def unused_words(text: str) -> list[str]:
    return re.findall(UNUSED, " ".join(re.sub(r"(?ms)^```.*?^```|`[^`]*`", "", text.replace(glossary(), "")).split()))


def test_prose_has_the_words_of_the_glossary() -> None:
    found = {page.name: [word for text in prose(page) for word in unused_words(text)] for page in pages()}
    assert {name: words for name, words in found.items() if words} == {}
    assert unused_words("It hears of a lease: two leases were taken.\n`news`, the news") == [
        "hears",
        "leases were taken",
        "the news",
    ]


def test_a_private_word_is_found_in_every_kind_of_name() -> None:
    source = "class Mould:\n    def hear(self, hungry):\n        self.other_face = heard = 1\n"
    assert {one for _, one in names(source) if words(one) & PRIVATE.keys()} == {"Mould", "hear", "hungry", "other_face", "heard"}


def test_the_glossary_has_some_forty_words_with_one_meaning_each() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", glossary(), re.MULTILINE)[2:]
    assert len(rows) >= 40 and len({word for word, _ in rows}) == len(rows)
    assert [word for word, meaning in rows if len(meaning.split()) > 25] == []


def glossary() -> str:
    return (ROOT / "CONTRIBUTING.md").read_text().partition("[start:glossary]")[2].partition("[end:glossary]")[0]


# -- One word for one state: what people and programs read says `finished`, never done, and `dead`, never buried.

#: Texts of the page, the command and the metrics, and what users read.
TEXTS = ("engine/http", "engine/command", "engine/queue/metrics.py")
GUIDES = ("docs/index.md", "docs/getting-started.md", "docs/operating.md", "docs/migrating.md", "docs/guides", "docs/reference")
#: Where the word stands for a reason.
FORMER = {
    "engine/queue/metrics.py: jobs_buried_total": "its former name, for one release",
    "engine/command/queues.py: buried": "a former name of a field for programs, for one release",
    "engine/command/queues.py: buried_per_s": "a former name of a field for programs, for one release",
    "engine/command/queues.py: done": "a former name of a field for programs, for one release",
    "engine/http/page/job_views.py: buried": "the kind of an event; the page calls it Dead",
}


def texts(path: Path) -> Iterator[str]:
    """Each text of a module that is no docstring, in quotes or in an f-string; of a template its words."""
    if path.suffix == ".html":
        yield re.sub(r"\{[%#{].*?[%#}]\}|<[^>]*>", " ", path.read_text(), flags=re.DOTALL)
        return
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def other_words(path: Path) -> list[str]:
    """Texts that have `buried`, or `done` for a state: alone, as names of states and fields are."""
    found = [text for text in texts(path) if re.search(r"(?<![a-z])buried(?![a-z])", text, re.IGNORECASE) or text == "done"]
    named = [f"{path.relative_to(ROOT)}: {' '.join(text.split())[:60]}" for text in found]
    return [one for one in named if one not in FORMER]


def files(places: tuple[str, ...], *suffixes: str) -> list[Path]:
    roots = [ROOT / place for place in places]
    under = [path for root in roots if root.is_dir() for path in sorted(root.rglob("*")) if path.suffix in suffixes]
    return [root for root in roots if root.is_file()] + under


def test_texts_have_one_word_for_one_state() -> None:
    assert [one for path in files(TEXTS, ".py", ".html") for one in other_words(path)] == []


def test_pages_for_users_have_one_word_for_one_state() -> None:
    # In quotes it is the kind of an event of the queue, in code.
    found = {one.name: re.findall(r'.*(?<!")\bburied\b(?!").*', one.read_text()) for one in files(("README.md", *GUIDES), ".md")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_metrics_and_lists_have_the_same_states() -> None:
    lines = exposition("q", COUNTS, demand=NO_DEMAND, scaling=Scaling()).splitlines()
    states = {found[1] for line in lines if (found := re.match(r'ironclaim_jobs\{.*state="(\w+)"\} \d', line))}
    assert states == set(LISTED) - {"stuck"}
    dead = [line.rsplit(" ", 1)[1] for line in lines if re.match(r"ironclaim_jobs_(dead|buried)_total\{", line)]
    assert dead == ["7", "7"], "the former name stays for one release"
    assert (COUNTS.finished_kept, COUNTS.dead_total) == (COUNTS.done, COUNTS.buried)
