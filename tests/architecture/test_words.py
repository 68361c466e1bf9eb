"""What was said in a conversation is read in a few places, each known with its reason; nobody gets it past `sight`.

Words are the texts of records, summaries and envelopes, of model answers, and the output of tools. Whatever reads a
member of these names, under whatever type, is listed here; a list that has more than there is fails as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tree import ROOT, name_of, parse

FOLDERS = ("domain/conversations", "commands", "projections", "http", "infra/postgres")
"""Where words of a conversation can be met. What lies elsewhere gets prompts, frames or lines that were made here."""

WORDS = {"text", "output"}

SHOWN = {
    "http/conversation_entries.py:shown": "the one place that makes what viewers get of a record",
    "http/continuations.py:ContinuationDesk._shown": "the reply of a background turn, where _is_theirs says so",
}
"""What hands words to viewers, as `sight` says."""

SHOWING = {"http/conversation_reading.py:read_page", "http/dialogue.py:frame"}
"""Who calls it: a page, and a frame of a stream, whose sight ConversationStream._deliver asks for."""

FED = {
    "commands/conversations/context.py:Words._told": "turns of the slice",
    "commands/conversations/context.py:Words.summary": "the summary of the slice",
    "commands/conversations/context.py:_asked": "the asker's own question, and what they edit of their own",
    "commands/conversations/context.py:request_of": "what the turn's own model said and its tools returned",
    "commands/conversations/summarizing.py:_ask": "tokens of the summarizer's request, and what it answered",
    "commands/conversations/memory.py:_Read.run": "what the asker noted, or is cleared for: see _Store.read",
    "domain/conversations/fit.py:fit_results": "sizes of results of the turn's own tools",
    "domain/conversations/fence.py:question": "the fence of the prompt",
    "domain/conversations/prompt.py:_words": "sizes",
    "domain/conversations/prompt.py:assemble": "the prompt",
    "domain/conversations/prompt.py:fixed_texts": "sizes",
    "domain/conversations/prompt.py:prompt_text": "the prompt's keyed digest",
    "domain/conversations/prompt.py:question_text": "the prompt",
    "domain/conversations/prompt.py:step_messages": "the prompt",
    "domain/conversations/summarizing.py:_block": "turns that its caller found to be unrestricted",
    "domain/conversations/summarizing.py:_cut_block": "as above",
    "domain/conversations/summarizing.py:summary_request": "as above",
}
"""What makes prompts: of turns and notes that their asker may see."""

ASKED = {
    "domain/conversations/visibility.py:sight": "may_see",
    "http/conversation_sights.py:Sights.of": "sight",
    "http/conversation_reading.py:read_page": "of",
    "http/conversation_stream.py:ConversationStream._deliver": "of",
    "http/conversation_ledger.py:own_turn": "sight",
    "http/continuations.py:ContinuationDesk._shown": "_is_theirs",
    "http/continuations.py:ContinuationDesk._is_theirs": "of",
    "http/inbox.py:InboxDesk.seen": "_visible",
    "http/inbox.py:InboxDesk._visible": "_turns_seen",
    "http/inbox.py:InboxDesk._turns_seen": "of",
    "commands/answers/records.py:Transcripts.is_cleared": "may_see",
    "commands/answers/resolving.py:_Found._with_named": "is_cleared",
    "commands/answers/permitting.py:AnswerPermit._by_records": "is_cleared",
    "domain/conversations/window.py:slice_for": "may_see",
    "commands/conversations/context.py:_slice": "slice_for",
    "commands/conversations/context.py:prepare": "_slice",
    "commands/conversations/memory.py:_Store.read": "may_see",
}
"""The way of the question: who asks whom what somebody may see."""

SIGHTS = {"own", "cleared"}
"""Answers of `sight` that show something."""

ANSWERING = {
    "domain/conversations/visibility.py:": "their type",
    "domain/conversations/visibility.py:sight": "the answer",
    "domain/conversations/past.py:": "reasons, and an order, of `explain`",
    "domain/conversations/past.py:rule_of": "as above",
    "http/conversation_entries.py:shown": "what an answer comes to",
    "http/conversation_ledger.py:own_turn": "of its own asker alone",
    "http/conversation_past.py:explain": "whether it is shown",
}
"""Where these answers stand: nowhere is one of them made up."""

WRITTEN = {
    "commands/conversations/encoding.py:": "names of members that are redacted before they are stored",
    "commands/conversations/model_call.py:ModelCall._take": "a chunk of the model",
    "commands/conversations/steps.py:Progress.text": "the reply so far of a turn that is worked at",
    "commands/conversations/memory.py:_Write.problem": "an argument of the turn's own model",
    "commands/conversations/memory.py:_Write.run": "as above",
    "commands/conversations/ports.py:": "the schema of an argument",
    "commands/conversations/tools.py:Toolbox.run": "a tool's result, before it is stored",
    "infra/postgres/memories.py:PostgresMemories.write": "a note, as it is stored",
    "commands/conversations/turn.py:Turn._ask": "usage",
    "commands/conversations/turn.py:Turn._ended": "the reply, before it is stored",
    "commands/conversations/turn.py:Turn._failure": "as above",
    "commands/conversations/turn.py:Turn._generate": "as above",
    "commands/conversations/turn.py:Turn._outcome": "as above",
    "domain/conversations/decide.py:send_turn": "a message, before it is stored",
    "domain/conversations/erasing.py:": "members that an erasure empties",
    "domain/conversations/judge.py:_is_well_formed": "whether an envelope has words",
    "domain/conversations/turns.py:_said": "an envelope's words into the question's record",
    "domain/conversations/turns.py:end_turn": "the reply, before it is stored",
    "domain/conversations/turns.py:record_summary": "a summary, before it is stored",
}
"""What goes into the log, and nowhere else."""

OTHERS = {
    "commands/channels/inbound.py:Receiving._message": "a message that comes in: whether a group was shown a code",
    "commands/channels/doing.py:Doing._turn": "a message that comes in, as its sender's own turn",
    "commands/channels/doing.py:Doing.do": "its length",
    "commands/channels/judging.py:_of_words": "its length",
    "commands/answers/resolving.py:Resolver._plan_apart": "that there is an answer, and none of its words",
    "commands/answers/resolving.py:Resolver._wanted": "what goes to the asker, or to who is cleared: see resolve",
    "commands/deliveries/planning.py:_rendered": "what a delivery was given; who takes that of a record asks `sight`",
    "commands/processes/lookups.py:Lookups.verdict": "a verdict of a room",
    "commands/room_tools.py:RoomToolHandlers.use_tool": "a message to a room",
    "http/bridge_stream.py:_frame": "a message of a room, to its run",
    "http/dialogue.py:Dialogue.hear": "a delta: it goes to the asker alone",
    "http/dialogue.py:Live.frame": "as above",
    "http/inbox.py:_entry": "what a delivery was given, of turns that InboxDesk.seen asks for",
    "http/mcp_server.py:_result": "a type of the protocol",
    "http/reading.py:snapshot": "queued messages of a room, which have no classes",
    "http/redacted.py:RedactedEdge._key": "a header",
    "http/routes/health.py:metrics": "a method",
    "infra/postgres/deltas_table.py:PostgresDeltaTable.put": "a delta",
    "infra/postgres/guards.py:_text": "SQL",
    "infra/postgres/migrate.py:SqlFile.checksum": "SQL",
    "infra/postgres/migrate.py:_apply": "SQL",
    "infra/postgres/migrate_script.py:_part": "SQL",
    "projections/transcript.py:describe": "entries of rooms, which http/routes/history.py filters by their classes",
}
"""What is called the same and is none of a conversation's record."""

