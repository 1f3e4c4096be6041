"""T1 chat and facts, T2 stories, T3 arithmetic: text of one document as a list of messages."""
import json
import re
from dataclasses import dataclass, field

SYSTEM_TEXTS = ("Be brief.", "You are Dsa Tiny.", "You are a helpful assistant.", "Answer in one sentence.", "Be kind.",
                "Answer the questions of the user.")
OPENERS = ("", "", "", "", "", "", "", "Hello. ", "Hi! ", "Please help me. ", "I have a question. ", "Next question: ", "Good. ")
GREETINGS = ("hello", "morning", "evening", "how")
FAREWELLS = ("bye", "night", "thanks")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth")
# Share of questions for each kind; roughly by number of facts, small kinds a little more.
FACT_SHARES = {"capitals": 22, "continents": 9, "definitions": 27, "opposites": 14, "young": 6, "colors": 7, "plurals": 6, "sounds": 2,
               "legs": 2, "homes": 3, "workers": 3, "quantities": 2, "after": 5, "before": 5, "ordinals": 3, "unknown": 3}


def with_article(word):
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def capitalised(text):
    return text[0].upper() + text[1:]


def fill(template, values):
    """Replaces {x}, {X}, {a x}, {A x} and so on by the entries of `values`."""
    def replace(match):
        article, key = match.group(1), match.group(2)
        value = values.get(key) or values[key.lower()]
        if article:
            value = with_article(value)
        return capitalised(value) if article == "A " or (not article and key not in values) else value
    return re.sub(r"\{([aA] )?(\w+)\}", replace, template)


@dataclass
class Kind:
    answer: str = ""
    questions: list = field(default_factory=list)
    held_out: list = field(default_factory=list)


def read_kinds(path):
    kinds, current = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = kinds[line.strip("[]")] = Kind()
        elif line.startswith("A: "):
            current.answer = line[3:]
        elif line.startswith("Q: "):
            current.questions.append(line[3:])
        elif line.startswith("H: "):
            current.held_out.append(line[3:])
    return kinds


def read_sections(path):
    sections, current = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            current.append(line)
    return sections


def pairs_of(lines, separator):
    return [tuple(part.strip() for part in entry.split(separator)) for line in lines for entry in line.split(";")]


def sequence_facts(lines):
    """Facts about what comes before and after, and about "the third month of the year"."""
    kinds = ("month", "day", "season", "letter")
    wholes = ("year", "week", "year", "alphabet")
    facts = {"after": [], "before": [], "ordinals": []}
    for line, kind, whole in zip(lines, kinds, wholes):
        items = [item.strip() for item in line.split(",")]
        circular = kind != "letter"
        for i, item in enumerate(items):
            following = items[(i + 1) % len(items)]
            if circular or i + 1 < len(items):
                facts["after"].append({"x": item, "y": capitalised(following), "kind": kind})
                facts["before"].append({"x": following, "y": capitalised(item), "kind": kind})
            if kind != "season" and i < len(ORDINALS):
                facts["ordinals"].append({"x": f"the {ORDINALS[i]} {kind} of the {whole}", "y": item})
    return facts


def read_facts(corpus_folder, data_folder):
    """kind -> list of slot values ({"x": .., "y": ..})."""
    sections = read_sections(corpus_folder / "facts.txt")
    facts = {kind: [{"x": x, "y": y} for x, y in pairs_of(lines, " = ")]
             for kind, lines in sections.items() if kind not in ("opposites", "sequences")}
    opposites = {}
    for left, right in pairs_of(sections["opposites"], " / "):
        opposites.setdefault(left, right)
        opposites.setdefault(right, left)
    facts["opposites"] = [{"x": x, "y": y} for x, y in opposites.items()]
    facts.update(sequence_facts(sections["sequences"]))
    countries = json.loads((data_folder / "countries.json").read_text(encoding="utf-8"))
    facts["capitals"] = [{"x": name, "y": capital} for name, capital, _ in countries]
    facts["continents"] = [{"x": name, "y": continent} for name, _, continent in countries]
    unknown = (corpus_folder / "unknown.txt").read_text(encoding="utf-8").splitlines()
    facts["unknown"] = [{"x": text, "y": ""} for text in unknown if text]
    return facts


@dataclass
class Frame:
    topics: list
    text: str
    held_out: bool


def read_frames(path):
    frames = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            head = lines[0].lstrip("!@ ")
            frames.append(Frame([topic.strip() for topic in head.split("|")], " ".join(lines[1:]), lines[0].startswith("!")))
    return frames


