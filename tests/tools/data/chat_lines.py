"""Conversations made of words, the same from each seed."""

import json
import random

WORDS = ("the a river stone house walks sees old small and under over light bread water gives takes he she they it then snow été naïve 東京 "
         "🙂 don't it's 42 3.14 x=y").split()


def sentence(draw):
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 12))).capitalize() + draw.choice([".", "?", "!", ":\n- one\n- two", ""])


def conversation(draw, spelled=(), system=None, exchanges=None):
    """Returns turns as (role, content). `spelled`: special tokens of which contents have some, in words and between them."""
    def content():
        text = " ".join(sentence(draw) for _ in range(draw.randint(1, 3)))
        for _ in range(draw.randint(1, 3) if spelled else 0):
            at = draw.randint(1, len(text))
            text = text[:at] + draw.choice(spelled) + text[at:]
        return text

    turns = [("system", content())] if (draw.random() < 0.5 if system is None else system) else []
    for _ in range(exchanges or draw.randint(1, 4)):
        turns += [("user", content()), ("assistant", content())]
    return turns


def forty(name, specials):
    """Returns forty conversations of a form: half with a system prompt, one to four exchanges; every fourth spells special tokens."""
    draw = random.Random(f"{name} 1")
    made = []
    for number in range(40):
        turns = conversation(draw, specials if number % 4 == 3 else (), system=number % 2 == 0, exchanges=1 + number // 2 % 4)
        if name == "qwen3" and number % 5 == 2:  # every answer was reasoned about
            turns = [(role, f"<think>\n{sentence(draw)}\n</think>\n\n{content}" if role == "assistant" else content) for role, content in turns]
        made.append(turns)
    return made


def spells(turns, specials):
    return any(each in content for _, content in turns for each in specials)


def as_messages(turns):
    return [{"role": role, "content": content} for role, content in turns]


def line_of(turns):
    return json.dumps({"messages": as_messages(turns)}, ensure_ascii=False)
