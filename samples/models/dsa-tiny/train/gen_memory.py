"""T6 registers, T7 passages, T8 two hops: what a document says, as short parts of text that are tokenised one by one.

A part starts at a space, a line feed or a mark, so that the tokens of the parts are the tokens of the whole text."""
from dataclasses import dataclass, field

import numpy as np

REGISTER_HEADS = ("Here are some boxes.", "Remember what is in the boxes.", "Each box holds one number.", "These boxes change all the time.",
                  "Follow the boxes.", "Boxes:")
REGISTER_LINES = ("{b} = {v}", "{b} is {v}", "{b} has {v}", "{v} in {b}", "box {b} now {v}", "now {b} is {v}", "take {v} for {b}",
                  "change {b} to {v}", "{b} gets {v}")
REGISTER_CHECK = "{b} ? {v}"
REGISTER_QUESTIONS = ("What is in box {b}?", "What is in box {b} now?", "What does box {b} hold?", "What does box {b} hold now?",
                      "Which number is in box {b}?", "Tell me what is in box {b}.", "Box {b}?", "What is the number of box {b}?")
REGISTER_QUESTIONS_HELD_OUT = ("Can you tell me what is in box {b}?", "Which number does box {b} hold?")
REGISTER_ANSWER = "Box {b} holds {v}."
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

NOTE_HEADS = ("Here are some notes.", "Read these notes.", "Notes:", "These notes lie on the table.", "Keep these notes.", "Remember the notes.")
NOTE_QUESTIONS = ("Repeat note {n}.", "What does note {n} say?", "Read note {n} to me.", "Give me note {n} again.", "Tell me what note {n} says.",
                  "I need note {n}.", "Write down note {n}.", "Note {n}, please.")
NOTE_QUESTIONS_HELD_OUT = ("Can you repeat note {n}?", "Please read note {n} again.")
NOTE_LINKS = ("and", "or", "with", "without", "near", "behind", "under", "for", "then", "after", "before", "over", "from", "like", "beside")

HOP_HEADS = ("Read this text.", "Who has what, and who is where?", "Here is what happened today.", "Read about these people.",
             "Remember who has what.", "This is what they did.")
HOP_GIVE = ("{x} gave the {o} to {y}.", "{x} sold the {o} to {y}.", "{x} brought the {o} to {y}.", "{x} sent the {o} to {y}.",
            "From {x} the {o} went to {y}.", "{x} had the {o} and gave it to {y}.")
HOP_PLACE = ("{y} is in the {p}.", "{y} sits in the {p}.", "{y} waits in the {p}.", "{y} is now in the {p}.", "You will find {y} in the {p}.",
             "Today {y} is in the {p}.")
HOP_OTHER = ("{x} likes {f}.", "{x} saw {y}.", "{x} talked to {y}.", "{x} was {e} today.", "{x} came on {d}.", "{x} ate {f} with {y}.",
             "{x} heard {y}.", "{x} is older than {y}.", "{x} has {n} sisters.", "{x} came home on {d}.", "{x} knows {y}.", "{x} and {y} are friends.")
HOP_QUESTIONS = ("Where is the {o}?", "Where is the {o} now?", "Tell me where the {o} is.", "Where can I find the {o}?", "In which place is the {o}?",
                 "Do you know where the {o} is?", "I am looking for the {o}.", "Find the {o}.")
HOP_QUESTIONS_HELD_OUT = ("Can you tell me where the {o} is?", "Where did the {o} go?")
HOP_ANSWER = "The {o} is in the {p}."
HOP_BOTH = (("Who has the {o}, and where?", "Who has the {o} now, and where is it?", "With whom is the {o}, and where?",
             "Tell me who has the {o} and where."), "The {o} is with {y} in the {p}.")
HOP_BOTH_HELD_OUT = (("Can you tell me who has the {o}, and where?", "Who is it that has the {o}, and where?"), HOP_BOTH[1])
HOP_HOLDER = (("Who has the {o}?", "Who has the {o} now?", "Tell me who has the {o}."), "The {o} is with {y}.")
HOP_PERSON = (("Where is {y}?", "Where is {y} now?", "Tell me where {y} is."), "{y} is in the {p}.")
HOP_KINDS = ("place", "place", "place", "place", "both", "both", "holder", "person")
HOP_PLACES = ("kitchen barn tower church cave mill hall castle shop garden forest station theater palace stable tent field meadow valley harbor "
              "school park market farm village town house room camp zoo circus bank boat ship train bus library cellar attic bakery museum hut "
              "office hotel factory").split()


@dataclass
class Written:
    """A document in parts. `sources` has the place in `user` of each copied part of `answers`; a copied part has as many tokens there."""
    user: list
    weights: dict = field(default_factory=dict)  # number of a user part -> loss weight
    answers: list = field(default_factory=list)  # one list of parts for each answer
    sources: list = field(default_factory=list)  # of the same shape: number of a user part, or -1

    def text(self):
        """(user text, answer lines)"""
        return "".join(self.user), ["".join(parts) for parts in self.answers]


