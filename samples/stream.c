/* stream.c: an answer that a program with a loop of its own pulls: stream MODEL "question".
 *
 * The library wakes the loop through a pipe when events are there; the loop also watches the keyboard, and the s key
 * (with Enter) stops the answer. Nothing blocks, and no code of ours runs on a library thread but one write().
 */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "dsa_sdk.h"

static int failed(void) {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
  return 1;
}

/* Called on a library thread: only passes the word on. */
static void wake(void *ud) {
  const char byte = 1;
  if (write(*(const int *)ud, &byte, 1) < 0) return; /* a full pipe wakes as well */
}

/* Takes what is there and returns; 1 when the run has ended. */
static int drain(dsa_run *run) {
  dsa_event e = DSA_INIT(dsa_event);
  dsa_status st;
  while ((st = dsa_run_next(run, 0, &e)) == DSA_OK) {
    if (e.type == DSA_EVENT_TEXT && e.channel == DSA_CHANNEL_ANSWER)
      fwrite(e.text.ptr, 1, e.text.len, stdout);
    if (e.type == DSA_EVENT_DONE) printf("\n");
  }
  fflush(stdout);
  return st != DSA_PENDING; /* DSA_PENDING armed the wake-up again */
}

static int loop(dsa_run *run, int woken) {
  struct pollfd watched[2] = {{0, POLLIN, 0}, {0, POLLIN, 0}};
  char bytes[64];
  watched[0].fd = woken;
  watched[1].fd = STDIN_FILENO;
  while (!drain(run)) {
    if (poll(watched, 2, -1) < 0) return 1;
    if ((watched[0].revents & POLLIN) != 0 && read(woken, bytes, sizeof(bytes)) < 0) return 1;
    if (watched[1].revents != 0) {
      const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (n > 0 && bytes[0] == 's') dsa_run_cancel(run, DSA_STOP_KEEP);
      if (n <= 0) watched[1].fd = -1; /* no keyboard */
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  dsa_prompt *prompt = NULL;
  dsa_run *run = NULL;
  dsa_run_options options = DSA_INIT(dsa_run_options);
  dsa_result result = DSA_INIT(dsa_result);
  int ends[2], code = 1;
  if (argc != 3 || pipe(ends) != 0) {
    fprintf(stderr, "usage: stream MODEL \"question\"\n");
    return 2;
  }
  options.on_ready = wake;
  options.on_ready_ud = &ends[1];
  options.priority = DSA_PRIORITY_INTERACTIVE;
  if (dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
      dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0 ||
      dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 || dsa_prompt_text(prompt, argv[2], DSA_NTS) < 0 ||
      dsa_run_start(session, prompt, &options, &run) < 0) {
    failed();
  } else {
    code = loop(run, ends[0]);
    if (code == 0 && dsa_run_get_result(run, &result) == DSA_OK) {
      fprintf(stderr, "%u tokens, %s\n", result.output_tokens, dsa_status_name(result.status));
      code = result.status < 0;
    }
  }
  dsa_run_release(run); /* from here on wake() is never called */
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  dsa_model_release(model);
  dsa_runtime_release(runtime);
  close(ends[0]);
  close(ends[1]);
  return code;
}
