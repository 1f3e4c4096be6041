"""T9 a calculator that the model calls, T10 answers in JSON. Messages are (role, text); see documents.ChatFormat for the roles."""
import json

import gen_text

CALCULATOR = {"type": "function", "function": {
    "name": "calculator", "description": "Calculates large sums and products.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string", "description": "such as 12 + 7"}}, "required": ["expression"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}}

DECLARED = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
FORMAT_OBJECT = ("The system is invoked with `response_format=json_object`.\nYour response must be raw JSON data without markdown code blocks "
                 "(```json) or any additional formatting.")
FORMAT_SCHEMA = (FORMAT_OBJECT.replace("json_object", "json_schema") + "\nThe JSON data must match the following schema:\n```json\n{}\n```")


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def declaration(tools):
    return DECLARED.replace("{}", compact(tools))


def large_operands(rng, operator):
    if operator == "+":
        return rng.randrange(1000, 10 ** rng.randrange(4, 7)), rng.randrange(1000, 10 ** rng.randrange(4, 7))
    return rng.randrange(100, 10 ** rng.randrange(3, 5)), rng.randrange(13, 10 ** rng.randrange(2, 5))


def tool_messages(rng, held_out=False, calls=None):
    """Large sums and products go through the calculator, small ones (a sixth of the questions, in training) do not."""
    tools = [CALCULATOR, CLOCK] if rng.random() < 0.25 else [CALCULATOR]
    messages = [("tools", declaration(tools))]
    for _ in range(calls or rng.choice((1, 1, 2, 3))):
        if not held_out and rng.random() < 0.17:
            question, _, answer = gen_text.one_sum(rng)
            messages += [("user", question), ("assistant", answer + ".")]
            continue
        operator = rng.choice("+*")
        left, right = large_operands(rng, operator)
        text = f"{left} {operator} {right}"
        result = gen_text.sum_result(left, operator, right)
        wordings = (gen_text.SUM_WORDINGS_HELD_OUT if held_out else gen_text.SUM_WORDINGS)[operator]
        messages += [("user", rng.choice(wordings).format(a=left, b=right)), ("call", ("calculator", {"expression": text})),
                     ("result", ("calculator", str(result))), ("assistant", f"{text} = {result}.")]
    return messages


# ---- T10

PLAIN = ("{q} Answer in JSON.", "{q} Answer with JSON only.", "{q} JSON, please.", "JSON: {q}", "{q} Give me JSON.", "{q} Use JSON.",
         "Answer in JSON. {q}", "{q} Reply in JSON.")
PLAIN_HELD_OUT = ("{q} Please answer in JSON.", "In JSON: {q}")


class JsonAsker:
    """Questions whose answer is an object of one of a few schemas; `facts` are those of T1."""

    def __init__(self, facts):
        number = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "ten": 10, "no": 0}
        self.legs = [{"animal": f["x"], "legs": number[f["y"]]} for f in facts["legs"]]
        continents = {f["x"]: f["y"] for f in facts["continents"]}
        self.countries = [{"country": f["x"], "capital": f["y"], "continent": continents[f["x"]]} for f in facts["capitals"]]
        self.opposites = [{"word": f["x"], "opposite": f["y"]} for f in facts["opposites"]]
        self.young = [{"animal": f["x"], "young": f["y"]} for f in facts["young"]]
        self.kinds = (
            (self.legs, ("How many legs does {a} have?", "How many legs has {a} got?", "Count the legs of {a}.")),
            (self.countries, ("What is the capital of {country}?", "Tell me about {country}.", "Which capital and continent has {country}?")),
            (self.opposites, ("What is the opposite of {word}?", "Give me the opposite of {word}.", "Name the opposite of {word}.")),
            (self.young, ("What is a baby {animal} called?", "What do you call a baby {animal}?", "Tell me the name of a baby {animal}.")),
            (None, ("What is {a} + {b}?", "Add {a} and {b}.", "{a} + {b} = ?")),
        )

    def object(self, rng):
        """(question, object)"""
        objects, wordings = rng.choice(self.kinds)
        if objects:
            value = rng.choice(objects)
            return rng.choice(wordings).format(a=gen_text.with_article(value.get("animal", "x")), **value), value
        left, right = gen_text.sum_operands("+", rng, 2)
        return rng.choice(wordings).format(a=left, b=right), {"a": left, "b": right, "sum": left + right}

    @staticmethod
    def schema(value):
        kinds = {key: {"type": "string" if isinstance(entry, str) else "integer"} for key, entry in value.items()}
        return {"type": "object", "properties": kinds, "required": list(value)}

    def messages(self, rng, held_out=False, turns=None):
        """Asked for in the question, or at the end of the conversation by the message of a response format."""
        messages = []
        turns = turns or rng.choice((1, 2, 3))
        for turn in range(turns):
            question, value = self.object(rng)
            dice = rng.random()
            if turn + 1 < turns or dice < 0.4:
                messages.append(("user", rng.choice(PLAIN_HELD_OUT if held_out else PLAIN).format(q=question)))
            else:
                form = FORMAT_OBJECT if dice < 0.6 else FORMAT_SCHEMA.replace("{}", compact(self.schema(value)))
                messages += [("user", question), ("format", form)]
            messages.append(("assistant", json.dumps(value, ensure_ascii=False, separators=(",", ":"))))
        return messages
