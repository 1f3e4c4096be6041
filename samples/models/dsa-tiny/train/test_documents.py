"""Checks of the generators: python3 test_documents.py"""
import time

import numpy as np

import documents
import gen_retrieval
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


def expected_document(corpus, messages):
    """The chat format written out as the specification says, every content tokenised whole by SentencePiece."""
    processor = corpus.encoder.processor
    mark, ids = processor.piece_to_id, []
    for role, text in messages:
        for piece in ("<|open|>", "message", " role", '="', role, '"', "<|sep|>"):
            ids += [mark(piece)] if piece.startswith("<|") else processor.encode(piece)
        inner = ("<|open|>", "response", "<|sep|>") if role == "assistant" else ()
        for piece in inner:
            ids += [mark(piece)] if piece.startswith("<|") else processor.encode(piece)
        ids += processor.encode(text)
        outer = ("<|close|>", "response", "<|sep|>") if role == "assistant" else ()
        for piece in (*outer, "<|close|>", "message", "<|sep|>", "<|end_of_msg|>"):
            ids += [mark(piece)] if piece.startswith("<|") else processor.encode(piece)
    return ids


def messages_of(corpus, task, seed, **size):
    if task in documents.MEAN_TOKENS:
        return documents.text_messages(corpus, task, seed)
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


def test_sizes(corpus):
    for context in (512, 2048, 8192):
        for seed in range(1, 6):
            tokens, _, _ = documents.document(corpus, "T4", seed, context=context, needles=context // 32)
            assert context - 60 - 8 * 12 < len(tokens) <= context, (context, len(tokens))


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
    mixture = {"T1": 0.3, "T2": 0.2, "T3": 0.2, "T4": 0.1, "T5": 0.2}
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
    for task in ("T1", "T2", "T3", "T4", "T5"):
        rate(task, lambda: len(documents.document(corpus, task, next(seeds))[0]))
    rate("T4 8192", lambda: len(documents.document(corpus, "T4", next(seeds), needles=150, context=8192)[0]))
    rate("T5 1000 lines", lambda: len(documents.document(corpus, "T5", next(seeds), lines=1000)[0]))
    rng = np.random.default_rng(1)
    rate("packed 1024, all tasks", lambda: len(documents.packed(corpus, dict.fromkeys(TASKS, 0.2), 1024, rng)[0]))


def report_statistics(corpus):
    for task in TASKS:
        lengths, characters, tokens = [], 0, 0
        for seed in range(1, 200):
            if seed % 50:
                lengths.append(len(documents.document(corpus, task, seed)[0]))
                for _, text in messages_of(corpus, task, seed):
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
