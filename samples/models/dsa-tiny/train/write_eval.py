"""Writes ../eval/t1.jsonl to t10.jsonl and proves that every question can be answered from its text.

A record has "task", "kind" (what the gates are counted by), "seed", and one of
  "messages"   chat JSON; "thinking": true if the model thinks first
  "text"       of a user, which "asked" asks in several ways: each {"question", "answers", "depths"} makes a prompt with the text in front
  "turns"      a chat: each {"content", "expect"} is said when the answer before it is there
  "tokens"     a prompt that chat JSON cannot say
and one of
  "answers"         T4 to T8: one line of answer each; else the whole answer
  "answer_tokens"   with the end of the message
Stories also have "names" that must occur and "others" that must not.
"""
import json
import random
from collections import Counter
from pathlib import Path

import documents
import gen_retrieval
import gen_text
import oracles

FACTS, CHATS, STORIES, UNSEEN_FRAMES = 300, 100, 60, 8
SUMS = {"two digits": 200, "tables": 100, "three digits": 200, "thinking": 40}
DEPTHS = 10  # questions of a T4 prompt, one for each tenth of the text
# kind -> (documents, prompts of each, size); "questions" of each prompt
NEEDLES = {"80 in 4k": (3, 3, {"needles": 80, "context": 4096}), "150 in 8k": (2, 3, {"needles": 150, "context": 8192}),
           "300 in 16k": (2, 2, {"needles": 300, "context": 16384})}
LISTS = {"1000 lines": (2, 2, {"lines": 1000, "questions": 12}), "2000 lines": (1, 2, {"lines": 2000, "questions": 16})}
WRITTEN = {"T6": {"200 assignments": (10, 1, {"assignments": 200, "questions": 8}), "800 assignments": (7, 1, {"assignments": 800, "questions": 8})},
           "T7": {"8k": (2, 2, {"context": 8192, "questions": 8})},
           "T8": {"place": (4, 1, {"context": 2048, "questions": 8, "kind": "place"}), "both": (4, 1, {"context": 2048, "questions": 8, "kind": "both"})}}
QUESTION_TOKENS = {"T4": 26, "T7": 52, "T8": 21}  # with the answer, as the generators count them
CALLS, OBJECTS = 24, 100


def user(text):
    return [{"role": "user", "content": text}]


def unique(count, make):
    """`count` records of different questions, from the test seeds in order; make(seed) may return None."""
    seen, seed = set(), 0
    while len(seen) < count:
        seed += documents.TEST_SEED_STEP
        record = make(seed)
        key = record and json.dumps({k: v for k, v in record.items() if k != "seed"})
        if record and key not in seen:
            seen.add(key)
            yield record


def shared(task, size, prompts):
    """Sizes of a document with the questions of several prompts, so that each prompt has its context."""
    size = {**size, "questions": size["questions"] * prompts}
    if "context" in size:
        size["context"] += size["questions"] * (prompts - 1) // prompts * QUESTION_TOKENS[task]
    return size


def asked_record(task, kind, seed, text, lines, prompts, head=0, depths=None):
    """The questions at the end of `text`, one a line behind `head` lines, shared out among several prompts."""
    document, block = text.split("\n\n")
    questions = block.split("\n")
    count = len(lines) // prompts
    asked = []
    for i in range(0, len(lines), count):
        question = "\n\n" + "\n".join(questions[:head] + questions[head + i:head + i + count])
        asked.append({"question": question, "answers": lines[i:i + count], **({"depths": depths[i:i + count]} if depths else {})})
    return {"task": task, "kind": kind, "seed": seed, "text": document, "asked": asked}


def fact_records(corpus):
    def make(seed):
        question, answer = corpus.chat.question(random.Random(f"T1 {seed}"), held_out=True)
        return {"task": "T1", "kind": "facts", "seed": seed, "messages": user(question), "answers": [answer]}

    def chat(seed):
        turns = corpus.chat.script(random.Random(f"T1 chat {seed}"), held_out=True)
        return {"task": "T1", "kind": "chats", "seed": seed, "turns": [{"content": question, "expect": [pattern]} for question, _, pattern in turns],
                "answers": [answer for _, answer, _ in turns]}

    return [*unique(FACTS, make), *unique(CHATS, chat)]