def split_template(template, values):
    """The parts of a sentence: words begin with their space, and every value is a part of its own."""
    parts = []
    for piece in template.replace("}", "{").split("{"):
        parts.append(piece)
    out, space = [], ""
    for number, piece in enumerate(parts):
        if number % 2:
            out.append(space + values[piece])
            space = ""
        else:
            space = " " if piece.endswith(" ") else ""
            if piece.rstrip(" "):
                out.append(piece.rstrip(" "))
    return out


def register_document(rng, assignments, questions, checks=0.0, held_out=False, boxes=8):
    """`checks`: share of lines that ask and answer at once, in the midst of the assignments; training only."""
    letters = [LETTERS[i] for i in rng.permutation(26)[:boxes]]
    count = max(assignments, boxes)
    which = rng.integers(0, boxes, count)
    which[:boxes] = rng.permutation(boxes)
    values = rng.integers(0, 10, count)
    wordings = rng.integers(0, len(REGISTER_LINES), count)
    if rng.random() < 0.3:
        wordings[:] = wordings[0]
    checked = rng.random(count) < checks
    asked_box = rng.integers(0, boxes, count)
    out = Written([REGISTER_HEADS[rng.integers(len(REGISTER_HEADS))]])
    held = [None] * boxes
    user, weights = out.user, out.weights
    for box, value, wording, check, other in zip(which.tolist(), values.tolist(), wordings.tolist(), checked.tolist(), asked_box.tolist()):
        held[box] = value
        user.append("\n" + REGISTER_LINES[wording].format(b=letters[box], v=value))
        if check and held[other] is not None:
            user.append(f"\n{letters[other]} ? ")
            weights[len(user)] = 1.0
            user.append(str(held[other]))
    user.append("\n")
    wordings = REGISTER_QUESTIONS_HELD_OUT if held_out else REGISTER_QUESTIONS
    question = wordings[rng.integers(len(wordings))]
    for box in rng.permutation(boxes)[:questions]:
        user.append("\n" + question.format(b=letters[box]))
        out.answers.append([REGISTER_ANSWER.format(b=letters[box], v=held[box])])
        out.sources.append([-1])
    return out


def note_words(words):
    """Words for notes, each one token with its space; kinds alternate so that a note reads like speech."""
    first = [" " + word for word in words["list_adjectives"] + words["needle_colors"][:9]]
    second = [" " + word for word in words["list_nouns"] + words["needle_objects"]]
    return first, second, [" " + word for word in NOTE_LINKS]


def passage_document(rng, vocabulary, context, questions, held_out=False):
    """Numbered notes of 20 to 40 tokens, in any order of the numbers, with about `context` tokens together."""
    first, second, links = vocabulary
    lengths = []
    left = context - 40 - 52 * questions
    while left > 50 or not lengths:
        lengths.append(int(rng.integers(7, 14)))
        left -= 3 * lengths[-1] + 8
    count = len(lengths)
    numbers = rng.permutation(count) + 1 if rng.random() < 0.5 else np.arange(1, count + 1)
    total = sum(lengths)
    choices = zip(rng.integers(0, len(first), total).tolist(), rng.integers(0, len(second), total).tolist(), rng.integers(0, len(links), total).tolist())
    out = Written([NOTE_HEADS[rng.integers(len(NOTE_HEADS))]])
    user, starts, notes = out.user, [], []
    for number, length in zip(numbers.tolist(), lengths):
        user.append(f"\nNote {number}:")
        starts.append(len(user))
        note = []
        for _ in range(length):
            one, two, link = next(choices)
            note += (first[one], second[two], links[link])
        note[-1] = "."
        notes.append(note)
        user += note
    user.append("\n")
    wordings = NOTE_QUESTIONS_HELD_OUT if held_out else NOTE_QUESTIONS
    question = wordings[rng.integers(len(wordings))]
    for chosen in rng.permutation(count)[:questions].tolist():
        user.append("\n" + question.format(n=numbers[chosen]))
        out.answers.append([f"Note {numbers[chosen]}:", *notes[chosen]])
        out.sources.append([-1, *range(starts[chosen], starts[chosen] + len(notes[chosen]))])
    return out


