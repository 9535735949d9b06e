"""Folders of four small tokenizers with chat templates of the forms of ChatML, Qwen3, Llama 3 and Mistral, and what each makes of a
conversation, told without the template: pieces of text between special tokens."""

import json
from collections import namedtuple
from pathlib import Path

CHATML = """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

GENERATION = """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{ message['content'] + '<|im_end|>' }}{%- endgeneration -%}
{%- else -%}{{ message['content'] + '<|im_end|>' }}{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

# An earlier answer loses its reasoning; the last one has a place for it, empty or not.
QWEN3 = """{%- set state = namespace(question=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set state.question = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for message in messages -%}
{%- set content = message.content -%}
{%- set thought = '' -%}
{%- if message.role == 'assistant' and '</think>' in content -%}
{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.index0 > state.question and (loop.last or thought) -%}
{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
{%- endif -%}
{{ content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

LLAMA3 = """{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"""

MISTRAL = """{%- set system = messages[0]['content'] if messages[0]['role'] == 'system' else none -%}
{%- set turns = messages if system is none else messages[1:] -%}
{{- bos_token -}}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('user and assistant must take turns') }}{%- endif -%}
{%- if message['role'] == 'user' -%}
{{ '[INST] ' + (system + '\\n\\n' if system is not none and loop.first else '') + message['content'] + '[/INST]' }}
{%- else -%}{{ ' ' + message['content'] + eos_token }}{%- endif -%}
{%- endfor -%}"""

# The text of every turn says how many follow, so that no turn's text is a prefix.
COUNTED = CHATML.replace("message['role'] + '\\n'", "message['role'] + messages | length | string + '\\n'")

Special = namedtuple("Special", "spelling target")
Piece = namedtuple("Piece", "text target")


def chatml(turns):
    for role, content in turns:
        spoken = role == "assistant"
        yield from (Special("<|im_start|>", False), Piece(role + "\n", False), Piece(content, spoken), Special("<|im_end|>", spoken),
                    Piece("\n", False))


def qwen3(turns):
    questions = [number for number, (role, _) in enumerate(turns) if role == "user"]
    for number, (role, content) in enumerate(turns):
        spoken = role == "assistant"
        yield from (Special("<|im_start|>", False), Piece(role + "\n", False))
        thought, closed, answer = content.rpartition("</think>\n\n") if spoken else ("", "", content)
        if spoken and number > questions[-1] and (number == len(turns) - 1 or closed):
            yield from (Special("<think>", True), Piece("\n" + thought.replace("<think>\n", "").rstrip("\n") + "\n", True),
                        Special("</think>", True), Piece("\n\n", True))
        yield from (Piece(answer, spoken), Special("<|im_end|>", spoken), Piece("\n", False))


def llama3(turns):
    yield Special("<|begin_of_text|>", False)
    for role, content in turns:
        spoken = role == "assistant"
        yield from (Special("<|start_header_id|>", False), Piece(role, False), Special("<|end_header_id|>", False), Piece("\n\n", False),
                    Piece(content.strip(), spoken), Special("<|eot_id|>", spoken))


def mistral(turns):
    yield Special("<s>", False)
    system = turns[0][1] + "\n\n" if turns[0][0] == "system" else ""
    for number, (role, content) in enumerate(turns[1:] if system else turns):
        if role == "user":
            text = " " + (system if number == 0 else "") + content
            yield from (Special("[INST]", False), Piece(text, False), Special("[/INST]", False))
        else:
            yield from (Piece(" " + content, True), Special("</s>", True))


Form = namedtuple("Form", "template specials words bos eos pieces")
QWEN_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FORMS = {
    "chatml": Form(CHATML, QWEN_SPECIALS, [], None, "<|im_end|>", chatml),
    "generation": Form(GENERATION, QWEN_SPECIALS, [], None, "<|im_end|>", chatml),
    "qwen3": Form(QWEN3, QWEN_SPECIALS, ["<think>", "</think>"], None, "<|im_end|>", qwen3),
    "llama3": Form(LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], [],
                   "<|begin_of_text|>", "<|eot_id|>", llama3),
    "mistral": Form(MISTRAL, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], [], "<s>", "</s>", mistral),
}


def learned(name, texts, vocabulary):
    """Returns a tokenizer without special tokens: pieces as sentencepiece has them for "mistral", else bytes. Lines may begin with anything,
    so pieces of a text can be encoded one by one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    if name == "mistral":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
        tokenizer.decoder = decoders.Metaspace()
        first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=vocabulary + 100, special_tokens=first, show_progress=False, initial_alphabet=["<", "/", "s", ">"])
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    parts = json.loads(tokenizer.to_str())
    parts["added_tokens"] = []  # of the pieces that the trainer was given the bytes are ordinary
    return Tokenizer.from_str(json.dumps(parts))


def spelling_its_end(tokenizer, merged):
    """Returns a copy with the pieces of `</s>`, which are merged into it in many files that were converted from sentencepiece's."""
    from tokenizers import Tokenizer
    parts = json.loads(tokenizer.to_str())
    model = parts["model"]
    for piece in ("</", "s>"):
        model["vocab"].setdefault(piece, len(model["vocab"]))
    model["merges"] = [["<", "/"], ["s", ">"], *([["</", "s>"]] if merged else []), *model["merges"]]
    return Tokenizer.from_str(json.dumps(parts))


def write_folder(folder, name, texts, template=None, vocabulary=600):
    """Writes tokenizer.json and tokenizer_config.json of a form. Returns the tokenizer without special tokens, and their ids."""
    from tokenizers import AddedToken, Tokenizer, processors
    form = FORMS[name]
    plain = learned(name, texts, vocabulary)
    whole = Tokenizer.from_str(plain.to_str())
    if name == "mistral":
        from tokenizers import pre_tokenizers
        plain, whole = spelling_its_end(plain, merged=False), spelling_its_end(plain, merged=True)
        whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    whole.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in form.specials])
    whole.add_tokens([AddedToken(each, special=False, normalized=False) for each in form.words])
    if form.bos:
        whole.post_processor = processors.TemplateProcessing(single=f"{form.bos} $A", special_tokens=[(form.bos, whole.token_to_id(form.bos))])
    Path(folder).mkdir()
    whole.save(str(Path(folder, "tokenizer.json")))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": form.bos, "eos_token": form.eos, "chat_template": template or form.template,
              "clean_up_tokenization_spaces": False}
    Path(folder, "tokenizer_config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}), encoding="utf-8")
    return plain, {each: whole.token_to_id(each) for each in form.specials + form.words}


def expected(pieces, plain, ids):
    """Returns the ids of pieces between special tokens, and a list with 1 for each token that is a target. Pieces that follow one another are
    encoded together; those are no targets before some that are, and their tokens must not run into one another."""
    tokens, targets, text, learned_from = [], [], "", None

    def flush():
        nonlocal text, learned_from
        found = plain.encode(text).ids if text else []
        before = len(found) if learned_from is None else len(plain.encode(text[:learned_from]).ids) if learned_from else 0
        assert found[:before] == (plain.encode(text[:before and learned_from]).ids if before and learned_from else found[:before])
        tokens.extend(found)
        targets.extend([0] * before + [1] * (len(found) - before))
        text, learned_from = "", None

    for piece in pieces:
        if isinstance(piece, Special):
            flush()
            tokens.append(ids[piece.spelling])
            targets.append(int(piece.target))
            continue
        if piece.target and learned_from is None:
            learned_from = len(text)
        assert piece.target or learned_from is None
        text += piece.text
    flush()
    return tokens, targets
