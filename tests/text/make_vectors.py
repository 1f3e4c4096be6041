#!/usr/bin/env python3
"""Makes the vectors of byte_pair_test.cc: strings, and the ids that independent libraries give them.

  make_vectors.py                          trains the small vocabularies in tests/text/vectors and makes their vectors
  make_vectors.py --real TOKENIZERS OUT    the same for real vocabularies: each folder of TOKENIZERS that holds a
                                           tokenizer.json; then: DSA_TOKENIZER_VECTORS=OUT text_test -tc="*real*"

Needs the Python packages tokenizers, tiktoken and regex, which are used here only. Everything is drawn from one seed.

strings      varint size, bytes
*.ids        of each string: varint 1 + count, ids as varints; or 0 and the position of the first byte that is not UTF-8
*.markup     the same, names of control tokens read as control tokens
"""
import argparse
import base64
import json
import pathlib
import random
import re
import unicodedata

import regex
import tiktoken
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NUM_SMALL, NUM_REAL = 600, 24000

SPLIT_KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPLIT_O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPLITS_DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                   r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                   r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

SCRIPTS = ["Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Syriac", "Thaana", "Devanagari", "Bengali", "Gurmukhi",
           "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar",
           "Georgian", "Hangul", "Ethiopic", "Cherokee", "Canadian_Aboriginal", "Ogham", "Runic", "Khmer", "Mongolian",
           "Hiragana", "Katakana", "Bopomofo", "Han", "Yi", "Gothic", "Tifinagh", "Coptic", "Glagolitic", "Javanese",
           "Balinese", "Deseret", "Osage", "Adlam"]
