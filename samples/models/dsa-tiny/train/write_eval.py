"""Writes ../eval/t1.jsonl, t3.jsonl, t4.jsonl and t5.jsonl and proves that every question can be answered from its text."""
import json
import random
import re
from collections import Counter
from pathlib import Path

import documents
import gen_retrieval
import gen_text

T1_QUESTIONS, T3_QUESTIONS, T4_DOCUMENTS, T5_DOCUMENTS = 300, 300, 24, 20
NEEDLES = {"needles": 150, "context": 8192, "questions": 4}
LIST = {"lines": 1000, "questions": 8}


def test_seeds(count):
    return [documents.TEST_SEED_STEP * (1 + i) for i in range(count)]


def record(task, seed, question, answers, **more):
    return {"task": task, "seed": seed, "messages": [{"role": "user", "content": question}], "answers": answers, **more}


def fact_records(corpus):
    seen, seed = set(), 0
    while len(seen) < T1_QUESTIONS:
        seed += documents.TEST_SEED_STEP
        question, answer = corpus.chat.question(random.Random(f"T1 {seed}"), held_out=True)
        if question not in seen:
            seen.add(question)
            yield record("T1", seed, question, [answer])


def sum_records():
    """Half of the questions use pairs of numbers that are never trained on."""
    seen, seed = set(), 0
    while len(seen) < T3_QUESTIONS:
        seed += documents.TEST_SEED_STEP
        rng = random.Random(f"T3 {seed}")
        operator, unseen = "+-"[len(seen) % 2], len(seen) % 4 < 2
        left, right = rng.randrange(10, 100), rng.randrange(10, 100)
        if operator == "-" and left < right:
            left, right = right, left
        if (left, operator, right) in seen or gen_text.pair_is_held_out(left, right) != unseen:
            continue
        seen.add((left, operator, right))
        answer = f"{left} {operator} {right} = {gen_text.sum_result(left, operator, right)}."
        yield record("T3", seed, rng.choice(gen_text.SUM_WORDINGS[operator]).format(a=left, b=right), [answer], unseen_pair=unseen)


def near_misses(plan):
    """For every needle: how many others share the colour or the object."""
    colors, objects = Counter(plan.colors.tolist()), Counter(plan.objects.tolist())
    return [colors[c] + objects[o] - 2 for c, o in zip(plan.colors.tolist(), plan.objects.tolist())]


def retrieval_records(corpus, task, count, size):
    write = gen_retrieval.list_text if task == "T5" else gen_retrieval.needle_text
    for seed in test_seeds(count):
        plan = documents.retrieval_plan(corpus, task, seed, held_out=True, **size)
        text, _ = write(plan, corpus.words)
        if task == "T4":
            assert min(near_misses(plan)) >= 8, min(near_misses(plan))
        yield record(task, seed, text, [gen_retrieval.code(plan.digits[i]) for i in plan.asked])


def oracle_retrieval(entry):
    """Answers from the text alone."""
    text = entry["messages"][0]["content"]
    if entry["task"] == "T5":
        table = dict(re.findall(r"^(\w+ \w+) = (\d{4})$", text, re.M))
        asked = text.split("\n\n")[1].split("\n")[1:]
        return [table[key] for key in asked]
    table = dict(re.findall(r"The code of the (\w+ \w+) is (\d{4})\.", text))
    return [table[key] for key in re.findall(r"code of the (\w+ \w+)[.?]$", text.split("\n\n")[1], re.M)]


def oracle_sum(entry):
    left, right = (int(number) for number in re.findall(r"\d+", entry["messages"][0]["content"]))
    low, high = sorted((left, right))
    plus = re.search(r"\+|plus|[Aa]dd", entry["messages"][0]["content"])
    return [f"{left} + {right} = {left + right}." if plus else f"{high} - {low} = {high - low}."]


def oracle_fact(corpus):
    """The facts as a table from every wording, trained or held out, to its answer."""
    table = {}
    for name, kind in corpus.chat.fact_kinds.items():
        for values in corpus.chat.facts[name]:
            for question in kind.questions + kind.held_out:
                answer = gen_text.fill(kind.answer, values)
                assert table.setdefault(gen_text.fill(question, values), answer) == answer, (question, values)
    for kind in corpus.chat.talk_kinds.values():
        for question in kind.questions + kind.held_out:
            assert table.setdefault(question, kind.answer) == kind.answer, question
    trained = {gen_text.fill(q, v) for n, k in corpus.chat.fact_kinds.items() for v in corpus.chat.facts[n] for q in k.questions}
    trained |= {q for k in corpus.chat.talk_kinds.values() for q in k.questions}
    return lambda entry: [table[entry["messages"][0]["content"]]], trained


def check(corpus, records):
    answer_fact, trained = oracle_fact(corpus)
    for entry in records["t1"]:
        assert answer_fact(entry) == entry["answers"] and entry["messages"][0]["content"] not in trained, entry
    for entry in records["t3"]:
        assert oracle_sum(entry) == entry["answers"], entry
    for entry in records["t4"] + records["t5"]:
        assert oracle_retrieval(entry) == entry["answers"], entry["seed"]
    for entry in records["t4"] + records["t5"]:
        tokens = len(corpus.chat_format.prompt([("user", entry["messages"][0]["content"])]))
        assert tokens < 8192 or entry["task"] == "T5", tokens


def write(folder, records):
    folder.mkdir(exist_ok=True)
    for name, entries in records.items():
        text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {len(entries)} entries, {sum(len(e['answers']) for e in entries)} answers, {len(text.encode()) / 1e3:.0f} kB")


def main():
    corpus = documents.load()
    records = {"t1": list(fact_records(corpus)), "t3": list(sum_records()),
               "t4": list(retrieval_records(corpus, "T4", T4_DOCUMENTS, NEEDLES)),
               "t5": list(retrieval_records(corpus, "T5", T5_DOCUMENTS, LIST))}
    check(corpus, records)
    write(Path(__file__).resolve().parent.parent / "eval", records)


if __name__ == "__main__":
    main()
