"""Tokens of conversations and texts, and which of them are targets.

A text is encoded whole, by the tokenizer's own rules, as `apply_chat_template` does. Where a content spells a special token, a second
tokenizer is used, the Twin: the same but for the spellings of its special tokens, which are private-use characters. The template's special
tokens are written in these, and a content's are ordinary text then.
"""

import bisect
import importlib.util
import itertools
import json
import os
import unicodedata
from array import array
from collections import Counter, namedtuple

from stowage.data._conversations import Bad, Text, Unusable, parse
from stowage.data._template import Template, require_no_stand_ins, special_pattern

TWIN = 0x100000  # the first of the characters that spell special tokens for the twin

# Documents one behind the other. `lengths`: tokens of each. `marks`: a byte for each token, as a shard has them. `bad`: (number of the line,
# reason). `counts`: of "conversations" (lines that were read), "endless", "truncated", "nothing to learn" and "too long".
Batch = namedtuple("Batch", "lengths tokens marks bad counts")


def load_tokenizer(folder):
    """Returns a folder's fast tokenizer. Raises Unusable."""
    from transformers import AutoTokenizer
    if not os.path.isdir(folder):
        raise Unusable(f"--model {folder} is no folder; give one with tokenizer.json and tokenizer_config.json, as Hugging Face has them")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for files that are missing or damaged
        raise Unusable(f"--model {folder}: the tokenizer does not load: {str(error).strip() or type(error).__name__}") from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise Unusable(f"--model {folder}: this tokenizer has no tokenizer.json and cannot be made fast; save one by save_pretrained")
    return tokenizer