def story_records(corpus):
    names = corpus.words["girls"] + corpus.words["boys"]

    def make(seed):
        rng = random.Random(f"T2 {seed}")
        topic, story, asked = corpus.teller.plot_story(rng, held_out=True)
        request = rng.choice(gen_text.STORY_REQUESTS_HELD_OUT).format(topic)
        return {"task": "T2", "kind": "plots", "seed": seed, "messages": user(request), "answers": [story], "names": asked,
                "others": [name for name in names if name not in asked]}

    def unseen(seed):
        rng = random.Random(f"T2 frame {seed}")
        topic, story = corpus.teller.frame_story(rng, held_out=True)
        return {"task": "T2", "kind": "sentences never seen", "seed": seed, "messages": user(rng.choice(gen_text.STORY_REQUESTS_HELD_OUT).format(topic)),
                "answers": [story]}

    return [*unique(STORIES, make), *unique(UNSEEN_FRAMES, unseen)]


def sum_records():
    """Two digits: half of the questions use pairs of numbers that are never trained on. Half of all use held-out wordings."""
    def wording(rng, seed, operator, left, right):
        wordings = gen_text.SUM_WORDINGS if seed // documents.TEST_SEED_STEP % 2 else gen_text.SUM_WORDINGS_HELD_OUT
        return rng.choice(wordings[operator]).format(a=left, b=right)

    def make(kind):
        def record(seed):
            rng = random.Random(f"T3 {kind} {seed}")
            if kind == "thinking":
                (_, question), (_, (thought, answer)) = gen_text.thought_messages(rng, held_out=True)
                return {"task": "T3", "kind": kind, "seed": seed, "thinking": True, "messages": user(question), "answers": [answer], "thought": thought}
            operator = "*" if kind == "tables" else rng.choice("+-")
            left, right = {"two digits": lambda: (rng.randrange(10, 100), rng.randrange(10, 100)),
                           "tables": lambda: (rng.randrange(1, 13), rng.randrange(1, 13)),
                           "three digits": lambda: (rng.randrange(100, 1000), rng.randrange(10, 1000))}[kind]()
            if operator == "-" and left < right:
                left, right = right, left
            unseen = gen_text.pair_is_held_out(left, right)
            if operator == "+" and left + right > 999 or kind == "two digits" and unseen != bool(seed // documents.TEST_SEED_STEP // 2 % 2):
                return None
            answer = f"{left} {operator} {right} = {gen_text.sum_result(left, operator, right)}."
            more = {"unseen_pair": True} if unseen else {}
            return {"task": "T3", "kind": kind, "seed": seed, "messages": user(wording(rng, seed, operator, left, right)), "answers": [answer], **more}
        return record

    return [record for kind, count in SUMS.items() for record in unique(count, make(kind))]


def near_misses(plan):
    """For every needle: how many others share the colour or the object."""
    colors, objects = Counter(plan.colors.tolist()), Counter(plan.objects.tolist())
    return [colors[c] + objects[o] - 2 for c, o in zip(plan.colors.tolist(), plan.objects.tolist())]


def needle_records(corpus):
    for kind, (count, prompts, size) in NEEDLES.items():
        made, seed = 0, 0
        while made < count:
            seed += documents.TEST_SEED_STEP
            plan = documents.retrieval_plan(corpus, "T4", seed, held_out=True, **shared("T4", {**size, "questions": DEPTHS}, prompts))
            if min(near_misses(plan)) < 8:
                continue
            rng, total = random.Random(seed), len(plan.colors)
            tenths = [rng.sample(range(total * i // DEPTHS, total * (i + 1) // DEPTHS), prompts) for i in range(DEPTHS)]
            asked = [i for prompt in zip(*tenths) for i in rng.sample(prompt, DEPTHS)]
            plan.asked = documents.np.array(asked)
            text, lines = gen_retrieval.needle_text(plan, corpus.words)
            made += 1
            yield asked_record("T4", kind, seed, text, lines, prompts, depths=[i * DEPTHS // total for i in asked])


def document_records(corpus, task, kinds):
    for kind, (count, prompts, _) in kinds.items():
        for seed in range(documents.TEST_SEED_STEP, documents.TEST_SEED_STEP * (count + 1), documents.TEST_SEED_STEP):
            size = shared(task, kinds[kind][2], prompts)
            if task == "T5":
                text, lines = gen_retrieval.list_text(documents.retrieval_plan(corpus, task, seed, held_out=True, **size), corpus.words)
            else:
                text, lines = documents.written_document(corpus, task, seed, held_out=True, **size).text()
            yield asked_record(task, kind, seed, text, lines, prompts, head=task == "T5")


def tool_records(corpus):
    """Of each conversation the call, and the answer once the result is there."""
    form = corpus.chat_format
    for seed in range(documents.TEST_SEED_STEP, documents.TEST_SEED_STEP * (CALLS + 1), documents.TEST_SEED_STEP):
        messages = documents.gen_tools.tool_messages(random.Random(f"T9 {seed}"), held_out=True, calls=1)
        oracles.tool(messages)
        for kind, number in (("call", 2), ("use", 4)):
            _, body, tail = form.parts(*messages[number])
            yield {"task": "T9", "kind": kind, "seed": seed, "tokens": form.prompt(messages[:number]), "answer_tokens": body + tail}


def json_records(corpus):
    def make(seed):
        messages = corpus.json_asker.messages(random.Random(f"T10 {seed}"), held_out=True, turns=1)
        oracles.json_answers(messages)
        answer = messages[-1][1]
        if len(messages) == 2:
            return {"task": "T10", "kind": "asked", "seed": seed, "messages": user(messages[0][1]), "answers": [answer]}
        return {"task": "T10", "kind": "response format", "seed": seed, "tokens": corpus.chat_format.prompt(messages[:-1]), "answers": [answer]}

    return list(unique(OBJECTS, make))


def fact_table(corpus):
    """The facts as a table from every wording, trained or held out, to its answer; and the trained wordings."""
    table, trained = {}, set()
    for name, kind in corpus.chat.fact_kinds.items():
        for values in corpus.chat.facts[name]:
            trained |= {gen_text.fill(question, values) for question in kind.questions}
            for question in kind.questions + kind.held_out:
                answer = gen_text.fill(kind.answer, values)
                assert table.setdefault(gen_text.fill(question, values), answer) == answer, (question, values)
    for kind in corpus.chat.talk_kinds.values():
        trained |= set(kind.questions)
        for question in kind.questions + kind.held_out:
            assert table.setdefault(question, kind.answer) == kind.answer, question
    return table, trained


def check(corpus, records):
    table, trained = fact_table(corpus)
    for entry in records["t1"]:
        if entry["kind"] == "facts":
            question = entry["messages"][0]["content"]
            assert [table[question]] == entry["answers"] and question not in trained, entry
    for entry in records["t2"]:
        assert all(name in entry["answers"][0] and name in entry["messages"][0]["content"] for name in entry.get("names", [])), entry
        assert not any(name in entry["answers"][0].split() for name in entry.get("others", [])), entry
    for entry in records["t3"]:
        oracles.arithmetic(entry["messages"][0]["content"], entry["answers"][0])
    for task, oracle in (("t4", oracles.needles), ("t5", oracles.lists), ("t6", oracles.registers), ("t7", oracles.passages), ("t8", oracles.hops)):
        for entry in records[task]:
            for asked in entry["asked"]:
                oracle(entry["text"] + asked["question"], asked["answers"])
    for entry in records["t4"]:
        tokens = len(corpus.chat_format.prompt([("user", entry["text"] + entry["asked"][0]["question"])]))
        assert 0.9 < tokens / NEEDLES[entry["kind"]][2]["context"] < 1, tokens
    for entry in records["t9"]:
        assert entry["answer_tokens"][-1] == corpus.encoder.special("<|end_of_msg|>")


def write(folder, records):
    folder.mkdir(exist_ok=True)
    total = 0
    for name, entries in records.items():
        text = "".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n" for entry in entries)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        total += len(text.encode())
        answers = sum(len(asked.get("answers", "x")) for entry in entries for asked in entry.get("asked", [entry]))
        print(f"{name}: {len(entries)} entries, {answers} answers, {len(text.encode()) / 1e3:.0f} kB")
    print(f"{total / 1e6:.2f} MB")


def main():
    corpus = documents.load()
    records = {"t1": fact_records(corpus), "t2": story_records(corpus), "t3": sum_records(), "t4": list(needle_records(corpus)),
               "t5": list(document_records(corpus, "T5", LISTS)),
               **{task.lower(): list(document_records(corpus, task, kinds)) for task, kinds in WRITTEN.items()},
               "t9": list(tool_records(corpus)), "t10": json_records(corpus)}
    check(corpus, records)
    write(Path(__file__).resolve().parent.parent / "eval", records)


if __name__ == "__main__":
    main()
