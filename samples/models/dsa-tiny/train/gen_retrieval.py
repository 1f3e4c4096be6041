"""T4 needles and T5 lists. A plan says what a document contains; it can be written out as text or, much faster, as tokens."""
import re
from dataclasses import dataclass

import numpy as np

NEEDLE = "The code of the {} is {}."
NEEDLE_HEADS = ("Read this text.", "Here is a long text.", "Read the text and remember the codes.", "There are some codes in this text.")
NEEDLE_QUESTIONS = ("What is the code of the {}?", "Tell me the code of the {}.", "Find the code of the {}.", "Give me the code of the {}.")
LIST_HEADS = ("Here is a list.", "Read this list.", "Look at this list.", "List:", "Numbers:", "Remember these numbers.")
LIST_QUESTIONS = ("Give me the numbers of these:", "What are the numbers of these?", "Find these in the list:", "Give me these lines again:",
                  "Which numbers belong to these?", "Find the numbers:")
LIST_TOKENS_PER_LINE = 9
NEEDLE_TOKENS = 13
SENTENCE_BORDER = re.compile(r"(?<=[.!?\"]) (?=[A-Z\"])")


@dataclass
class ListPlan:
    head: str
    question: str
    adjectives: np.ndarray  # word number of each line
    nouns: np.ndarray
    digits: np.ndarray  # [lines, 4]
    asked: np.ndarray  # line numbers


@dataclass
class NeedlePlan:
    head: str
    question: str
    paragraphs: list  # list of lists of sentences; the first sentence is the head
    places: np.ndarray  # needle i stands after sentence number places[i]; ascending
    colors: np.ndarray
    objects: np.ndarray
    digits: np.ndarray
    asked: np.ndarray