class Encoder:
    def __init__(self, folder, sequence, truncates, located=False):
        self._tokenizer = load_tokenizer(folder)
        self._backend = self._tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._specials = {token.content: number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        self._pattern = special_pattern(self._specials)
        self._twin_spellings = {each: chr(TWIN + index) for index, each in enumerate(sorted(self._specials))}
        self._twin = None
        self._token_bytes = bytes_of_tokens(self._backend)
        self._sequence, self._truncates = sequence, truncates
        # transformers does not install what chat templates run in; texts go without.
        self._template_runs = importlib.util.find_spec("jinja2") is not None
        has_template = self._tokenizer.chat_template and self._template_runs
        self._template = Template(self._tokenizer, self._specials, located) if has_template else None
        self._begin = self._begins_with()
        self._end = self._tokenizer.eos_token_id
        padding = self._tokenizer.pad_token_id
        self.padding = padding if padding is not None else self._end if self._end is not None else 0
        self.targets_from = "no chat template" if not self._template else "generation marks" if self._template.marks_generation else "prefixes"

    def _begins_with(self):
        """Returns the tokens that the tokenizer puts before a text by itself: [its bos token], or []."""
        first = self._backend.encode("a").ids[:1]
        return first if first and first[0] == self._tokenizer.bos_token_id else []

    def batch(self, lines):
        """Returns the Batch of (number, bytes or None) lines."""
        counts, bad, documents = Counter(), [], []
        counts["conversations"] = len(lines)
        for number, line in lines:
            try:
                if line is None:
                    raise Bad("longer than --longest-line")
                documents.append(self._prepared(parse(line), counts))
            except Bad as error:
                bad.append((number, str(error)))
        lengths, tokens, marks = array("i"), array("i"), bytearray()
        for ids, counting in self._encoded(documents):
            reason = self._fit(ids, counting, counts)
            if reason:
                counts[reason] += 1
                continue
            lengths.append(len(ids))
            tokens.extend(ids)
            marks += counting
        return Batch(lengths, tokens, marks, bad, counts)

    def _fit(self, ids, counting, counts):
        """Cuts a document that is too long. Returns why a document is left out, or None."""
        reason = "nothing to learn"
        if len(ids) > self._sequence:
            reason = "too long"
            if not self._truncates:
                return reason
            del ids[self._sequence:]
            del counting[self._sequence:]
            counting[-1] = 0
        if 1 not in counting:
            return reason
        if reason == "too long":
            counts["truncated"] += 1
        return None

    def _prepared(self, item, counts):
        """Returns (text, whether it is the twin's, spans of the targets, whether begin and end are added)."""
        if isinstance(item, Text):
            return self._plain("", item.text)
        if not self._template_runs:
            raise Unusable("jinja2 is not installed, in which chat templates run: run `pip install '.[data]'` in Stowage's folder")
        if self._template is None:
            if item.chat:
                raise Bad("the folder has no chat template; give {\"text\"} or {\"prompt\", \"completion\"}, or a folder of an instruct model")
            return self._plain(item.turns[0][1], item.turns[1][1])
        rendered = self._template.render(item.turns)
        if rendered.endless:
            counts["endless"] += rendered.endless
        if not self._pattern.search("\0".join([content for _, content in item.turns])):
            return rendered.text, False, rendered.spans, False
        return self._for_twin(self._template.disguised(item.turns, rendered.text), rendered)

    def _plain(self, given, learned):
        """A text without a template: `learned` is a target. All of it is ordinary text."""
        if self._end is None:
            raise Bad("the tokenizer has no eos token, which ends a text; name one in tokenizer_config.json")
        text = given + learned
        spells = self._pattern.search(text) is not None
        if spells:
            require_no_stand_ins(text)
        return text, spells, [(len(given), len(text))], True

    def _for_twin(self, disguised, rendered):
        """Returns the text with its special tokens in the twin's spelling; spans move by what these are shorter."""
        pieces, kept, moved = [], 0, [(0, 0)]  # moved: (place in the text, how much shorter the text before it has become)
        for found in self._pattern.finditer(disguised):
            pieces += [rendered.text[kept:found.start()], self._twin_spellings[found[0]]]
            kept = found.end()
            moved.append((kept, moved[-1][1] + len(found[0]) - 1))
        pieces.append(rendered.text[kept:])

        def place(at):
            return at - moved[bisect.bisect_right(moved, (at, len(disguised))) - 1][1]

        return "".join(pieces), True, [(place(first), place(end)) for first, end in rendered.spans], False

    def _encoded(self, documents):
        """Yields (ids, marks) of each document."""
        plain = [text for text, twin, *_ in documents if not twin]
        twins = [text for text, twin, *_ in documents if twin]
        encode = self._backend.encode_batch_fast if self._token_bytes else self._backend.encode_batch
        plain = iter(encode(plain, add_special_tokens=False))
        twins = iter(self._twin_tokenizer().encode_batch(twins, add_special_tokens=False) if twins else ())
        for text, twin, spans, ended in documents:
            encoding = next(twins if twin else plain)
            ids = encoding.ids
            counting = None if twin or not self._token_bytes else targets_by_bytes(text, ids, spans, self._token_bytes)
            if counting is None:
                if not twin and self._token_bytes:
                    encoding = self._backend.encode(text, add_special_tokens=False)
                counting = targets(encoding.offsets, spans)
            if ended:
                counting = bytearray(len(self._begin)) + counting + b"\1"
                ids = [*self._begin, *ids, self._end]
            del counting[:1]  # a mark stands at the token before its target
            counting.append(0)
            yield ids, counting

    def _twin_tokenizer(self):
        if self._twin is None:
            self._twin = twin_of(self._backend, self._twin_spellings)
            for spelling, number in self._specials.items():
                if self._twin.encode(self._twin_spellings[spelling], add_special_tokens=False).ids != [number]:
                    raise Unusable(f"a content spells a special token, and this tokenizer cannot take {spelling!r} for ordinary text")
        return self._twin


def targets(offsets, spans):
    """Returns a byte for each token: 1 if any of its characters lie in a span."""
    found = bytearray(len(offsets))
    for first, end in spans:
        begin = bisect.bisect_left(offsets, (first,))
        while begin > 0 and offsets[begin - 1][1] > first:
            begin -= 1
        stop = bisect.bisect_left(offsets, (end,))
        if stop > begin:
            found[begin:stop] = b"\1" * (stop - begin)
    return found


def targets_by_bytes(text, ids, spans, token_bytes):
    """Returns the same without offsets, whose making takes a quarter of the tokenizer's time: by the bytes of each token. Returns None
    if the tokens have not the bytes of the text, which a normalizer or an added token that takes white space along has changed."""
    ends = list(itertools.accumulate(map(token_bytes.__getitem__, ids)))
    narrow = text.isascii()
    if not narrow and not unicodedata.is_normalized("NFC", text):
        return None
    if (ends[-1] if ends else 0) != (len(text) if narrow else len(text.encode())):
        return None
    found = bytearray(len(ids))
    place = bytes_before = 0  # of the last span's end
    for first, end in spans:
        if not narrow:
            if first < place:
                return None
            gap, place, inside = text[place:first], end, text[first:end]
            first = bytes_before + len(gap.encode())
            end = bytes_before = first + len(inside.encode())
        begin, stop = bisect.bisect_right(ends, first), bisect.bisect_left(ends, end) + 1
        if end > first:
            found[begin:stop] = b"\1" * (stop - begin)
    return found


def bytes_of_tokens(backend):
    """Returns how many bytes of a text each token has, as a list by its id, or None if this tokenizer is not of a kind whose tokens have all
    bytes of a text: byte-level pieces, without a prefix. Tokens that are not all of a text have fewer bytes, never more."""
    parts = json.loads(backend.to_str())
    steps = _steps(parts["pre_tokenizer"], "pretokenizers")
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    if parts["model"]["type"] != "BPE" or (parts["normalizer"] or {"type": "NFC"})["type"] != "NFC" or len(levels) != 1 or levels[0]["add_prefix_space"] \
            or any(step["type"] not in ("ByteLevel", "Split", "Digits") for step in steps) \
            or any(step.get("behavior") == "Removed" for step in steps):
        return None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    found = [0] * (max(vocabulary.values()) + 1)
    for piece, number in vocabulary.items():
        found[number] = len(piece)
    for token in parts["added_tokens"]:
        found[token["id"]] = len(token["content"].encode())
    return found


def _steps(part, inner):
    """Returns the parts of a Sequence, or a part alone, as a list."""
    if part is None:
        return []
    return [step for each in part[inner] for step in _steps(each, inner)] if part["type"] == "Sequence" else [part]


def twin_of(backend, spellings):
    """Returns a copy of a tokenizer in which special tokens are spelled otherwise. Pieces of text are never merged into a special token,
    as in files that were converted from sentencepiece's."""
    from tokenizers import Tokenizer
    parts = json.loads(backend.to_str())
    for token in parts["added_tokens"]:
        token["content"] = spellings.get(token["content"], token["content"])
    model = parts["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {spellings.get(piece, piece): number for piece, number in vocabulary.items()}
    else:
        model["vocab"] = [[spellings.get(piece, piece), score] for piece, score in vocabulary]
    if "merges" in model:
        pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
        model["merges"] = [pair for pair in pairs if not {*pair, "".join(pair)} & spellings.keys()]
    if model.get("unk_token") is not None:
        model["unk_token"] = spellings.get(model["unk_token"], model["unk_token"])
    return Tokenizer.from_str(json.dumps(parts))
