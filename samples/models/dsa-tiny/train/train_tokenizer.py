"""Trains ../tokenizer.model (SentencePiece BPE, 4,096 pieces) on our own text and writes ../tokenizer_config.json."""
import io
import json
import random
from pathlib import Path

import sentencepiece as spm

import gen_text

HERE = Path(__file__).resolve().parent
VOCAB_SIZE = 4096
CONTROL_PIECES = ["<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>"]
# Text of the chat format. Every entry has to become a single token.
FORMAT_PIECES = ["message", " role", '="', "user", "assistant", "system", "response", "think", '"', " name", " type", "tools", "tool", "call",
                 "argument", " key", " index", "string", "number", "boolean", "object", "array", "json", " tool", "code", "picture", "image"]


def chat_sentences(chat, generator):
    for name, kind in chat.fact_kinds.items():
        for values in chat.facts[name]:
            for question in generator.sample(kind.questions, 3):
                yield gen_text.fill(question, values)
            for _ in range(4):
                yield gen_text.fill(kind.answer, values)
    for kind in chat.talk_kinds.values():
        for question in kind.questions + [kind.answer] * 4:
            yield from [question] * 12


def key_sentences(words):
    """Each key word as often as a common word, at the start of a line and after a space."""
    for i in range(200):
        for word in words["list_adjectives"]:
            yield f"{word}\t = "
            if i < 40:
                yield f"\t {word}"
        for word in words["list_nouns"] + words["needle_colors"] + words["needle_objects"]:
            yield f"\t {word}\t"


def sentences():
    generator = random.Random(7)
    chat = gen_text.load_chat(HERE / "corpus", HERE / "data")
    teller, words = gen_text.load_teller(HERE / "corpus")
    for _ in range(3000):
        yield teller.story(generator)[1]
    for _ in range(300):
        for text in gen_text.arithmetic_messages(generator):
            yield from text[1].splitlines()
    yield from chat_sentences(chat, generator)
    yield from key_sentences(words)
    for piece in FORMAT_PIECES:
        yield from [f"\t{piece}\t"] * 2000
    for text in ("The code of the ", "What is the code of the ", " = ", "Be brief."):
        yield from [text] * 2000
    common = json.loads((HERE / "data" / "common_words.json").read_text(encoding="utf-8"))
    for word in common:
        yield from [f" {word}"] * 12
    printable = "".join(chr(code) for code in range(33, 127))
    yield from [" ".join(printable)] * 3


def train():
    model = io.BytesIO()
    lines = (line for text in sentences() for line in text.split("\t") if line)
    spm.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, model_type="bpe", vocab_size=VOCAB_SIZE, character_coverage=1.0,
        byte_fallback=True, split_digits=True, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, max_sentence_length=100000,
        unk_id=0, bos_id=1, eos_id=2, pad_id=3, unk_piece="[UNK]", bos_piece="[BOS]", eos_piece="[EOS]", pad_piece="[PAD]",
        control_symbols=CONTROL_PIECES, user_defined_symbols=["\n"], num_threads=2, minloglevel=2)
    (HERE.parent / "tokenizer.model").write_bytes(model.getvalue())
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def write_config(processor):
    names = {"bos": "[BOS]", "eos": "<|end_of_msg|>", "pad": "[PAD]", "unk": "[UNK]"}
    config = {"tokenizer_type": "sentencepiece", "chat_format": "kimi_k3"}
    config.update({f"{key}_token": piece for key, piece in names.items()})
    config.update({f"{key}_token_id": processor.piece_to_id(piece) for key, piece in names.items()})
    config["thinking"] = False
    config["vocab_size"] = processor.vocab_size()
    config["special_tokens"] = {processor.id_to_piece(i): i for i in range(processor.vocab_size())
                                if processor.is_control(i) or processor.is_unknown(i)}
    (HERE.parent / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_config(train())
