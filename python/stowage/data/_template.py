"""A folder's chat template: a conversation's text, and where the assistant speaks in it.

The spans of the text that are targets come from
  - the template's own {% generation %} marks, where it has them;
  - else from prefixes. For each assistant's turn, the text of the turns before it with the prompt for an answer must be a prefix of the
    whole text: the target begins where it ends. The target ends behind the content and the special token that ends the turn.

Rendering costs more than all else here but the tokens. So the prefixes are compared once for each sequence of roles, on contents that are
single stand-ins, and the text between contents is kept (a Skeleton). A conversation is then rendered once, and if its text is the skeleton
with the contents put in, whole or stripped of white space, its spans are known. If it is another text, its own prefixes are compared.
"""

import itertools
import re
from collections import namedtuple

from stowage.data._conversations import Bad, Unusable

# Private-use characters that stand in for others while a template runs.
END = "\U000ffffd"  # behind an assistant's content
CONTENT = "\U000ff000", "\U000ff001"  # around the number of a turn
DISGUISE = 0xF0000  # characters of special tokens that contents spell, from here on
STRIPS = (lambda text: text, str.strip, str.rstrip, str.lstrip)
MOST_SKELETONS = 4096

# `literals`: the text before each content, and behind the last. `spans`: for each assistant's turn its number, how far before the content
# the target begins, and how far behind it the target ends. `endless`: targets without a token that ends the turn.
Skeleton = namedtuple("Skeleton", "literals spans endless")
Rendered = namedtuple("Rendered", "text spans endless")


def messages_of(turns):
    return [{"role": role, "content": content} for role, content in turns]


class Template:
    """Requires a tokenizer of transformers with a chat template. `located`: where a turn's text before it is no prefix, its target begins
    with its content; otherwise the conversation is Bad."""

    def __init__(self, tokenizer, special_spellings, located=False):
        from transformers.utils import chat_template_utils
        self._render_all = chat_template_utils.render_jinja_template
        self._compile = getattr(chat_template_utils, "_compile_jinja_template", None)
        try:
            self._template = tokenizer.get_chat_template()
        except ValueError as error:
            raise Unusable(f"the folder's chat template cannot be used: {error}") from error
        self._compiled = self._compile(self._template) if self._compile else None
        if self._compiled:
            look_up_faster(self._compiled.environment)
            self._compiled.globals = dict(self._compiled.globals)  # each rendering copies them, which takes long from jinja's chain
        self._arguments = dict(tokenizer.special_tokens_map)
        self.marks_generation = re.search(r"\{%-?\s*generation\s*-?%\}", self._template) is not None
        self._located = located
        self._specials = special_pattern(special_spellings)
        spelled = sorted(set("".join(special_spellings)))
        self._disguise = {ord(character): DISGUISE + number for number, character in enumerate(spelled)}
        self._undisguise = {code: original for original, code in self._disguise.items()}
        self._skeletons = {}

    def _render(self, turns, prompted=False, marked=False):
        """Returns the text, and the spans of the template's own marks. Raises Bad where the template refuses."""
        try:
            if self._compiled and not marked:
                return self._compiled.render(messages=messages_of(turns), tools=None, documents=None, add_generation_prompt=prompted,
                                             **self._arguments), None
            texts, spans = self._render_all(conversations=[messages_of(turns)], chat_template=self._template, add_generation_prompt=prompted,
                                            return_assistant_tokens_mask=marked, **self._arguments)
        except Exception as error:  # the template's own code runs here, and may raise anything
            raise Bad(f"the chat template refuses the conversation: {error}") from error
        return texts[0], spans[0] if marked else None

    def render(self, turns):
        """Returns the Rendered of a conversation. Raises Bad."""
        text, spans = self._render(turns, marked=self.marks_generation)
        if self.marks_generation:
            return Rendered(text, spans, 0)
        skeleton = self._skeleton_of(tuple(role for role, _ in turns))
        placed = skeleton and _placed(skeleton, text, turns)
        return Rendered(text, placed, skeleton.endless) if placed else Rendered(text, *self._spans_by_prefixes(turns, text))

    def disguised(self, turns, text):
        """Returns `text`, the conversation's, with other characters in the place of special tokens that contents spell, those
        characters being of one length. Raises Bad if the template writes another text for such contents."""
        hidden = [(role, self._specials.sub(lambda found: found[0].translate(self._disguise), content)) for role, content in turns]
        require_no_stand_ins(text)
        found, _ = self._render(hidden)
        if found.translate(self._undisguise) != text:
            raise Bad("a content spells a special token, and the chat template treats that as no ordinary text; leave the token out")
        return found

    def _skeleton_of(self, roles):
        if roles not in self._skeletons:
            if len(self._skeletons) >= MOST_SKELETONS:
                self._skeletons.clear()
            try:
                self._skeletons[roles] = self._measured(roles)
            except Bad:
                self._skeletons[roles] = None
        return self._skeletons[roles]

    def _measured(self, roles):
        """Returns the Skeleton, or None if the template does not write each content once, in order."""
        turns = [(role, f"{CONTENT[0]}{number}{CONTENT[1]}") for number, role in enumerate(roles)]
        text, _ = self._render(turns)
        literals, contents, begin = [], [], 0
        for _, content in turns:
            found = text.find(content, begin)
            if found < 0 or text.count(content) != 1:
                return None
            literals.append(text[begin:found])
            begin = found + len(content)
            contents.append((found, begin))
        literals.append(text[begin:])
        spans, endless = self._spans_by_prefixes(turns, text)
        spoken = [number for number, role in enumerate(roles) if role == "assistant"]
        relative = [(number, contents[number][0] - first, end - contents[number][1]) for number, (first, end) in zip(spoken, spans)]
        if any(before < 0 or after < 0 or before > len(literals[number]) for number, before, after in relative):
            return None
        return Skeleton(literals, relative, endless)

    def _spans_by_prefixes(self, turns, text):
        """Returns the spans of the targets in `text`, and how many have no token that ends the turn. Raises Bad."""
        marked = [(role, _with_end(content) if role == "assistant" else content) for role, content in turns]
        spoken = [number for number, (role, _) in enumerate(turns) if role == "assistant"]
        whole = self._parts(marked, len(spoken), text)
        spans, endless, end = [], 0, 0
        for which, number in enumerate(spoken):
            end += len(whole[which])
            first = self._prompt_length(turns[:number], text)
            if first is None or first > end:
                first = self._content_before(text, end, turns[number][1], number)
            own = self._parts(marked[:number + 1], which + 1)[-1]
            closing = self._closing(own, whole[which + 1])
            endless += closing == 0
            spans.append((first, end + closing))
        return spans, endless

    def _parts(self, marked, count, text=None):
        """Returns the rendering's parts between the ends of the assistants' contents."""
        found, _ = self._render(marked)
        parts = found.split(END)
        if len(parts) != count + 1 or (text is not None and "".join(parts) != text):
            raise Bad("the chat template does not write each content of the assistant once, so that its targets cannot be found; mark them "
                      "in the template by {% generation %}")
        return parts

    def _prompt_length(self, turns, text):
        """Returns the length of these turns' text with the prompt for an answer, or None if that is no prefix of `text`."""
        try:
            prompt, _ = self._render(turns, prompted=True)
        except Bad:  # as of a conversation that the assistant begins
            return None
        return len(prompt) if text.startswith(prompt) else None

    def _content_before(self, text, end, content, number):
        content = content.strip()
        if self._located and text.endswith(content, 0, end):
            return end - len(content)
        raise Bad(f"the chat template's text before message {number + 1} is no prefix of the whole conversation's, so that its targets are "
                  "unknown; mark them in the template by {% generation %}, or give --turns located")

    def _closing(self, own, following):
        """Returns how far behind a content the turn's target ends: behind the special token that the turn itself ends with, white space
        before it allowed. `own`: what follows the content where the turn is the last one, `following`: what does so in the whole text."""
        token = self._specials.match(own, len(own) - len(own.lstrip()))
        return token.end() if token and following.startswith(own[:token.end()]) else 0


