"""Checks of the generators: python3 test_documents.py"""
import random
import re
import time

import numpy as np

import documents
import gen_retrieval
import gen_text
import oracles
from documents import TASKS

ODD_TEXTS = ("", " ", "  a  b ", "\ta\n\n\nb ", " \n ", "<|open|>message<|sep|>", "[BOS][EOS][PAD][UNK]<|media_pad|>", "fox \U0001f98a é 漢字 \r\n",
             "a\u00a0b\u200b", "12345 007", "x" * 300, "\x01\x7f", 'amber fox = 3907\n')


def test_round_trip(corpus):
    processor = corpus.encoder.processor
    for text in ODD_TEXTS:
        ids = corpus.encoder.encode(text)
        assert ids == processor.encode(text), text
        assert processor.decode(ids) == text, text
        assert not any(processor.is_control(i) or processor.is_unknown(i) for i in ids), text
    for i in range(processor.vocab_size()):
        piece = processor.id_to_piece(i)
        ordinary = not (processor.is_control(i) or processor.is_byte(i) or processor.is_unknown(i))
        assert not ordinary or len(piece) == 1 or not ("▁" in piece[1:] or "\n" in piece or any(map(str.isdigit, piece))), piece


def pieces_of(role, content):
    """A message as the specification writes it: marks and texts, in order."""
    open_tag = lambda tag, *attributes: ["<|open|>", tag, *(part for k, v in attributes for part in (" " + k, '="', v, '"')), "<|sep|>"]
    close_tag = lambda tag: ["<|close|>", tag, "<|sep|>"]
    end = close_tag("message") + ["<|end_of_msg|>"]
    response = lambda text: open_tag("response") + [text] + close_tag("response")
    if role == "assistant":
        return open_tag("message", ("role", role)) + response(content) + end
    if role == "thought":
        return open_tag("message", ("role", "assistant")) + open_tag("think") + [content[0]] + close_tag("think") + response(content[1]) + end
    if role == "call":
        call = open_tag("call", ("tool", content[0]), ("index", "1"))
        for key, value in content[1].items():
            call += open_tag("argument", ("key", key), ("type", "string")) + [value] + close_tag("argument")
        call = open_tag("tools") + call + close_tag("call") + close_tag("tools")
        return open_tag("message", ("role", "assistant")) + response("") + call + end
    if role == "result":
        return open_tag("message", ("role", "tool"), ("tool", content[0]), ("index", "1")) + [content[1]] + end
    if role in ("tools", "format"):
        kind = {"tools": "tool-declare", "format": "response-format"}[role]
        return open_tag("message", ("role", "system"), ("type", kind)) + [content] + end
    return open_tag("message", ("role", role)) + [content] + end


def expected_document(corpus, messages):
    """The chat format written out as the specification says, every content tokenised whole by SentencePiece."""
    processor = corpus.encoder.processor
    pieces = [piece for message in messages for piece in pieces_of(*message)]
    marks = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
    return [i for piece in pieces for i in ([processor.piece_to_id(piece)] if piece in marks else processor.encode(piece))]


def messages_of(corpus, task, seed, **size):
    if task in documents.MEAN_TOKENS:
        return documents.text_messages(corpus, task, seed)
    if task in ("T6", "T7", "T8"):
        text, lines = documents.written_document(corpus, task, seed, **size).text()
    else:
        plan = documents.retrieval_plan(corpus, task, seed, **size)
        text, lines = (gen_retrieval.list_text if task == "T5" else gen_retrieval.needle_text)(plan, corpus.words)
    return [("user", text), ("assistant", "\n".join(lines))]


def test_tokens_equal_text(corpus):
    for task in TASKS:
        for seed in range(1, 40):
            tokens, weight, gold = documents.document(corpus, task, seed)
            assert tokens.dtype == np.int32 and weight.dtype == np.float32 and gold.dtype == np.int32
            assert tokens.tolist() == expected_document(corpus, messages_of(corpus, task, seed)), (task, seed)
            again = documents.document(corpus, task, seed)
            assert all(np.array_equal(a, b) for a, b in zip((tokens, weight, gold), again))


def test_gold(corpus):
    digits = set(corpus.retrieval.digits.tolist())
    for task, size in (("T4", {"needles": 64, "context": 2048, "questions": 8}), ("T5", {"lines": 300, "questions": 8})):
        tokens, weight, gold = documents.document(corpus, task, 7, **size)
        places = np.flatnonzero(gold >= 0)
        assert len(places) == 32 and (gold[places] < places).all() and (tokens[gold[places]] == tokens[places]).all()
        assert all(int(t) in digits for t in tokens[places]) and (weight[places] == 1).all() and weight[0] == 0
        answer_digits = [i for i in np.flatnonzero(weight == 1) if int(tokens[i]) in digits]
        assert answer_digits == places.tolist()
        for first in places[::4]:
            source = gold[first]
            assert (tokens[first - 4:first] == tokens[source - 4:source]).all() and (gold[first:first + 4] == source + np.arange(4)).all()


def test_gold_of_parts(corpus):
    """T6 has no gold; in T7 and T8 every copied token is the token it is said to copy."""
    for seed in range(1, 40):
        for task in ("T6", "T7", "T8"):
            tokens, weight, gold = documents.document(corpus, task, seed)
            places = np.flatnonzero(gold >= 0)
            assert (gold[places] < places).all() and (tokens[gold[places]] == tokens[places]).all() and (weight[places] == 1).all()
            assert (len(places) > 0) == (task != "T6")


