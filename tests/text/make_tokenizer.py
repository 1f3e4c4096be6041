#!/usr/bin/env python3
"""Trains the tokenizer of the tests: tests/support/tokenizer/tokenizer.model and tokenizer_config.json.

Its settings are those of the embedded model (BPE, byte fallback, single digits, nothing normalised), its corpus is the
text below. Training is deterministic. Needs spm_train of Debian's package sentencepiece 0.1.97.
"""
import itertools
import json
import pathlib
import subprocess
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "support" / "tokenizer"
VOCABULARY = 600
# In this order after [UNK] 0, [BOS] 1, [EOS] 2, [PAD] 3.
CONTROL = ["<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "<|media_begin|>", "<|media_content|>",
           "<|media_end|>", "<|media_pad|>"]

TEXT = """
The capital of Japan is Tokyo. A young dog is called a puppy, and a young cat is called a kitten.
The opposite of open is closed. There are seven days in a week and twelve months in a year.
Repeat the note that I gave you at the beginning. The code of the red lantern is 4821.
Once there was a small fox who lived at the edge of the forest. Every morning she walked to the river.
"Good evening," said the heron. "What are you looking for?" The fox thought about it for a long time.
I do not know the answer to this question. Please tell me more about it, and I will help you.
The system prompt describes the assistant. The user asks, the assistant thinks, and the tool returns a response.
message role user system assistant tool think response tools call argument json key type index string number object
def main(values):
    for value in values:
        print(value + 1)
{"animal": "fox", "legs": 4, "names": ["Ann", "Tom"]}
If it rains tomorrow, we shall stay at home; otherwise we shall go to the market with our neighbours.
"""


def corpus():
    yield from TEXT.strip().split("\n")
    animals, places, colours = ["fox", "heron", "horse", "mouse"], ["river", "market", "forest"], ["red", "green", "blue"]
    for animal, place, colour in itertools.product(animals, places, colours):
        yield f"The {colour} {animal} went to the {place} and came back in the evening."
        yield f"Where is the {animal}? The {animal} is at the {place}, behind the {colour} door."
    for a, b in itertools.product(range(0, 40, 7), range(0, 40, 9)):
        yield f"{a} + {b} = {a + b}"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "corpus.txt").write_text("\n".join(corpus()) + "\n")
        subprocess.run(
            ["spm_train", "--input=corpus.txt", "--model_prefix=tokenizer", "--model_type=bpe", f"--vocab_size={VOCABULARY}",
             "--byte_fallback", "--split_digits", "--normalization_rule_name=identity", "--add_dummy_prefix=false",
             "--remove_extra_whitespaces=false", "--allow_whitespace_only_pieces", "--character_coverage=1",
             "--unk_id=0", "--bos_id=1", "--eos_id=2", "--pad_id=3", "--unk_piece=[UNK]", "--bos_piece=[BOS]",
             "--eos_piece=[EOS]", "--pad_piece=[PAD]", "--control_symbols=" + ",".join(CONTROL), "--num_threads=1",
             "--minloglevel=1"], cwd=folder, check=True)
        (FOLDER / "tokenizer.model").write_bytes(pathlib.Path(folder, "tokenizer.model").read_bytes())
    config = {"bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]", "pad_token": "[PAD]",
              "add_bos_token": False, "add_eos_token": False, "additional_special_tokens": CONTROL}
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
