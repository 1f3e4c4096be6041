"""Training documents as tokens. See README.md for the interface."""
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece as spm

import gen_memory
import gen_retrieval
import gen_text
import gen_tools

TASKS = ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10")
TEST_SEED_STEP = 50
# Mean tokens of a document, only to turn shares of tokens into shares of documents.
MEAN_TOKENS = {"T1": 150, "T2": 165, "T3": 190, "T9": 460, "T10": 230}
SHORTEST_RETRIEVAL = 192
ANSWERING = ("assistant", "call", "thought")


class Encoder:
    """Tokenises text word by word with a cache. This is exact: no piece continues across a space or a line feed."""
    CHUNKS = re.compile(r"\n| *[^ \n]+| +")

    def __init__(self, model_file):
        self.processor = spm.SentencePieceProcessor(model_file=str(model_file))
        self.cache = {}

    def encode(self, text):
        cache, out = self.cache, []
        for chunk in self.CHUNKS.findall(text):
            ids = cache.get(chunk)
            if ids is None:
                ids = self.processor.encode(chunk)
                if len(cache) < 200_000:
                    cache[chunk] = ids
            out += ids
        return out

    def decode(self, ids):
        return self.processor.decode([int(i) for i in ids])

    def special(self, piece):
        return self.processor.piece_to_id(piece)


