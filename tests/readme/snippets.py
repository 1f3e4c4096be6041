"""Compiles and runs what the pages show: README.md and docs/*.md.

snippets.py c PAGE                      prints one C program of all ```c blocks of a page
snippets.py run-c PAGE PROGRAM MODEL    runs that program
snippets.py python PAGE                 runs the ```python blocks of a page, one after the other, in one namespace
snippets.py block LANGUAGE PAGE         prints the first block of that language

A C block that begins with `static` or `#include` stands outside of functions. Every other one is the body of a function
that gets a runtime, a model, a new session and a prompt with one question, answers 0, and may use failed() and show().
A ```text block that follows a block directly is what the block prints.
"""

import contextlib
import io
import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", flags=re.M | re.S)
MARK = "\x1e"  # between the outputs of two C blocks
PRELUDE = r"""
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dsa_sdk.h"

static int failed(void) {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
  return 1;
}
static int32_t show(void *ud, const dsa_event *e) {
  (void)ud;
  if (e->type == DSA_EVENT_TEXT && e->channel == DSA_CHANNEL_ANSWER) fwrite(e->text.ptr, 1, e->text.len, stdout);
  return DSA_CONTINUE;
}
"""
PARAMETERS = "dsa_runtime *runtime, dsa_model *model, dsa_session *session, dsa_prompt *prompt"
MAIN = r"""
typedef int (*block_fn)(PARAMETERS);
static int run_block(block_fn block, dsa_runtime *runtime, dsa_model *model) {
  dsa_session *session = NULL;
  dsa_prompt *prompt = NULL;
  int code;
  if (dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0 ||
      dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 ||
      dsa_prompt_text(prompt, "What is the capital of France?", DSA_NTS) < 0)
    return failed();
  code = block(runtime, model, session, prompt);
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  putchar(MARK);
  return code;
}
int main(int argc, char **argv) {
  static const block_fn blocks[] = {BLOCKS};
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  size_t i;
  int code = 0;
  (void)show;
  if (argc != 2 || dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0)
    return failed();
  for (i = 0; code == 0 && i < sizeof(blocks) / sizeof(blocks[0]); ++i) code = run_block(blocks[i], runtime, model);
  dsa_model_release(model);
  dsa_runtime_release(runtime);
  return code;
}
"""


def blocks_of(page, language):
    """(code, line, what it prints or None)"""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for block, after in zip(found, [*found[1:], None]):
        if block[1] == language:
            follows = after and after[1] == "text" and not text[block.end() : after.start()].strip()
            yield block[2], text.count("\n", 0, block.start()) + 2, after[2] if follows else None


def outside(code):
    return code.startswith(("static", "#include"))


def c_program(page):
    parts, bodies = [PRELUDE], []
    for code, line, _ in blocks_of(page, "c"):
        place = f'#line {line} "{page.name}"\n{code}'
        if outside(code):
            parts.append(place)
        else:
            bodies.append(f"block_{line}")
            unused = "  (void)runtime; (void)model; (void)session; (void)prompt;"
            parts.append(f"static int block_{line}({PARAMETERS}) {{\n{unused}\n  {{\n{place}  }}\n  return 0;\n}}")
    main = MAIN.replace("PARAMETERS", PARAMETERS).replace("MARK", str(ord(MARK))).replace("BLOCKS", ", ".join(bodies))
    return "\n".join([*parts, main])


def compare(page, line, expected, printed):
    if expected is not None and printed.strip() != expected.strip():
        sys.exit(f"{page.name}:{line} prints\n{printed}\nexpected\n{expected}")


def run_c(page, program, model):
    done = subprocess.run([program, model], stdout=subprocess.PIPE, encoding="utf-8", timeout=500)
    printed = done.stdout.split(MARK)
    bodies = [block for block in blocks_of(page, "c") if not outside(block[0])]
    if done.returncode != 0:
        sys.exit(f"{page.name}:{bodies[len(printed) - 1 - (len(printed) > len(bodies))][1]}: exit code {done.returncode}")
    for (_, line, expected), text in zip(bodies, printed, strict=False):
        compare(page, line, expected, text)


def run_python(page):
    names = {"__name__": "__main__"}
    for code, line, expected in blocks_of(page, "python"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
        compare(page, line, expected, out.getvalue())


def main():
    match sys.argv[1:]:
        case ["c", page]:
            print(c_program(pathlib.Path(page)))
        case ["run-c", page, program, model]:
            run_c(pathlib.Path(page), program, model)
        case ["python", page]:
            run_python(pathlib.Path(page))
        case ["block", language, page]:
            print(next(blocks_of(pathlib.Path(page), language))[0], end="")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
