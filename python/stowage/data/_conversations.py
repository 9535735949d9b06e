"""Lines of JSONL files, and the conversations and texts that they hold.

A line is one of these, looked for in this order:

    {"messages": [{"role", "content"}, …]}                      as it stands
    {"conversations": [{"from", "value"}, …]}                   ShareGPT: human and user speak as user, gpt, chatgpt and assistant as assistant
    {"prompt", "completion"}                                    user and assistant
    {"instruction", "input", "output"}                          Alpaca: instruction, an empty line and a non-empty input as user; output as assistant
    {"text"}                                                    a document without turns

A `system` text beside `conversations` or `instruction` is the first message. Other fields are ignored.
"""

import codecs
import json
import os
from collections import namedtuple


class Bad(ValueError):
    """A line that holds nothing that could be learned from; says why."""


class Unusable(Exception):
    """Input or options with which the tool cannot go on; says what is wrong and what to do."""


# Turns of a conversation as (role, content). `chat` is False for a prompt and a completion, which need no chat template.
Conversation = namedtuple("Conversation", "turns chat")
Text = namedtuple("Text", "text")
# Lines of one file: (number, bytes or None for a line that is too long). `bytes_read` counts the file's bytes up to here.
Chunk = namedtuple("Chunk", "file lines bytes_read")

ROLES = ("system", "user", "assistant")
SHAREGPT_ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant"}
# Fields of a message that change what a template writes or what is learned.
UNSUPPORTED_FIELDS = ("tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning", "thinking", "weight")
CHUNK_BYTES = 256 << 10
CHUNK_LINES = 256


def chunks(files, longest_line):
    """Yields the lines of all files in order, a bounded number of bytes at a time. Lines of white space are left out;
    a file without any other has the one line b"". Raises Unusable for a file that cannot be read."""
    for name in files:
        try:
            with open(name, "rb") as file:
                yield from _chunks_of(file, name, longest_line)
        except OSError as error:
            raise Unusable(f"{name}: {error.strerror or error}") from error


def _chunks_of(file, name, longest_line):
    lines, held, done, any_line = [], 0, 0, False
    for number, line, size in _numbered(file, longest_line):
        done += size
        if line is None or line.strip():
            any_line = True
            lines.append((number, line))
            held += len(line or b"")
        if held >= CHUNK_BYTES or len(lines) >= CHUNK_LINES:
            yield Chunk(name, lines, done)
            lines, held, done = [], 0, 0
    if not any_line:
        lines.append((1, b""))
    if lines or done:
        yield Chunk(name, lines, done)


def _numbered(file, longest_line):
    """Yields (number, line, bytes read); the line is None if it is longer than `longest_line` bytes, which are never all in memory."""
    number = 0
    while True:
        line = file.readline(longest_line + 1)
        if not line:
            return
        number += 1
        size = len(line)
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line = line[len(codecs.BOM_UTF8):]
        if size > longest_line and not line.endswith(b"\n"):
            line = None
            while True:
                rest = file.readline(1 << 20)
                size += len(rest)
                if not rest or rest.endswith(b"\n"):
                    break
        yield number, line, size


def bytes_of(files):
    """Returns the bytes of all files together, for the progress. Raises Unusable for a file that is not there."""
    try:
        return sum(os.stat(name).st_size for name in files)
    except OSError as error:
        raise Unusable(f"{error.filename}: {error.strerror}; give files of JSONL to --data") from error


def parse(line):
    """Returns the Conversation or Text of a line. Raises Bad."""
    if not line:
        raise Bad("the file is empty; give JSON objects, one a line")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Bad(f"ill-formed UTF-8 at byte {error.start + 1} of the line") from error
    try:
        item = json.loads(text)
    except RecursionError as error:
        raise Bad("no JSON: it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Bad(f"no JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:
        raise Bad(f"no JSON: {error}") from error
    if not isinstance(item, dict):
        raise Bad("no object; give {\"messages\": …}, {\"prompt\", \"completion\"}, {\"text\"}, ShareGPT's or Alpaca's fields")
    return _converted(item)


def _converted(item):
    if item.get("tools"):
        raise Bad("'tools' is given; conversations with tools are not supported")
    if "messages" in item:
        return _conversation(_list(item, "messages"), None)
    if "conversations" in item:
        return _conversation(_list(item, "conversations"), item.get("system"))
    if "prompt" in item and "completion" in item:
        turns = [("user", _text(item["prompt"], "prompt")), ("assistant", _text(item["completion"], "completion"))]
        return Conversation(turns, chat=False)
    if "instruction" in item and "output" in item:
        asked, more = _text(item["instruction"], "instruction"), item.get("input")
        if more is not None and _text(more, "input"):
            asked = f"{asked}\n\n{more}"
        return Conversation([*_system(item.get("system")), ("user", asked), ("assistant", _text(item["output"], "output"))], chat=True)
    if "text" in item:
        return Text(_text(item["text"], "text"))
    named = ", ".join(json.dumps(key) for key in sorted(item)[:5]) or "none"
    raise Bad(f"fields of no known form ({named}); give messages, conversations, prompt and completion, instruction and output, or text")


def _list(item, field):
    if not isinstance(item[field], list):
        raise Bad(f"'{field}' is no list")
    return item[field]


def _system(text):
    return [("system", _text(text, "system"))] if text else []


def _conversation(messages, system):
    turns = _system(system) + [_turn(message, number) for number, message in enumerate(messages, 1)]
    if not any(role == "assistant" for role, _ in turns):
        raise Bad("no assistant: nothing is said that could be learned")
    return Conversation(turns, chat=True)


def _turn(message, number):
    if not isinstance(message, dict):
        raise Bad(f"message {number} is no object")
    role, content = message.get("role"), message.get("content")
    if len(message) == 2 and type(content) is str and content.isascii() and role in ROLES:
        return role, content  # as most are
    where = f"message {number}"
    if len(message) > 2:
        for field in UNSUPPORTED_FIELDS:
            if message.get(field) is not None:
                raise Bad(f"{where} has '{field}', which is not supported; leave it out, or write it into the content")
    if "from" in message:
        role, content = message["from"], message.get("value")
    known = SHAREGPT_ROLES.get(role) if "from" in message and isinstance(role, str) else role
    if known not in ROLES:
        raise Bad(f"{where} has the unknown role {json.dumps(role)}; known are system, user and assistant (ShareGPT: system, human, gpt)")
    return known, _text(content, f"content of {where}")


def _text(value, where):
    """Returns a text, or the texts of parts {"type": "text", "text"} one behind the other. Raises Bad for anything else."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and part.get("type") == "text" for part in value):
        return "".join(_one_text(part.get("text"), where) for part in value)
    return _one_text(value, where)


def _one_text(value, where):
    if not isinstance(value, str):
        raise Bad(f"the {where} is no text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Bad(f"the {where} is no text: it has half of a surrogate pair") from error
    return value