def look_up_faster(environment):
    """Shortens the way to a message's fields, and to the public names of loops and namespaces, which the sandbox's own rules allow. They are
    most of what a template looks at, and its general way there takes half of the time of a rendering."""
    from jinja2.runtime import LoopContext
    from jinja2.utils import Namespace
    general, methods = environment.getattr, frozenset(dir(dict))

    def shorter(item, name):
        kind = type(item)
        if kind is dict and name in item and name not in methods:
            return item[name]
        if kind in (LoopContext, Namespace) and not name.startswith("_"):
            try:
                return getattr(item, name)
            except AttributeError:
                pass
        return general(item, name)

    environment.getattr = shorter


def special_pattern(spellings):
    """Returns a pattern of any special token, the longest first."""
    if not spellings:
        return re.compile(r"(?!)")
    return re.compile("|".join(re.escape(each) for each in sorted(spellings, key=len, reverse=True)))


def require_no_stand_ins(text):
    """Raises Bad for a text with characters of the private planes, which stand in for special tokens."""
    if max(text) >= chr(DISGUISE):
        raise Bad(f"a content spells a special token, and the text has the private-use character U+{ord(max(text)):X}; leave one of them out")


def _with_end(content):
    """Returns the content with END behind it. White space stays behind that, where a template may strip it as before."""
    spoken = content.rstrip()
    return spoken + END + content[len(spoken):]


def _placed(skeleton, text, turns):
    """Returns the spans of the targets, or None if the text is not the skeleton with these contents."""
    parts = [part for literal, (_, content) in zip(skeleton.literals, turns) for part in (literal, content)]
    if "".join([*parts, skeleton.literals[-1]]) == text:
        ends = list(itertools.accumulate(map(len, parts)))  # of each literal, then of the content behind it
        return [(ends[2 * number] - before, ends[2 * number + 1] + after) for number, before, after in skeleton.spans]
    return _placed_stripped(skeleton, text, turns)


def _placed_stripped(skeleton, text, turns):
    """Returns the same for contents of which the template may have stripped white space."""
    literals, begin, contents = skeleton.literals, len(skeleton.literals[0]), []
    if not text.startswith(literals[0]):
        return None
    for number, (_, content) in enumerate(turns):
        following = literals[number + 1]
        for strip in STRIPS:
            stripped = strip(content)
            end = begin + len(stripped)
            if text.startswith(stripped, begin) and text.startswith(following, end):
                break
        else:
            return None
        contents.append((begin, end))
        begin = end + len(following)
    if begin != len(text):
        return None
    return [(contents[number][0] - before, contents[number][1] + after) for number, before, after in skeleton.spans]