KNOWN = {**SHOWN, **FED, **WRITTEN, **OTHERS}


def reads(root: Path, is_one: Callable[[ast.AST], bool]) -> set[str]:
    """`file:function` of everything that has such a node."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            found |= {f"{name}:{place}" for place in _reads(ast.parse(path.read_text("utf-8")), "", is_one)}
    return found


def _reads(node: ast.AST, place: str, is_one: Callable[[ast.AST], bool]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{place}.{child.name}".lstrip(".")
        if is_one(child):
            yield inner
        yield from _reads(child, inner, is_one)


def is_read(node: ast.AST) -> bool:
    """Whether words are read: by attribute, in a pattern, or by the name of the member."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return name in WORDS
        case ast.MatchClass(kwd_attrs=names):
            return not WORDS.isdisjoint(names)
        case ast.Constant(value=str() as name):
            return name in WORDS
        case _:
            return False


def is_answer(node: ast.AST) -> bool:
    """Whether it is an answer of `sight` that shows something."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SIGHTS


def function(place: str) -> ast.AST:
    """The syntax tree of `file:function`."""
    file, _, name = place.partition(":")
    found: ast.AST = parse(ROOT / file)
    for part in name.split("."):
        inner = ast.walk(found)
        found = next(each for each in inner if getattr(each, "name", None) == part)
    return found


def called(node: ast.AST) -> set[str]:
    """The names of all that is called within."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in calls
        if hasattr(each, "id") or hasattr(each, "attr")
    }


def callers(name: str) -> set[str]:
    """Every `file:function` that calls something of that name."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name in called(node):
                    found.add(f"{name_of(path)}:{node.name}")
    return found


def test_words_are_read_in_known_places_alone() -> None:
    assert reads(ROOT, is_read) == set(KNOWN)


def test_who_shows_and_who_feeds_has_asked() -> None:
    assert callers("shown") - {"http/conversation_stream.py:_turn"} == SHOWING, "and there it is a running reply"
    assert {place for place, asked in ASKED.items() if asked not in called(function(place))} == set()


def test_no_answer_is_made_up() -> None:
    assert reads(ROOT, is_answer) <= set(ANSWERING)


@pytest.mark.parametrize(
    "offence",
    [
        "def leak(record): return record.text",
        "def leak(step):\n    match step:\n        case ToolEnded(output=words):\n            return words",
        "def leak(record): return getattr(record, 'text')",
        "def leak(record): return to_builtins(record)['output']",
        "class Leak:\n    async def words(self, at): return (await self.reader.decode(at)).text",
    ],
    ids=["attribute", "pattern", "getattr", "key", "method"],
)
def test_an_offence_is_found(tmp_path: Path, offence: str) -> None:
    (tmp_path / "http").mkdir()
    (tmp_path / "http" / "leak.py").write_text(offence)
    assert reads(tmp_path, is_read) in ({"http/leak.py:leak"}, {"http/leak.py:Leak.words"})


def test_an_answer_that_is_made_up_is_found(tmp_path: Path) -> None:
    (tmp_path / "http").mkdir()
    (tmp_path / "http" / "leak.py").write_text("def leak(record): return shown(record, 'cleared')")
    assert reads(tmp_path, is_answer) == {"http/leak.py:leak"}