class ChatFormat:
    """The K3 chat format, tokenised piece by piece.

    Messages are (role, content). Roles besides system, user and assistant: "tools" and "format", the system messages that declare tools and
    a response format; "call", the assistant calls (tool, arguments), all of them strings; "result", (tool, text), the first result after a call;
    "thought", the assistant with thinking on, (reasoning, text)."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.marks = {name: encoder.special(f"<|{name}|>") for name in ("open", "close", "sep", "end_of_msg")}
        self.open = {role: self._open("message", role=role) for role in ("system", "user", "assistant")}
        self.open["tools"] = self._open("message", role="system", type="tool-declare")
        self.open["format"] = self._open("message", role="system", type="response-format")
        self.open["thought"] = self.open["assistant"] + self._open("think")
        self.open["assistant"] = self.open["assistant"] + self._open("response")
        self.open["call"] = self.open["assistant"]
        end = self._close("message") + [self.marks["end_of_msg"]]
        self.close = {role: end for role in ("system", "user", "tools", "format", "result")}
        self.close["assistant"] = self.close["thought"] = self._close("response") + end
        self.close["call"] = self._close("tools") + end

    def _open(self, tag, **attributes):
        piece = self.encoder.encode
        ids = [self.marks["open"], *piece(tag)]
        for key, value in attributes.items():
            ids += piece(" " + key) + piece('="') + piece(value.replace("&", "&amp;").replace('"', "&quot;")) + piece('"')
        return ids + [self.marks["sep"]]

    def _close(self, tag):
        return [self.marks["close"], *self.encoder.encode(tag), self.marks["sep"]]

    def parts(self, role, content):
        """(head, body, tail): the prompt ends behind the head of an answer; body and tail are what the model says."""
        encode = self.encoder.encode
        if role == "call":
            tool, arguments = content
            body = self._close("response") + self._open("tools") + self._open("call", tool=tool, index="1")
            for key, value in arguments.items():
                body += self._open("argument", key=key, type="string") + encode(value) + self._close("argument")
            return self.open[role], body + self._close("call"), self.close[role]
        if role == "result":
            return self._open("message", role="tool", tool=content[0], index="1"), encode(content[1]), self.close[role]
        if role == "thought":
            return self.open[role], encode(content[0]) + self._close("think") + self._open("response") + encode(content[1]), self.close[role]
        return self.open[role], encode(content), self.close[role]

    def prompt(self, messages, thinking=False):
        """Token ids up to the place where the model starts to answer."""
        ids = []
        for message in messages:
            for part in self.parts(*message):
                ids += part
        return ids + self.open["thought" if thinking else "assistant"]


SUM = re.compile(r"(\d+) \+ (\d+) = (\d+)\.")


@dataclass
class Corpus:
    encoder: Encoder
    chat_format: ChatFormat
    chat: gen_text.Chat
    teller: gen_text.StoryTeller
    words: dict
    retrieval: gen_retrieval.RetrievalTokens
    hops: gen_memory.HopWriter
    json_asker: gen_tools.JsonAsker
    note_words: tuple
    written: gen_memory.WrittenTokens
    story_weight: float = 0.3
    filler_weight: float = 0.3


def load(folder=None):
    """`folder`: the train folder; the tokenizer lies one level above it."""
    folder = Path(folder) if folder else Path(__file__).resolve().parent
    encoder = Encoder(folder.parent / "tokenizer.model")
    teller, words = gen_text.load_teller(folder / "corpus")
    chat = gen_text.load_chat(folder / "corpus", folder / "data")
    return Corpus(encoder, ChatFormat(encoder), chat, teller, words, gen_retrieval.RetrievalTokens(words, encoder), gen_memory.HopWriter(words),
                  gen_tools.JsonAsker(chat.facts), gen_memory.note_words(words), gen_memory.WrittenTokens(encoder))


def _chat_document(corpus, messages, answer_weight=1.0):
    tokens, weights, gold, results = [], [], [], {}
    for role, content in messages:
        head, body, tail = corpus.chat_format.parts(role, content)
        first = len(tokens) + len(head)
        tokens += head + body + tail
        answer = role in ANSWERING
        weights += [0.0] * len(head) + [answer_weight if answer else 0.0] * len(body) + [1.0 if answer else 0.0] * len(tail)
        gold += [-1] * (len(head) + len(body) + len(tail))
        carried = SUM.fullmatch(content) if role == "assistant" else None
        if carried:                     # a sum that goes on from an earlier one repeats its result
            at, n = results.get(carried[1]), len(carried[1])
            start = tokens.index(corpus.encoder.encode(carried[1])[-n], first)
            if at is not None and tokens[at:at + n] == tokens[start:start + n]:
                gold[start:start + n] = range(at, at + n)
            results[carried[3]] = first + len(body) - len(corpus.encoder.encode(".")) - len(carried[3])
    return np.array(tokens, np.int32), np.array(weights, np.float32), np.array(gold, np.int32)


def _retrieval_document(corpus, user, user_weights, answer, source):
    start, end = corpus.chat_format.open["user"], corpus.chat_format.close["user"]
    head, tail = corpus.chat_format.open["assistant"], corpus.chat_format.close["assistant"]
    tokens = np.concatenate([start, user, end, head, answer, tail]).astype(np.int32)
    weights, gold = np.zeros(len(tokens), np.float32), np.full(len(tokens), -1, np.int32)
    weights[len(start):len(start) + len(user)] = user_weights
    first = len(tokens) - len(tail) - len(answer)
    weights[first:] = 1.0
    gold[first:first + len(answer)] = np.where(source >= 0, source + len(start), -1)
    return tokens, weights, gold


def _log_uniform(rng, low, high):
    return int(round(math.exp(rng.uniform(math.log(low), math.log(max(low, high))))))


def list_plan(corpus, rng, lines=None, questions=None):
    lines = lines or _log_uniform(rng, 8, 400)
    questions = min(questions or int(rng.integers(1, 9)), lines)
    return gen_retrieval.list_plan(rng, corpus.words, lines, questions)


def needle_plan(corpus, rng, seed, needles=None, context=None, questions=None, held_out=False):
    context = context or _log_uniform(rng, 256, 4096)
    needles = needles or max(1, int(context * rng.uniform(0.08, 0.6) / gen_retrieval.NEEDLE_TOKENS))
    questions = min(questions or int(rng.integers(1, 9)), needles)
    frame_tokens = 40 + questions * 26
    return gen_retrieval.needle_plan(rng, random.Random(seed), corpus.words, corpus.teller, corpus.encoder, needles, context - frame_tokens,
                                     questions, held_out)


def _check_seed(seed, held_out):
    if (seed % TEST_SEED_STEP == 0) != held_out:
        raise ValueError(f"seed {seed}: seeds divisible by {TEST_SEED_STEP} are for tests (held_out=True) and only those")


def text_messages(corpus, task, seed, held_out=False):
    """Messages of a T1, T2, T3, T9 or T10 document."""
    rng = random.Random(f"{task} {seed}")
    if task == "T1":
        return corpus.chat.messages(rng, held_out)
    if task == "T2":
        return gen_text.story_messages(corpus.teller, rng, held_out)
    if task == "T9":
        return gen_tools.tool_messages(rng, held_out)
    if task == "T10":
        return corpus.json_asker.messages(rng, held_out)
    return gen_text.arithmetic_messages(rng, held_out)


def written_document(corpus, task, seed, held_out=False, **size):
    """A T6, T7 or T8 document in parts. Sizes: T6 assignments, questions, checks; T7 and T8 context, questions; T8 kind."""
    rng = np.random.default_rng([TASKS.index(task), seed])
    questions = size.pop("questions", None) or int(rng.integers(1, 9))
    if task == "T6":
        assignments = size.pop("assignments", None) or _log_uniform(rng, 16, 400)
        checks = size.pop("checks", None)
        if checks is None:
            checks = 0.0 if held_out or rng.random() < 0.4 else 0.15
        return gen_memory.register_document(rng, assignments, questions, checks, held_out, **size)
    context = size.pop("context", None) or _log_uniform(rng, 256, 4096)
    if task == "T7":
        return gen_memory.passage_document(rng, corpus.note_words, context, min(questions, max(1, context // 120)), held_out)
    return corpus.hops.document(rng, context, questions, held_out, **size)


def retrieval_plan(corpus, task, seed, held_out=False, **size):
    rng = np.random.default_rng([TASKS.index(task), seed])
    return list_plan(corpus, rng, **size) if task == "T5" else needle_plan(corpus, rng, seed, held_out=held_out, **size)


def document(corpus, task, seed, held_out=False, **size):
    """(tokens, weight, gold). T4: needles, context, questions; T5: lines, questions; T6 to T8: see written_document."""
    _check_seed(seed, held_out)
    if task in MEAN_TOKENS:
        return _chat_document(corpus, text_messages(corpus, task, seed, held_out), corpus.story_weight if task == "T2" else 1.0)
    if task in ("T6", "T7", "T8"):
        return _retrieval_document(corpus, *corpus.written.tokens(written_document(corpus, task, seed, held_out, **size)))
    plan = retrieval_plan(corpus, task, seed, held_out, **size)
    written = corpus.retrieval.list_tokens(plan) if task == "T5" else corpus.retrieval.needle_tokens(plan, corpus.filler_weight)
    return _retrieval_document(corpus, *written)


def _size_for(task, budget, rng, given):
    """Size arguments for a T4 to T8 document of about `budget` tokens; `given` ones win."""
    if task == "T6":
        return {"assignments": max(8, (budget - 120) // 8), **given}
    if task != "T5":
        return {"context": budget, **given}
    questions = given.get("questions") or int(rng.integers(1, 9))
    lines = max(4, (budget - 60 - 12 * questions) // gen_retrieval.LIST_TOKENS_PER_LINE)
    return {"lines": lines, "questions": questions, **given}


def _normalised(mixture, length):
    """[(task, chance per document, size)] from {task: share} or {task: (share, size)}."""
    longest = max(SHORTEST_RETRIEVAL + 1, length)
    retrieval_mean = 0.8 * (longest - SHORTEST_RETRIEVAL) / math.log(longest / SHORTEST_RETRIEVAL)
    entries = []
    for task, value in mixture.items():
        share, size = value if isinstance(value, tuple) else (value, {})
        fixed = size.get("context") or size.get("lines", 0) * gen_retrieval.LIST_TOKENS_PER_LINE or size.get("assignments", 0) * 8
        entries.append((task, share / (MEAN_TOKENS.get(task) or fixed or retrieval_mean), size))
    total = sum(chance for _, chance, _ in entries)
    return [(task, chance / total, size) for task, chance, size in entries]


def _next_document(corpus, entries, length, left, rng):
    chances = [chance for _, chance, _ in entries]
    task, _, size = entries[int(rng.choice(len(entries), p=chances))]
    short = [entry for entry in entries if entry[0] in MEAN_TOKENS]
    if task not in MEAN_TOKENS and left < SHORTEST_RETRIEVAL and short:
        task, _, size = short[int(rng.integers(len(short)))]
    seed = int(rng.integers(1, 2**40))
    seed += seed % TEST_SEED_STEP == 0
    if task not in MEAN_TOKENS:
        if not {"context", "lines", "assignments"} & size.keys():
            budget = min(_log_uniform(rng, SHORTEST_RETRIEVAL, length), max(left, SHORTEST_RETRIEVAL))
            size = _size_for(task, budget, rng, size)
    return document(corpus, task, seed, **size)


def packed(corpus, mixture, length, rng):
    """Exactly `length` tokens of several documents, the last one cut: (tokens, weight, gold, doc).

    `mixture`: {task: share of tokens} or {task: (share, size arguments)}. `rng`: numpy Generator. gold counts from the start of the
    whole array; doc numbers the documents from 0."""
    entries = _normalised(mixture, length)
    parts, filled = [], 0
    while filled < length:
        tokens, weight, gold = _next_document(corpus, entries, length, length - filled, rng)
        weight[0] = 0.0
        parts.append((tokens, weight, np.where(gold >= 0, gold + filled, -1), np.full(len(tokens), len(parts), np.int32)))
        filled += len(tokens)
    tokens, weight, gold, number = (np.concatenate(columns)[:length] for columns in zip(*parts))
    return tokens, weight, gold.astype(np.int32), number