@dataclass
class Plot:
    beats: list  # (kind, whether it may be left out)
    held_out: bool
    has_thing: bool


def read_plots(path):
    plots = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            beats = [(beat.rstrip("?"), beat.endswith("?")) for beat in line.lstrip("!").split()]
            plots.append(Plot(beats, line.startswith("!"), any(beat in ("have", "wish", "find_thing") for beat, _ in beats)))
    return plots


SLOT_LISTS = {"animal": "animals", "walker": "walkers", "place": "places", "thing": "things", "food": "foods", "color": "colors",
              "weather": "weather", "feeling": "feelings", "trait": "traits", "season": "seasons", "day": "days", "number": "numbers"}
PRONOUNS = {"girl": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
            "boy": {"he": "he", "him": "him", "his": "his", "himself": "himself"}}


class StoryTeller:
    """Fills story frames. Every slot keeps its value through the story."""

    def __init__(self, frames, beats, plots, words):
        self.words = words
        self.beats = {kind: [self._compile(line) for line in lines] for kind, lines in beats.items()}
        self.plots = [plot for plot in plots if not plot.held_out]
        self.held_out_plots = [plot for plot in plots if plot.held_out]
        self.frames = [(frame, self._compile(frame.text)) for frame in frames if not frame.held_out]
        self.held_out = [(frame, self._compile(frame.text)) for frame in frames if frame.held_out]

    @staticmethod
    def _compile(text):
        """Splits into literals, slots and choices: [("text", ..), ("slot", ..), ("choice", [parts, ..])]."""
        parts = []
        for token in re.split(r"(\[[^\]]*\]|\{\w+\}|[aA]~ )", text):
            if token.startswith("["):
                parts.append(("choice", [StoryTeller._compile(option) for option in token[1:-1].split("|")]))
            elif token.startswith("{"):
                parts.append(("slot", token[1:-1]))
            elif token in ("a~ ", "A~ "):
                parts.append(("article", token[0]))
            elif token:
                parts.append(("text", token))
        return parts

    def _value(self, slot, slots, rng):
        key = slot.lower()
        if key not in slots:
            base = key.rstrip("0123456789")
            if base == "name":
                gender = rng.choice(("girl", "boy"))
                names = self.words["girls" if gender == "girl" else "boys"]
                slots["boy" + key[4:]] = gender
                self._choose(key, names, slots, rng)
                for pronoun, value in PRONOUNS[gender].items():
                    slots[pronoun + key[4:]] = value
            elif base in ("he", "him", "his", "himself"):
                self._value("name" + key[len(base):], slots, rng)
            else:
                self._choose(key, self.words[SLOT_LISTS[base]], slots, rng)
        value = slots[key]
        return capitalised(value) if slot[0].isupper() else value

    @staticmethod
    def _choose(key, values, slots, rng):
        used = set(slots.values())
        value = rng.choice(values)
        while value in used:
            value = rng.choice(values)
        slots[key] = value

    def _render(self, parts, slots, rng):
        out, article = [], ""
        for kind, value in parts:
            if kind == "article":
                article = value
                continue
            if kind == "choice":
                text = self._render(rng.choice(value), slots, rng)
            elif kind == "slot":
                text = self._value(value, slots, rng)
            else:
                text = value
            if article:
                text = article + ("n " if text[0].lower() in "aeiou" else " ") + text
                article = ""
            out.append(text)
        return "".join(out)

    def frame_story(self, rng, held_out=False):
        """(topic, story) of a frame."""
        frame, parts = rng.choice(self.held_out if held_out else self.frames)
        slots = {}
        topic = self._render(self._compile(rng.choice(frame.topics)), slots, rng)
        return topic, self._render(parts, slots, rng)

    def _companion(self, slots, rng):
        """The companion in `slots`; returns (kind, the topic's words for it)."""
        if rng.random() < 0.6:
            animal = self._value("animal", slots, rng)
            slots.update(c=f"the {animal}", che="it", chim="it", chis="its")
            return "animal", with_article(animal)
        name = self._value("name2", slots, rng)
        slots.update(c=name, che=slots["he2"], chim=slots["him2"], chis=slots["his2"])
        return "child", name

    def plot_story(self, rng, held_out=False):
        """(topic, story, names that the topic asks for) of a plot."""
        plot, slots = rng.choice(self.held_out_plots if held_out else self.plots), {}
        name = self._value("name", slots, rng)
        kind, companion = self._companion(slots, rng)
        asked = [name, slots["animal" if kind == "animal" else "name2"]]
        thing = ""
        if plot.has_thing and rng.random() < 0.5:
            thing = with_article(self._value("color", slots, rng)) + " " + self._value("thing", slots, rng)
        pair = [name, companion] if kind == "child" or rng.random() < 0.7 else [companion, name]
        topic = f"{pair[0]}, {pair[1]} and {thing}" if thing else f"{pair[0]} and {pair[1]}"
        out, last = [], {}
        for beat, optional in plot.beats:
            if optional and rng.random() < 1 / 3:
                continue
            beat = beat if beat in self.beats else f"{beat}_{kind}"
            lines = self.beats[beat]
            number = rng.randrange(len(lines))
            if last.get(beat) == number:
                number = (number + 1) % len(lines)
            last[beat] = number
            out.append(self._render(lines[number], slots, rng))
        return topic, " ".join(out), asked

    def story(self, rng, held_out=False):
        """(topic, story): of a plot, or, a quarter of those for training, of a frame."""
        if not held_out and rng.random() < 0.25:
            return self.frame_story(rng)
        return self.plot_story(rng, held_out)[:2]