def test_oracles(corpus):
    """Every answer follows from the text before it."""
    for seed in (seed for seed in range(1, 300)):
        held_out = seed % 50 == 0
        for task, check in (("T6", oracles.registers), ("T7", oracles.passages), ("T8", oracles.hops)):
            check(*documents.written_document(corpus, task, seed, held_out).text())
        oracles.hops(*documents.written_document(corpus, "T8", seed, held_out, kind="both").text())
        oracles.tool(documents.text_messages(corpus, "T9", seed, held_out))
        oracles.json_answers(documents.text_messages(corpus, "T10", seed, held_out))


def test_scripts(corpus):
    for seed in range(1, 500):
        for question, answer, pattern in corpus.chat.script(random.Random(seed), seed % 2 == 0):
            assert pattern and pattern in answer and "{" not in question + answer, (question, answer, pattern)


def test_stories(corpus):
    """A plot keeps to its names, fills every slot and is never both trained on and held out."""
    names = set(corpus.words["girls"] + corpus.words["boys"])
    trained = {tuple(beat for beat, _ in plot.beats) for plot in corpus.teller.plots}
    assert not any(tuple(beat for beat, _ in plot.beats) in trained for plot in corpus.teller.held_out_plots)
    for seed in range(1, 2000):
        topic, story, asked = corpus.teller.plot_story(random.Random(seed), seed % 2 == 0)
        words = set(re.findall(r"\w+", story))
        assert all(name in words and name in topic for name in asked) and names & words == names & set(asked), (topic, story)
        assert not set("{}[]|~") & set(story), story


def test_thoughts(corpus):
    for seed in range(1, 500):
        _, (_, (trace, answer)) = gen_text.thought_messages(random.Random(seed))
        digits = [int(step.split(" = ")[1]) for step in trace.removesuffix(".").split(". ")]
        value = sum((digit if i + 1 == len(digits) else digit % 10) * 10**i for i, digit in enumerate(digits))
        assert f"= {value}." in answer and value == eval(answer.split(" = ")[0]), (trace, answer)


def test_sizes(corpus):
    for context in (512, 2048, 8192):
        for seed in range(1, 6):
            tokens, _, _ = documents.document(corpus, "T4", seed, context=context, needles=context // 32)
            assert context - 60 - 8 * 12 < len(tokens) <= context, (context, len(tokens))
    for task, room in (("T7", 128), ("T8", 128)):
        for context in (1024, 8192):
            lengths = [len(documents.document(corpus, task, seed, context=context, questions=4)[0]) for seed in range(1, 6)]
            assert context * 0.9 - room < min(lengths) and max(lengths) <= context, (task, context, lengths)
    assert len(documents.document(corpus, "T6", 1, assignments=800, questions=8, checks=0.0)[0]) < 6000


def test_held_out(corpus):
    for task in TASKS:
        documents.document(corpus, task, 50, held_out=True)
        for seed, held_out in ((50, False), (51, True)):
            try:
                documents.document(corpus, task, seed, held_out=held_out)
            except ValueError:
                continue
            raise AssertionError("seed rule not kept")


def test_packed(corpus):
    mixture = dict.fromkeys(TASKS, 0.1)
    tokens, weight, gold, number = documents.packed(corpus, mixture, 4096, np.random.default_rng(3))
    assert len(tokens) == len(weight) == len(gold) == len(number) == 4096
    places = np.flatnonzero(gold >= 0)
    assert (tokens[gold[places]] == tokens[places]).all() and (number[gold[places]] == number[places]).all()
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    assert (weight[starts] == 0).all() and (tokens[starts] == corpus.encoder.special("<|open|>")).all()


def report_speed(corpus):
    def rate(name, make, seconds=1.0):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            count += make()
        print(f"{name:32s}{count / (time.perf_counter() - begin) / 1e6:8.2f} M tokens/s")
    seeds = iter(seed for seed in range(1, 10**9) if seed % 50)
    for task in TASKS:
        rate(task, lambda: len(documents.document(corpus, task, next(seeds))[0]))
    rate("T4 8192", lambda: len(documents.document(corpus, "T4", next(seeds), needles=150, context=8192)[0]))
    rate("T5 1000 lines", lambda: len(documents.document(corpus, "T5", next(seeds), lines=1000)[0]))
    rng = np.random.default_rng(1)
    rate("packed 1024, all tasks", lambda: len(documents.packed(corpus, dict.fromkeys(TASKS, 0.1), 1024, rng)[0]))


def report_statistics(corpus):
    for task in TASKS:
        lengths, characters, tokens = [], 0, 0
        for seed in range(1, 200):
            if seed % 50:
                lengths.append(len(documents.document(corpus, task, seed)[0]))
                for message in messages_of(corpus, task, seed):
                    for text in pieces_of(*message):
                        characters, tokens = characters + len(text), tokens + len(corpus.encoder.encode(text))
        print(f"{task}: mean {np.mean(lengths):.0f} tokens a document ({min(lengths)} to {max(lengths)}),",
              f"{characters / tokens:.2f} characters a token")


if __name__ == "__main__":
    loaded = documents.load()
    for name, check in list(globals().items()):
        if name.startswith("test_"):
            check(loaded)
            print(name, "ok")
    report_statistics(loaded)
    report_speed(loaded)