def distinct_keys(rng, count, left_size, right_size, grid=None):
    """`count` different (left, right) pairs; with `grid` (columns, rows) all from so many words, which makes near misses."""
    columns, rows = grid or (left_size, right_size)
    left = rng.permutation(left_size)[:columns]
    right = rng.permutation(right_size)[:rows]
    chosen = rng.permutation(len(left) * len(right))[:count]
    return left[chosen // len(right)], right[chosen % len(right)]


def tight_grid(count, left_size, right_size, slack=1.5):
    """A grid with about `slack` times as many keys as wanted."""
    columns = min(left_size, max(2, round((count * slack * left_size / right_size) ** 0.5)))
    rows = min(right_size, -(-round(count * slack) // columns))
    while columns * rows < count:
        columns, rows = min(left_size, columns + 1), min(right_size, rows + 1)
    return columns, rows


def list_plan(rng, words, lines, questions):
    left_size, right_size = len(words["list_adjectives"]), len(words["list_nouns"])
    lines = min(lines, left_size * right_size)
    grid = tight_grid(lines, left_size, right_size) if rng.random() < 0.5 else None
    adjectives, nouns = distinct_keys(rng, lines, left_size, right_size, grid)
    return ListPlan(LIST_HEADS[rng.integers(len(LIST_HEADS))], LIST_QUESTIONS[rng.integers(len(LIST_QUESTIONS))], adjectives, nouns,
                    rng.integers(0, 10, (lines, 4)), rng.permutation(lines)[:questions])


def code(digits):
    return "".join(map(str, digits))


def list_text(plan, words):
    """(user text, answer lines)"""
    keys = [f"{words['list_adjectives'][a]} {words['list_nouns'][n]}" for a, n in zip(plan.adjectives, plan.nouns)]
    lines = [f"{key} = {code(digits)}" for key, digits in zip(keys, plan.digits)]
    text = "\n".join([plan.head, *lines, "", plan.question, *(keys[i] for i in plan.asked)])
    return text, [lines[i] for i in plan.asked]


def filler(teller, encoder, random_source, tokens, held_out=False):
    """Stories as paragraphs of sentences with about, and at most, `tokens` tokens. Held-out text: a tenth from held-out frames."""
    paragraphs, left = [], tokens
    while left > 0:
        sentences = []
        unseen = held_out and random_source.random() < 0.1
        for sentence in SENTENCE_BORDER.split(teller.story(random_source, unseen)[1]):
            left -= len(encoder.encode(" " + sentence if sentences else sentence)) + (not sentences)
            if left < 0:
                break
            sentences.append(sentence)
        if sentences:
            paragraphs.append(sentences)
    return paragraphs


def needle_plan(rng, random_source, words, teller, encoder, needles, tokens, questions, held_out=False):
    """`tokens`: length of the user text without the questions, as a target."""
    left_size, right_size = len(words["needle_colors"]), len(words["needle_objects"])
    needles = min(needles, left_size * right_size)
    colors, objects = distinct_keys(rng, needles, left_size, right_size, tight_grid(needles, left_size, right_size))
    head = NEEDLE_HEADS[rng.integers(len(NEEDLE_HEADS))]
    paragraphs = filler(teller, encoder, random_source, tokens - NEEDLE_TOKENS * needles - 10, held_out)
    paragraphs = [[head]] + paragraphs
    places = np.sort(rng.integers(0, sum(map(len, paragraphs)), needles))
    return NeedlePlan(head, NEEDLE_QUESTIONS[rng.integers(len(NEEDLE_QUESTIONS))], paragraphs, places, colors, objects,
                      rng.integers(0, 10, (needles, 4)), rng.permutation(needles)[:questions])


def needle_names(plan, words):
    return [f"{words['needle_colors'][c]} {words['needle_objects'][o]}" for c, o in zip(plan.colors, plan.objects)]


def needle_text(plan, words):
    """(user text, answer lines)"""
    names = needle_names(plan, words)
    needles = [NEEDLE.format(name, code(digits)) for name, digits in zip(names, plan.digits)]
    out, number, following = [], 0, 0
    for paragraph in plan.paragraphs:
        sentences = []
        for sentence in paragraph:
            sentences.append(sentence)
            while following < len(needles) and plan.places[following] == number:
                sentences.append(needles[following])
                following += 1
            number += 1
        out.append(" ".join(sentences))
    text = "\n".join(out + [""] + [plan.question.format(names[i]) for i in plan.asked])
    return text, [needles[i] for i in plan.asked]


class RetrievalTokens:
    """Writes plans as token arrays. test_documents.py checks that the result equals the tokenised text."""

    def __init__(self, words, encoder):
        self.words, self.encoder = words, encoder
        single = lambda prefix, key: np.array([self._single(prefix + word) for word in words[key]], np.int32)
        self.adjectives, self.nouns = single("", "list_adjectives"), single(" ", "list_nouns")
        self.colors, self.objects = single(" ", "needle_colors"), single(" ", "needle_objects")
        self.digits = np.array([self._single(str(i)) for i in range(10)], np.int32)
        self.newline, self.equals, self.space = self._single("\n"), self._single(" ="), self._single(" ")
        self.needle_start = encoder.encode(" The code of the")
        self.needle_answer_start = encoder.encode("The code of the")
        self.needle_middle, self.stop = [self._single(" is"), self.space], self._single(".")

    def _single(self, text):
        ids = self.encoder.encode(text)
        if len(ids) != 1:
            raise ValueError(f"{text!r} is not one token")
        return ids[0]

    def _lines(self, plan, chosen):
        lines = np.empty((len(chosen), LIST_TOKENS_PER_LINE), np.int32)
        lines[:, 0] = self.adjectives[plan.adjectives[chosen]]
        lines[:, 1] = self.nouns[plan.nouns[chosen]]
        lines[:, 2], lines[:, 3], lines[:, 8] = self.equals, self.space, self.newline
        lines[:, 4:8] = self.digits[plan.digits[chosen]]
        return lines

    def list_tokens(self, plan):
        """(user tokens, user weights, answer tokens, place of the source of each answer token in the user tokens or -1)"""
        head = np.array(self.encoder.encode(plan.head + "\n"), np.int32)
        lines = self._lines(plan, np.arange(len(plan.adjectives)))
        answer = self._lines(plan, plan.asked)
        question = np.array(self.encoder.encode("\n" + plan.question + "\n"), np.int32)
        keys = answer[:, [0, 1, 8]].reshape(-1)[:-1]
        user = np.concatenate([head, lines.reshape(-1), question, keys])
        source = np.full(answer.shape, -1, np.int32)
        source[:, 4:8] = len(head) + plan.asked[:, None] * LIST_TOKENS_PER_LINE + np.arange(4, 8)
        return user, np.zeros(len(user), np.float32), answer.reshape(-1)[:-1], source.reshape(-1)[:-1]

    def _needles(self, plan, chosen, start):
        count, width = len(chosen), len(start)
        needles = np.empty((count, width + 9), np.int32)
        needles[:, :width] = start
        needles[:, width] = self.colors[plan.colors[chosen]]
        needles[:, width + 1] = self.objects[plan.objects[chosen]]
        needles[:, width + 2:width + 4] = self.needle_middle
        needles[:, width + 4:width + 8] = self.digits[plan.digits[chosen]]
        needles[:, width + 8] = self.stop
        return needles

    def needle_tokens(self, plan, filler_weight):
        """As list_tokens; filler sentences have weight `filler_weight`, except the head."""
        count = len(plan.colors)
        needles = self._needles(plan, np.arange(count), self.needle_start)
        parts, weights = [], []
        starts = np.empty(count, np.int32)
        length, number, following, encode = 0, 0, 0, self.encoder.encode
        places = plan.places.tolist() + [-1]
        for i, paragraph in enumerate(plan.paragraphs):
            for j, sentence in enumerate(paragraph):
                ids = encode(" " + sentence if j else "\n" + sentence if i else sentence)
                parts.append(ids)
                weights.append((filler_weight if i else 0.0, len(ids)))
                length += len(ids)
                while places[following] == number:
                    starts[following] = length
                    parts.append(needles[following])
                    weights.append((0.0, NEEDLE_TOKENS))
                    length += NEEDLE_TOKENS
                    following += 1
                number += 1
        names = needle_names(plan, self.words)
        questions = encode("".join("\n" + plan.question.format(names[i]) for i in plan.asked))
        parts += [[self.newline], questions]
        weights.append((0.0, 1 + len(questions)))
        user = np.concatenate(parts).astype(np.int32)
        user_weights = np.repeat(np.array([w for w, _ in weights], np.float32), [n for _, n in weights])
        return user, user_weights, *self._needle_answer(plan, starts)

    def _needle_answer(self, plan, starts):
        count, width = len(plan.asked), len(self.needle_answer_start)
        answer = np.full((count, width + 10), self.newline, np.int32)
        answer[:, :-1] = self._needles(plan, plan.asked, self.needle_answer_start)
        source = np.full(answer.shape, -1, np.int32)
        source[:, width + 4:width + 8] = starts[plan.asked][:, None] + len(self.needle_start) + 4 + np.arange(4)
        return answer.reshape(-1)[:-1], source.reshape(-1)[:-1]