STORY_REQUESTS = ("Tell me a story about {}.", "Tell a story about {}.", "I want to hear a story about {}.", "Please tell me a story about {}.",
                  "Write a story about {}.", "Make up a story about {}.", "Do you know a story about {}?", "A story about {}, please.",
                  "Write a short story about {}.")
STORY_REQUESTS_HELD_OUT = ("Can you tell me a story about {}?", "I would like to hear a story about {}.")


def story_messages(teller, rng, held_out=False):
    topic, story = teller.story(rng, held_out)
    request = rng.choice(STORY_REQUESTS_HELD_OUT if held_out else STORY_REQUESTS).format(topic)
    return [("user", request), ("assistant", story)]


@dataclass
class Turn:
    answer: str = ""
    pattern: str = ""
    questions: list = field(default_factory=list)
    held_out: list = field(default_factory=list)


def read_scripts(path):
    """name -> list of turns; None stands for questions about facts."""
    scripts, turns = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            turns = scripts[line.strip("[]")] = []
        elif line.startswith("A: "):
            turns.append(Turn(line[3:]))
        elif line.startswith("P: "):
            turns[-1].pattern = line[3:]
        elif line.startswith("Q: "):
            turns[-1].questions.append(line[3:])
        elif line.startswith("H: "):
            turns[-1].held_out.append(line[3:])
        elif line == "*":
            turns.append(None)
    return scripts