EMOJI = ["😀", "🦊", "👨‍👩‍👧‍👦", "🇯🇵", "🇪🇺", "👍🏽", "❤️", "1️⃣", "#️⃣", "🏴󠁧󠁢󠁷󠁬󠁳󠁿", "🧑🏿‍🚀", "☺", "™️"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n\n", "\u00a0", "\u3000", "\u2003 ", "\u0085", "\u2028", "\u180e", "\u200b", "\u1680"]
PHRASES = ["The quick brown fox", "don't", "WE'LL SEE", "it\u2019s", "HTTPServer", "iPhone 15", "3.14159", "1234567890", "x = y+1;",
           "für Straße", "naïve café", "l'été", "Ελλάδα", "Привет, мир", "日本語の文章です。", "今天天气很好", "2024年12月", "안녕하세요 세계",
           "สวัสดีครับ", "नमस्ते दुनिया", "مرحبا بالعالم", "שלום עולם", "Việt Nam", "e\u0301a\u0308", "ſ's 'ſ K'ſ", "ǅungla", "〇一二三", "々",
           "ª º ⁵ ½ Ⅻ ㊀", "a_b-c.d", "https://example.org/a?b=c#d", "<div class=\"x\">&amp;</div>", "\\n \\t", "```py\nprint(1)\n```"]


class Strings:
    def __init__(self, seed, words):
        self.random = random.Random(seed)
        self.words = words
        every = [chr(c) for c in range(0x20, 0x20000)
                 if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        self.letters = {name: [c for c in every if regex.match(r"\p{sc=%s}" % name, c)] for name in SCRIPTS}
        self.code = [line for path in sorted((ROOT / "src").rglob("*.cc")) + sorted((ROOT / "tests/text").glob("*.py"))
                     for line in path.read_text().split("\n")]

    def word(self, script):
        return "".join(self.random.choices(self.letters[script], k=self.random.randint(1, 9)))

    def piece(self):
        r = self.random
        kind = r.randrange(8)
        if kind < 3:
            script = r.choice(SCRIPTS)
            return " ".join(self.word(script) for _ in range(r.randint(1, 4)))
        if kind == 3:
            return r.choice(PHRASES)
        if kind == 4:
            return r.choice(EMOJI) * r.randint(1, 2)
        if kind == 5:
            return str(r.randrange(10 ** r.randint(1, 12)))
        if kind == 6:
            return "\n".join(r.choice(self.code) for _ in range(r.randint(1, 3)))
        return "".join(r.choices(self.words, k=r.randint(1, 6))) if self.words else r.choice(PHRASES).upper()

    def malformed(self):
        text = bytearray(self.piece().encode() + b" " + self.piece().encode())
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(text) + 1)
            if self.random.random() < 0.5 and at < len(text):
                del text[at]
            else:
                text.insert(at, self.random.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF]))
        return bytes(text)

    def make(self, count, names, lengths):
        r = self.random
        made = [b"", b" ", b"  ", b"a", "\ufeff".encode(), b"\0", bytes(range(1, 128))]
        made += [(name + "x" + name).encode() for name in names]
        made += [(script * 2).encode() for script in PHRASES + EMOJI + SPACES]
        for length in lengths:
            made += [(unit * length).encode()[:length] for unit in ("a", "A", "^", " ", "\n", "0", "a b", "'s")]
            made += [(unit * (length // len(unit.encode()))).encode() for unit in ("中", "é", "🦊", "a\u0301", "\u0e01\u0e48")]
        for script in SCRIPTS:
            made += [" ".join(self.word(script) for _ in range(5)).encode() for _ in range(3)]
        while len(made) < count:
            if r.random() < 0.05:
                made.append(self.malformed())
                continue
            parts = []
            for _ in range(r.randint(1, 4)):
                parts += [self.piece(), r.choice(SPACES) if r.random() < 0.7 else ""]
            if names and r.random() < 0.1:
                parts.insert(r.randrange(len(parts)), r.choice(names))
            made.append("".join(parts).encode())
        return made


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_ids(path, strings, encode):
    out = bytearray()
    for string in strings:
        try:
            ids = encode(string.decode())
            out += varint(len(ids) + 1) + b"".join(varint(i) for i in ids)
        except UnicodeDecodeError as failure:
            out += varint(0) + varint(failure.start)
    path.write_bytes(out)


def write_strings(path, strings):
    path.write_bytes(b"".join(varint(len(s)) + s for s in strings))


def json_encoders(path):
    """Plain text, for which the library has to forget the added tokens, and markup."""
    whole = json.loads(path.read_text())
    plain = tokenizers.Tokenizer.from_str(json.dumps({**whole, "added_tokens": [], "post_processor": None}))
    markup = tokenizers.Tokenizer.from_str(json.dumps({**whole, "post_processor": None}))
    return [lambda text, t=t: t.encode(text, add_special_tokens=False).ids for t in (plain, markup)]


def kimi_cuts(text):
    """As the vendor's package cuts it: 400,000 characters, 25,000 of one kind."""
    for begin in range(0, len(text), 400_000):
        part = text[begin:begin + 400_000]
        start, run, space = 0, 0, part[0].isspace()
        for i, c in enumerate(part):
            if c.isspace() != space:
                run, space = 1, c.isspace()
                continue
            run += 1
            if run > 25_000:
                yield part[start:i]
                start, run = i, 1
        yield part[start:]


def tiktoken_encoders(ranks, pattern, specials, cuts):
    encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    def plain(text):
        return [i for part in cuts(text) for i in encoding.encode_ordinary(part)]
    names = re.compile("(" + "|".join(re.escape(n) for n in sorted(specials, key=len, reverse=True)) + ")")
    def markup(text):
        return [i for part in names.split(text) for i in ([specials[part]] if part in specials else plain(part))]
    return plain, markup


def write_tiktoken(path, ranks):
    path.write_text("".join(f"{base64.b64encode(b).decode()} {r}\n" for b, r in sorted(ranks.items(), key=lambda x: x[1])))


def kimi_specials(base, named):
    slots = {i: f"<|reserved_token_{i}|>" for i in range(base, base + 256)}
    slots.update({base + i: name for i, name in named.items()})
    return {name: i for i, name in slots.items()}


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


def ranks_of(path):
    """A tokenizer.json whose ids are ranks, as a tiktoken vocabulary."""
    alphabet = byte_alphabet()
    return {bytes(alphabet[c] for c in text): i for text, i in json.loads(path.read_text())["model"]["vocab"].items()
            if all(c in alphabet for c in text)}


def train(splits, corpus, size, added):
    """Training is deterministic for one corpus."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(tokenizers.Regex(s), "isolated") for s in splits] +
        [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = tokenizers.decoders.ByteLevel()
    t.train_from_iterator(corpus, tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(byte_alphabet()), show_progress=False, special_tokens=[]))
    t.add_special_tokens([tokenizers.AddedToken(n, normalized=False) for n in added])
    return t


KIMI_NAMES = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>"}


def write_kimi(folder, ranks):
    folder.mkdir(parents=True, exist_ok=True)
    write_tiktoken(folder / "tiktoken.model", ranks)
    decoder = {str(len(ranks) + i): {"content": n, "special": not n.startswith("<|") or n == "<|end_of_msg|>"}
               for i, n in KIMI_NAMES.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}, indent=1) + "\n")
    return tiktoken_encoders(ranks, SPLIT_KIMI, kimi_specials(len(ranks), KIMI_NAMES), kimi_cuts)


def small():
    out = HERE / "vectors"
    source = Strings(1, [])
    corpus = [s.decode() for s in source.make(3000, [], []) if not malformed(s)]
    for name, splits, ignore in [("deepseek", SPLITS_DEEPSEEK, False), ("o200k", [SPLIT_O200K], True)]:
        (out / name).mkdir(parents=True, exist_ok=True)
        t = json.loads(train(splits, corpus, 900, ["<|start|>", "<|end|>", "<think>"]).to_str())
        t["model"]["ignore_merges"] = ignore
        t["added_tokens"][2]["special"] = False
        (out / name / "tokenizer.json").write_text(json.dumps(t, ensure_ascii=False, separators=(",", ":")) + "\n")
    ranks = ranks_of(out / "o200k" / "tokenizer.json")
    # The bytes come first among ranks, as in the vendor's file; merges of the trainer are in the order of their ids.
    kimi = write_kimi(out / "kimi", {b: r for b, r in ranks.items()})
    strings = Strings(2, []).make(NUM_SMALL, ["<|start|>", "<|end|>", "<think>", *KIMI_NAMES.values()], [])
    write_strings(out / "strings", strings)
    for name in ("deepseek", "o200k"):
        for kind, encode in zip(("ids", "markup"), json_encoders(out / name / "tokenizer.json")):
            write_ids(out / f"{name}.{kind}", strings, encode)
    for kind, encode in zip(("ids", "markup"), kimi):
        write_ids(out / f"kimi.{kind}", strings, encode)


def malformed(string):
    try:
        string.decode()
        return False
    except UnicodeDecodeError:
        return True


def real(folder, out):
    out.mkdir(parents=True, exist_ok=True)
    encoders, names, words = {}, list(KIMI_NAMES.values()), []
    for path in sorted(folder.glob("*/tokenizer.json")):
        name = path.parent.name
        (out / name).mkdir(exist_ok=True)
        whole = json.loads(path.read_text())
        if whole["normalizer"] and whole["normalizer"]["type"] != "Sequence":
            whole["normalizer"] = None  # we refuse it; its patterns and merges are tested all the same
        (out / name / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False))
        encoders[name] = json_encoders(out / name / "tokenizer.json")
        names += [t["content"] for t in whole["added_tokens"]][-40:]
        words += [b.decode(errors="ignore") for b in random.Random(3).sample(sorted(ranks_of(path)), 20000)]
        if name == "gpt_oss":
            ranks = ranks_of(path)
            encoders["kimi"] = write_kimi(out / "kimi", ranks)
            (out / "o200k").mkdir(exist_ok=True)
            write_tiktoken(out / "o200k" / "o200k_base.tiktoken", ranks)
            specials = {t["content"]: t["id"] for t in whole["added_tokens"]}
            (out / "o200k" / "tokenizer_config.json").write_text(
                json.dumps({"added_tokens_decoder": {str(i): {"content": n} for n, i in specials.items()}}))
            # tiktoken's own stack overflows on long runs (TOK-02); this vocabulary is the same in tokenizer.json.
            encoders["o200k"] = [
                lambda text, short=short, long=long: (long if len(text) > 50_000 else short)(text) for short, long in
                zip(tiktoken_encoders(ranks, SPLIT_O200K, specials, lambda text: [text]), encoders["gpt_oss"])]
    strings = Strings(4, words).make(NUM_REAL, names, [1000, 60_000, 1_000_000])
    write_strings(out / "strings", strings)
    for name, pair in encoders.items():
        for kind, encode in zip(("ids", "markup"), pair):
            write_ids(out / f"{name}.{kind}", strings, encode)
    print(f"{len(strings)} strings, {sum(map(malformed, strings))} of them malformed, "
          f"{len(SCRIPTS)} scripts; vocabularies: {', '.join(encoders)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", nargs=2, type=pathlib.Path)
    given = parser.parse_args()
    if given.real:
        real(*given.real)
    else:
        small()


if __name__ == "__main__":
    main()