class HopWriter:
    def __init__(self, words):
        self.names = words["girls"] + words["boys"]
        self.objects = list(dict.fromkeys(words["needle_objects"] + words["things"]))
        self.words = words

    def _other(self, people, dice):
        """A sentence that answers no question."""
        words, size = self.words, len(people)
        x = dice[1] % size
        y = (x + 1 + dice[2] % (size - 1)) % size
        pick = lambda key: words[key][dice[3] % len(words[key])]
        template = HOP_OTHER[dice[0] % len(HOP_OTHER)]
        return ["\n" + template.format(x=people[x], y=people[y], f=pick("foods"), e=pick("feelings"), d=pick("days"), n=pick("numbers"))]

    def document(self, rng, context, questions, held_out=False, kind=None):
        """`kind`: "place" asks for two hops at once, "both" for the holder and then the place, "holder" and "person" for one hop; the default
        is a mixture in training and "place" in tests."""
        room = max(60, context - 40 - 21 * questions)
        people_count = int(min(len(self.names), max(3, rng.integers(3, 5 + room // 40))))
        object_count = int(min(len(self.objects), max(2, questions, rng.integers(2, 4 + room // 30))))
        people = [self.names[i] for i in rng.permutation(len(self.names))[:people_count]]
        objects = [self.objects[i] for i in rng.permutation(len(self.objects))[:object_count]]
        places = [HOP_PLACES[i] for i in rng.integers(0, len(HOP_PLACES), people_count)]
        holders = rng.integers(0, people_count, object_count)
        givers = (holders + rng.integers(1, people_count, object_count)) % people_count
        sentences = []  # (kind, number, parts)
        for i, place in enumerate(places):
            template = HOP_PLACE[rng.integers(len(HOP_PLACE))]
            sentences.append(("place", i, split_template("\n" + template, {"y": people[i], "p": place})))
        for i, thing in enumerate(objects):
            template = HOP_GIVE[rng.integers(len(HOP_GIVE))]
            sentences.append(("give", i, split_template("\n" + template, {"x": people[givers[i]], "y": people[holders[i]], "o": thing})))
        fill = max(0, (room - 9 * len(sentences)) // 7)
        sentences += [("other", 0, self._other(people, dice)) for dice in rng.integers(0, 1 << 30, (fill, 4)).tolist()]
        out = Written([HOP_HEADS[rng.integers(len(HOP_HEADS))]])
        user, at = out.user, {}
        for number in rng.permutation(len(sentences)).tolist():
            said, which, parts = sentences[number]
            word = " " + (places[which] if said == "place" else people[holders[which]] if said == "give" else "")
            if said != "other":  # the new owner is named last
                at[said, which] = len(user) + max(i for i, part in enumerate(parts) if part == word)
            user += parts
        user.append("\n")
        wordings = HOP_QUESTIONS_HELD_OUT if held_out else HOP_QUESTIONS
        kinds = {"place": ((wordings[rng.integers(len(wordings))],), HOP_ANSWER), "both": HOP_BOTH_HELD_OUT if held_out else HOP_BOTH,
                 "holder": HOP_HOLDER, "person": HOP_PERSON}
        for thing in rng.permutation(object_count)[:questions].tolist():
            holder = int(holders[thing])
            values = {"o": objects[thing], "y": people[holder], "p": places[holder]}
            asked = kind or ("place" if held_out else HOP_KINDS[rng.integers(len(HOP_KINDS))])
            wordings, answer = kinds[asked]
            source = {"place": {values["p"]: "place"}, "both": {values["y"]: "give", values["p"]: "place"}, "holder": {values["y"]: "give"},
                      "person": {values["p"]: "place"}}[asked]
            numbers = {"give": thing, "place": holder}
            user.append("\n" + wordings[rng.integers(len(wordings))].format(**values))
            parts = split_template(answer, values)
            out.answers.append(parts)
            out.sources.append([at[source[part[1:]], numbers[source[part[1:]]]] if part[1:] in source else -1 for part in parts])
        return out


class WrittenTokens:
    """Writes a document in parts as tokens. test_documents.py checks that the result equals the tokenised text."""

    def __init__(self, encoder):
        self.encode = encoder.encode
        self.cache = {}

    def _part(self, text):
        ids = self.cache.get(text)
        if ids is None:
            ids = self.cache[text] = self.encode(text)
        return ids

    def tokens(self, written):
        """(user tokens, user weights, answer tokens, place of the source of each answer token in the user tokens or -1)"""
        part = self._part
        parts = [part(text) for text in written.user]
        starts = np.cumsum([0] + [len(ids) for ids in parts])
        user = np.array([i for ids in parts for i in ids], np.int32)
        weights = np.zeros(len(user), np.float32)
        for number, weight in written.weights.items():
            weights[starts[number]:starts[number + 1]] = weight
        answer, source = [], []
        for i, (texts, places) in enumerate(zip(written.answers, written.sources)):
            if i:
                answer.append(part("\n")[0])
                source.append(-1)
            for text, place in zip(texts, places):
                ids = part(text)
                answer += ids
                source += [-1] * len(ids) if place < 0 else range(starts[place], starts[place] + len(ids))
        return user, weights, np.array(answer, np.int32), np.array(source, np.int64)