class Chat:
    """T1: questions with exactly one right answer each, and small talk."""

    def __init__(self, facts, fact_kinds, talk_kinds, scripts, words):
        self.facts, self.fact_kinds, self.talk_kinds, self.scripts, self.words = facts, fact_kinds, talk_kinds, scripts, words
        self.continents = {fact["x"]: fact["y"] for fact in facts["continents"]}
        self.kind_names = list(FACT_SHARES)
        self.kind_shares = list(FACT_SHARES.values())

    def fact(self, rng, held_out=False):
        name = rng.choices(self.kind_names, self.kind_shares)[0]
        kind, values = self.fact_kinds[name], rng.choice(self.facts[name])
        question = fill(rng.choice(kind.held_out if held_out else kind.questions), values)
        return question, fill(kind.answer, values)

    def talk(self, rng, names=None, held_out=False):
        kind = self.talk_kinds[rng.choice(names or list(self.talk_kinds))]
        return rng.choice(kind.held_out if held_out else kind.questions), kind.answer

    @staticmethod
    def _vary(question, rng):
        """Spelling as users type it: an opening, no capital, no final mark."""
        dice = rng.random()
        if dice < 0.06 and question.endswith((".", "?")):
            question = question[:-1]
        if 0.04 < dice < 0.10 and not question.startswith("I "):
            question = question[0].lower() + question[1:]
        return rng.choice(OPENERS) + question

    def question(self, rng, held_out=False):
        return self.talk(rng, None, held_out) if rng.random() < 0.15 else self.fact(rng, held_out)

    def _script_values(self, rng):
        words = self.words
        names = rng.sample(words["girls"] + words["boys"], 2)
        one, two = rng.sample(self.facts["capitals"], 2)
        left, right = rng.sample(self.facts["opposites"], 2)
        a, b, c = rng.randrange(1, 100), rng.randrange(1, 100), rng.randrange(1, 30)
        while pair_is_held_out(a, b) or pair_is_held_out(a + b, c):
            a, b, c = rng.randrange(1, 100), rng.randrange(1, 100), rng.randrange(1, 30)
        return {"name": names[0], "name2": names[1], "food": rng.choice(words["foods"]), "animal": rng.choice(words["animals"]),
                "thing": rng.choice(words["things"]), "place": rng.choice(words["places"]), "number": str(rng.randrange(10, 10000)),
                "country": one["x"], "capital": one["y"], "country2": two["x"], "capital2": two["y"], "continent2": self.continents[two["x"]],
                "word": left["x"], "other": left["y"], "word2": right["x"], "other2": right["y"],
                "a": str(a), "b": str(b), "c": str(c), "ab": str(a + b), "abc": str(a + b + c)}

    def script(self, rng, held_out=False, adding=0.0):
        """[(question, answer, what a right answer contains)]; `adding`: how often it is a sum carried on, beyond its even share."""
        values, out = self._script_values(rng), []
        name = rng.choice(list(self.scripts))
        for turn in self.scripts["adding" if adding and rng.random() < adding else name]:
            if turn is None:
                for _ in range(rng.randrange(0, 3)):
                    question, answer = self.fact(rng, held_out)
                    out.append((question, answer, answer))
            else:
                question = rng.choice(turn.held_out if held_out else turn.questions)
                out.append((fill(question, values), fill(turn.answer, values), fill(turn.pattern, values)))
        return out

    def messages(self, rng, held_out=False):
        messages = [("system", rng.choice(SYSTEM_TEXTS))] if rng.random() < 0.12 else []
        turns = []
        if rng.random() < 0.25:
            turns = [turn[:2] for turn in self.script(rng, held_out, adding=0.0 if held_out else 0.4)]
            return messages + [message for question, answer in turns for message in (("user", question), ("assistant", answer))]
        if rng.random() < 0.2:
            turns.append(self.talk(rng, GREETINGS, held_out))
        for _ in range(rng.choice((1, 1, 2, 3, 4, 6))):
            question, answer = self.question(rng, held_out)
            turns.append((question if held_out else self._vary(question, rng), answer))
        if rng.random() < 0.15:
            turns.append(self.talk(rng, FAREWELLS, held_out))
        for question, answer in turns:
            messages += [("user", question), ("assistant", answer)]
        return messages


def pair_is_held_out(left, right):
    """One pair of two-digit numbers in twenty is never trained on."""
    low, high = sorted((left, right))
    return low >= 10 and high < 100 and (low * 31 + high * 17) % 20 == 7


SUM_WORDINGS = {
    "+": ("{a} + {b}", "What is {a} + {b}?", "{a} + {b} = ?", "{a} + {b} =", "What is {a} plus {b}?", "Add {a} and {b}.",
          "How much is {a} + {b}?", "Calculate {a} + {b}.", "Please add {a} and {b}.", "Tell me what {a} + {b} is."),
    "-": ("{a} - {b}", "What is {a} - {b}?", "{a} - {b} = ?", "{a} - {b} =", "What is {a} minus {b}?", "Take {b} from {a}.",
          "How much is {a} - {b}?", "Calculate {a} - {b}.", "Please subtract {b} from {a}.", "Tell me what {a} - {b} is."),
    "*": ("{a} * {b}", "What is {a} * {b}?", "{a} * {b} = ?", "{a} * {b} =", "What is {a} times {b}?", "Multiply {a} and {b}.",
          "How much is {a} * {b}?", "Calculate {a} * {b}.", "Please multiply {a} by {b}.", "Tell me what {a} * {b} is."),
}
SUM_WORDINGS_HELD_OUT = {"+": ("Can you add {a} and {b}?", "I need the sum of {a} and {b}."),
                         "-": ("Can you subtract {b} from {a}?", "I need the difference of {a} and {b}."),
                         "*": ("Can you multiply {a} by {b}?", "I need the product of {a} and {b}.")}
COMPARE_WORDINGS = (("Which is larger, {a} or {b}?", max), ("Which number is larger, {a} or {b}?", max), ("Which is more, {a} or {b}?", max),
                    ("Which is smaller, {a} or {b}?", min), ("Which number is smaller, {a} or {b}?", min), ("Which is less, {a} or {b}?", min))
BATCH_WORDINGS = ("Calculate:", "Do these sums:", "Please answer:", "What are the results?", "Sums:")


def addition_operands(rng, digits):
    low, high = (0, 100) if digits == 2 else (100, 1000)
    left, right = rng.randrange(low, high), rng.randrange(0, high)
    return (left, right) if rng.random() < 0.5 else (right, left)


def sum_operands(operator, rng, digits):
    while True:
        if operator == "*":
            return rng.randrange(0, 13), rng.randrange(0, 13)
        left, right = addition_operands(rng, digits)
        if operator == "-" and left < right:
            left, right = right, left
        if operator == "+" and left + right > 999:
            continue
        if not pair_is_held_out(left, right):
            return left, right


def sum_result(left, operator, right):
    return left + right if operator == "+" else left - right if operator == "-" else left * right


def columns(left, operator, right):
    """The sum worked out digit by digit, from the right."""
    lines, carry = [], 0
    top, low = str(left)[::-1], str(right)[::-1]
    for i in range(max(len(top), len(low))):
        a, b = int(top[i]) if i < len(top) else 0, int(low[i]) if i < len(low) else 0
        if operator == "+":
            lines.append(f"{a} + {b} + 1 = {a + b + 1}." if carry else f"{a} + {b} = {a + b}.")
            carry = (a + b + carry) // 10
        else:
            a -= carry
            carry = int(a < b)
            lines.append(f"{a + 10 * carry} - {b} = {a + 10 * carry - b}.")
    return " ".join(lines)


def thought_messages(rng, held_out=False):
    """A sum with thinking on."""
    operator = rng.choice("+-")
    left, right = sum_operands(operator, rng, 3 if rng.random() < 0.7 else 2)
    question = rng.choice((SUM_WORDINGS_HELD_OUT if held_out else SUM_WORDINGS)[operator]).format(a=left, b=right)
    answer = f"{left} {operator} {right} = {sum_result(left, operator, right)}."
    return [("user", question), ("thought", (columns(left, operator, right), answer))]


def one_sum(rng):
    """(question, short form, answer)"""
    dice = rng.random()
    operator = "+" if dice < 0.4 else "-" if dice < 0.8 else "*"
    left, right = sum_operands(operator, rng, 3 if rng.random() < 0.45 else 2)
    text = f"{left} {operator} {right}"
    question = rng.choice(SUM_WORDINGS[operator]).format(a=left, b=right)
    return question, text, f"{text} = {sum_result(left, operator, right)}"


def comparison(rng):
    limit = rng.choice((20, 100, 1000))
    left, right = rng.sample(range(limit), 2)
    wording, choose = rng.choice(COMPARE_WORDINGS)
    word = "larger" if choose is max else "smaller"
    best = choose(left, right)
    return wording.format(a=left, b=right), f"{best} is {word} than {left + right - best}."


def counting(rng):
    number = rng.randrange(1, 999)
    if rng.random() < 0.5:
        return f"What number comes after {number}?", f"{number + 1} comes after {number}."
    return f"What number comes before {number}?", f"{number - 1} comes before {number}."


def arithmetic_messages(rng, held_out=False):
    if rng.random() < 0.2:  # a tenth of the tokens
        return thought_messages(rng, held_out)
    messages = []
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        dice = rng.random()
        if dice < 0.45:
            sums = [one_sum(rng) for _ in range(rng.randrange(2, 13))]
            question = rng.choice(BATCH_WORDINGS) + "\n" + "\n".join(text for _, text, _ in sums)
            answer = "\n".join(result for _, _, result in sums)
        elif dice < 0.88:
            question, _, answer = one_sum(rng)
            answer += "."
        else:
            question, answer = comparison(rng) if dice < 0.97 else counting(rng)
        messages += [("user", question), ("assistant", answer)]
    return messages


def load_chat(corpus_folder, data_folder):
    words = json.loads((corpus_folder / "words.json").read_text(encoding="utf-8"))
    return Chat(read_facts(corpus_folder, data_folder), read_kinds(corpus_folder / "paraphrases.txt"),
                read_kinds(corpus_folder / "dialogues.txt"), read_scripts(corpus_folder / "scripts.txt"), words)


def load_teller(corpus_folder):
    words = json.loads((corpus_folder / "words.json").read_text(encoding="utf-8"))
    beats, plots = read_sections(corpus_folder / "beats.txt"), read_plots(corpus_folder / "plots.txt")
    return StoryTeller(read_frames(corpus_folder / "frames.txt"), beats, plots, words), words
